//! Directories that are in use, not writable, removed, renamed, or shared with another manager.

use super::mount::Mount;
use super::*;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use terrace_file::{FileFaultReason, StoreError};

const CAP: u64 = 16 * MIB;

fn fault(built: Result<Manager, Error>) -> FileFaultReason {
    match built.map(drop) {
        Err(Error::Store(StoreError::Fault(fault))) => fault.reason,
        other => panic!("{other:?}"),
    }
}

/// Errors name the cause, also to later callers while the tier is suspended for it; the suspension ends with its cause.
#[test]
fn descriptors_that_run_out_are_named_and_a_tier_is_tried_again_when_there_are_some() {
    let test = "places::descriptors_that_run_out_are_named_and_a_tier_is_tried_again_when_there_are_some";
    let Some(path) = given() else {
        let directory = tempfile::tempdir().expect("a directory");
        let wrapped = ["sh", "-c", "ulimit -n 40 && exec \"$0\" \"$@\""];
        return passes(again(test, &wrapped, directory.path()));
    };
    let manager = builder(&path, CAP).maintenance_interval(Duration::ZERO).build().expect("it is built");
    let held: Vec<_> = std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect();
    let is_named = |error: &Error| match error {
        Error::Store(StoreError::Fault(fault)) => fault.reason == FileFaultReason::Exhausted,
        _ => false,
    };
    let refused = (0..100).find_map(|which| keep(&manager, which).err()).expect("slabs are files");
    assert!(is_named(&refused), "{refused}");
    // It is suspended: both a copy and a new buffer fail for that.
    for _ in 0..3 {
        let refused = (0..100).find_map(|which| keep(&manager, which).err()).expect("there are none still");
        let Error::Suspended { tier: 1, left, why } = &refused else { panic!("{refused}") };
        assert!(*left <= 1000 && is_named(why), "{refused}");
        assert!(refused.to_string().contains("ulimit -n"), "{refused}");
        manager.tick(1);
    }
    drop(held);
    manager.tick(2);
    (0..10).for_each(|which| _ = keep(&manager, which).expect("there is no need to wait"));
}

#[test]
fn another_process_has_the_directory_until_it_is_killed() {
    let test = "places::another_process_has_the_directory_until_it_is_killed";
    if let Some(path) = given() {
        let manager = manager(&path, CAP);
        keep(&manager, 3).expect("durable");
        eprintln!("ready");
        std::thread::sleep(Duration::from_secs(600));
        unreachable!("it is killed before");
    }
    let directory = tempfile::tempdir().expect("a directory");
    let mut child =
        again(test, &[], directory.path()).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a process");
    let said = BufReader::new(child.stderr.take().expect("a pipe")).lines().next();
    assert_eq!(said.and_then(Result::ok).as_deref(), Some("ready"));
    let refused = fault(builder(directory.path(), CAP).build());
    child.kill().expect("it runs");
    child.wait().expect("it ended");
    assert_eq!(refused, FileFaultReason::Busy);
    holds(&manager(directory.path(), CAP), 3);
}

#[test]
fn a_directory_that_cannot_be_written_is_refused_and_kept() {
    let test = "places::a_directory_that_cannot_be_written_is_refused_and_kept";
    let Some(disk) = Mount::tmpfs(test, 32) else { return };
    keep(&manager(disk.path(), CAP), 5).expect("durable");
    in_the_end(|| disk.read_only().then_some(()).ok_or(Error::Closed));
    assert_eq!(fault(builder(disk.path(), CAP).build()), FileFaultReason::Denied);
    assert_eq!(fault(builder(&disk.path().join("below"), CAP).build()), FileFaultReason::Denied);
}

#[test]
fn a_name_that_is_no_directory_is_refused_and_one_that_leads_to_one_is_not() {
    let ground = tempfile::tempdir().expect("a directory");
    let file = ground.path().join("file");
    std::fs::write(&file, b"mine").expect("written");
    fault(builder(&file, CAP).build());
    fault(builder(&file.join("below"), CAP).build());
    assert_eq!(std::fs::read(&file).expect("it is there"), b"mine");
    let (real, link) = (ground.path().join("real"), ground.path().join("link"));
    std::os::unix::fs::symlink(&real, &link).expect("a link");
    fault(builder(&link, CAP).build());
    std::fs::create_dir(&real).expect("a directory");
    keep(&manager(&link, CAP), 1).expect("durable");
    let held = manager(&real, CAP);
    holds(&held, 1);
    assert_eq!(fault(builder(&link, CAP).build()), FileFaultReason::Busy, "one directory, by two names");
}

