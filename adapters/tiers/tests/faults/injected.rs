//! System calls that strace makes fail.

use super::*;
use terrace_file::{Directory, EngineKind, Executor, FileFaultReason, StoreError};

const CAP: u64 = 16 * MIB;

/// Runs a test again under strace. False: there is none, and the test is skipped.
fn injected(test: &str, what: &str) -> bool {
    let can = Command::new("strace").args(["-qq", "-o", "/dev/null", "true"]).output();
    if !can.is_ok_and(|told| told.status.success()) {
        println!("SKIP {test}: strace cannot trace here");
        return false;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (inject, told) = (format!("inject={what}"), tempfile::NamedTempFile::new().expect("a file"));
    let told_to = told.path().to_string_lossy();
    // Without cargo's path the loader finds its libraries at once.
    let strace = ["strace", "-f", "-qq", "-E", "LD_LIBRARY_PATH", "-o", &told_to, "-e", &inject];
    passes(again(test, &strace, directory.path()));
    let calls = std::fs::read_to_string(told.path()).expect("what was called");
    assert!(calls.contains("(INJECTED)"), "nothing was refused: {what}");
    true
}

/// Which thread of an engine syncs first is random: a sync may fail even while the manager is built.
fn by_threads(path: &Path) -> Manager {
    in_the_end(|| builder(path, CAP).engine(EngineKind::Threads).maintenance_interval(Duration::ZERO).build())
}

#[test]
fn without_a_ring_there_are_threads() {
    let test = "injected::without_a_ring_there_are_threads";
    let Some(path) = given() else {
        for refusal in ["EPERM", "ENOSYS"] {
            if !injected(test, &format!("io_uring_setup:error={refusal}")) {
                return;
            }
        }
        return;
    };
    let tasks = Executor::new();
    assert_eq!(Directory::open(&path, EngineKind::Best, &tasks).expect("it opens").engine(), "threads");
    assert!(Directory::open(&path, EngineKind::IoUring, &Executor::new()).is_err());
    let first = manager(&path, CAP);
    (0..10).for_each(|which| _ = keep(&first, which).expect("durable"));
    drop(first);
    let second = manager(&path, CAP);
    (0..10).for_each(|which| holds(&second, which));
}

/// Of each thread's syncs of files, every third fails. A sync that failed is not tried again on the same bytes: they are written elsewhere.
#[test]
fn a_sync_that_fails_is_made_good_elsewhere_or_told() {
    let test = "injected::a_sync_that_fails_is_made_good_elsewhere_or_told";
    let Some(path) = given() else {
        injected(test, "fdatasync:error=EIO:when=2+3");
        return;
    };
    sometimes(&path, FileFaultReason::Device);
}

/// Of each thread's writes, every fourth finds the disk full.
#[test]
fn a_write_that_finds_no_room_is_made_good_elsewhere_or_told() {
    let test = "injected::a_write_that_finds_no_room_is_made_good_elsewhere_or_told";
    let Some(path) = given() else {
        injected(test, "pwrite64:error=ENOSPC:when=3+4");
        return;
    };
    sometimes(&path, FileFaultReason::Full);
}

/// Of each thread's calls, every second is interrupted by a signal, as on network file systems.
#[test]
fn what_a_signal_interrupts_is_called_again() {
    let test = "injected::what_a_signal_interrupts_is_called_again";
    let Some(path) = given() else {
        // The first opens and reads of a process are the loader's, which does not call again.
        let calls = [("pwrite64", 1), ("fdatasync", 1), ("fsync", 1), ("fallocate", 1), ("openat", 8), ("pread64", 8)];
        for (call, first) in calls {
            if !injected(test, &format!("{call}:error=EINTR:when={first}+2")) {
                return;
            }
        }
        return;
    };
    let first = builder(&path, CAP).engine(EngineKind::Threads).build().expect("it is built");
    (0..10).for_each(|which| _ = keep(&first, which).expect("durable"));
    drop(first);
    let second = builder(&path, CAP).engine(EngineKind::Threads).build().expect("it is built");
    (0..10).for_each(|which| holds(&second, which));
}

#[test]
fn a_file_system_that_cannot_reserve_space_is_named_as_such() {
    let test = "injected::a_file_system_that_cannot_reserve_space_is_named_as_such";
    let Some(path) = given() else {
        injected(test, "fallocate:error=EOPNOTSUPP");
        return;
    };
    let refused = builder(&path, CAP).engine(EngineKind::Threads).build().map(drop).expect_err("it cannot");
    assert!(refused.to_string().contains("cannot reserve space"), "{refused}");
}

/// Syncs buffers while calls fail now and then: each is durable, or reports why not.
fn sometimes(path: &Path, why: FileFaultReason) {
    let manager = by_threads(path);
    let mut kept = Vec::new();
    for which in 0..20 {
        // A tier that failed takes copies again: it would be suspended for a minute at most.
        manager.tick(which as u64 * 100_000);
        match keep(&manager, which) {
            Ok(_) => kept.push(which),
            Err(Error::Store(StoreError::Fault(fault))) => assert_eq!(fault.reason, why, "{fault}"),
            Err(
                Error::Suspended { .. }
                | Error::NoRoom { .. }
                | Error::Refused(_)
                | Error::Store(StoreError::Full { .. }),
            ) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert!(!kept.is_empty(), "the first calls are let through");
    manager.check().expect("sound");
    kept.iter().for_each(|which| holds(&manager, *which));
    for which in (0..20).filter(|which| !kept.contains(which)) {
        let Ok(buffer) = manager.open(&name(which)) else { continue };
        let mut read = vec![1; BYTES as usize];
        buffer.read(0, &mut read).expect("reads are not refused");
        // A refused write wrote nothing; a refused sync lost nothing.
        assert!(read == pattern(which, BYTES) || read.iter().all(|byte| *byte == 0), "buffer {which}");
    }
    drop(manager);
    let manager = in_the_end(|| builder(path, CAP).engine(EngineKind::Threads).build());
    kept.iter().for_each(|which| holds(&manager, *which));
}