/// A manager keeps using the directory that it opened, wherever that was moved.
#[test]
fn a_directory_that_is_renamed_or_removed_is_not_mistaken_for_the_next_of_its_name() {
    let ground = tempfile::tempdir().expect("a directory");
    let (path, away) = (ground.path().join("store"), ground.path().join("away"));
    let first = manager(&path, CAP);
    (0..4).for_each(|which| _ = keep(&first, which).expect("durable"));
    std::fs::rename(&path, &away).expect("renamed");
    let second = manager(&path, CAP);
    (4..8).for_each(|which| _ = keep(&second, which).expect("durable"));
    // It creates and removes slabs and logs of its own.
    for round in 0..100 {
        for (manager, which) in [(&first, 10 + round % 20), (&second, 40 + round % 10)] {
            keep(manager, which).expect("durable");
            if round % 3 == 0 {
                manager.remove(&name(which)).expect("removed");
            }
        }
    }
    (0..4).for_each(|which| holds(&first, which));
    drop((first, second));
    let (first, second) = (manager(&away, CAP), manager(&path, CAP));
    (0..4).for_each(|which| holds(&first, which));
    (4..8).for_each(|which| holds(&second, which));
    std::fs::remove_dir_all(&path).expect("removed");
    (4..8).for_each(|which| holds(&second, which));
    let buffer = second.open(&name(5)).expect("it lives");
    let written = buffer.write(0, &pattern(5, BYTES));
    let refused = written.and_then(|()| second.sync(&buffer)).expect_err("no later start would find it");
    assert!(matches!(refused, Error::Store(StoreError::Fault(_))), "{refused}");
    (4..8).for_each(|which| holds(&second, which));
    second.check().expect("sound");
    assert!(!path.exists());
}

#[test]
fn a_smaller_cap_is_kept_or_refused_with_everything_still_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let bytes = || -> u64 {
        let entries = std::fs::read_dir(directory.path()).expect("a directory").flatten();
        entries.map(|entry| entry.metadata().expect("a file").len()).sum()
    };
    let first = manager(directory.path(), CAP);
    (0..30).for_each(|which| _ = keep(&first, which).expect("durable"));
    drop(first);
    let refused = builder(directory.path(), 5 * MIB).build().map(drop).expect_err("9 MB are durable");
    assert!(matches!(refused, Error::Store(StoreError::CapTooSmall { .. }) | Error::NoRoom { .. }), "{refused}");
    let second = manager(directory.path(), CAP);
    (0..30).for_each(|which| holds(&second, which));
    (0..24).for_each(|which| second.remove(&name(which)).expect("removed"));
    drop(second);
    let third = manager(directory.path(), 5 * MIB);
    assert!(bytes() <= 5 * MIB, "{} bytes", bytes());
    (24..30).for_each(|which| holds(&third, which));
}

#[test]
fn files_of_others_are_not_touched() {
    let directory = tempfile::tempdir().expect("a directory");
    let theirs = ["notes.txt", "terrace.txt", "terrace-00000001.slab.old", "terrace-1.log", "terrace-0000000A.slab"];
    std::fs::create_dir(directory.path().join("below")).expect("a directory");
    theirs.iter().for_each(|file| std::fs::write(directory.path().join(file), file).expect("written"));
    for _ in 0..2 {
        let manager = manager(directory.path(), CAP);
        (0..20).for_each(|which| _ = keep(&manager, which).expect("durable"));
        (0..20).for_each(|which| manager.remove(&name(which)).expect("removed"));
    }
    for file in theirs {
        assert_eq!(std::fs::read(directory.path().join(file)).expect("it is there"), file.as_bytes());
    }
    assert!(directory.path().join("below").is_dir());
}
