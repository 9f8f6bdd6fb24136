//! Devices that fail underneath, and slabs that are cut or removed.

use super::mount::Mount;
use super::*;
use std::collections::BTreeSet;
use terrace_file::StoreError;

const CAP: u64 = 16 * MIB;

/// Reads all buffers; returns how many are right and how many fail. A store's error is the only other outcome.
fn sort(manager: &Manager, buffers: std::ops::Range<usize>) -> (usize, usize) {
    let (mut right, mut refused) = (0, 0);
    for which in buffers {
        match look(&manager.open(&name(which)).expect("it is known"), which) {
            Ok(()) => right += 1,
            Err(Error::Store(StoreError::Fault(_))) => refused += 1,
            Err(other) => panic!("buffer {which}: {other}"),
        }
    }
    (right, refused)
}

fn slabs(path: &Path) -> Vec<std::path::PathBuf> {
    let files = std::fs::read_dir(path).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut slabs: Vec<_> = files.filter(|path| path.extension().is_some_and(|ending| ending == "slab")).collect();
    slabs.sort();
    slabs
}

#[test]
fn a_slab_that_is_cut_costs_what_was_there_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = self::manager(directory.path());
    // 9 MB, of which 1 fits into memory: the first ones are in files only.
    let last = keep_all(&manager, 30);
    let cut = &slabs(directory.path())[1];
    std::fs::File::options().write(true).open(cut).and_then(|file| file.set_len(300_000)).expect("cut");
    let lease = last.lease_best().expect("in memory");
    assert!(lease[..] == pattern(29, BYTES)[..], "memory is as it was");
    drop(lease);
    let (right, refused) = sort(&manager, 0..30);
    assert!(refused > 0 && right >= 20, "{right} right, {refused} refused");
    manager.check().expect("sound");
    // What failed can be written again, elsewhere or there: the file grows again.
    (0..30).for_each(|which| _ = in_the_end(|| keep(&manager, which)));
    drop((last, manager));
    let manager = self::manager(directory.path());
    assert_eq!(sort(&manager, 0..30), (30, 0));
}

fn keep_all(manager: &Manager, count: usize) -> Buffer {
    (1..count).for_each(|which| _ = keep(manager, which - 1).expect("room"));
    keep(manager, count - 1).expect("room")
}

fn manager(path: &Path) -> Manager {
    super::manager(path, CAP)
}

#[test]
fn files_that_are_removed_while_they_are_open_serve_until_they_are_closed() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = manager(directory.path());
    keep_all(&first, 20);
    let gone = slabs(directory.path()).remove(0);
    std::fs::remove_file(&gone).expect("removed");
    assert_eq!(sort(&first, 0..20), (20, 0), "an open file has its bytes");
    // New durable bytes do not go into that slab, where no later start finds it.
    (20..26).for_each(|which| _ = keep(&first, which).expect("durable"));
    drop(first);
    let second = manager(directory.path());
    assert_eq!(sort(&second, 20..26), (6, 0));
    let (right, refused) = sort(&second, 0..20);
    assert!(refused > 0 && right > 0, "{right} right, {refused} refused");
    second.check().expect("sound");
    (0..20).for_each(|which| _ = in_the_end(|| keep(&second, which)));
    drop(second);
    assert_eq!(sort(&manager(directory.path()), 0..20), (20, 0), "all is written anew");
}

#[test]
fn a_log_that_is_removed_while_it_is_open_ends_durability_and_nothing_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = manager(directory.path());
    keep_all(&first, 20);
    let listed =
        || std::fs::read_dir(directory.path()).expect("a directory").map(|entry| entry.expect("an entry").path());
    let mut logs: Vec<_> = listed().filter(|path| path.extension().is_some_and(|ending| ending == "log")).collect();
    logs.sort();
    std::fs::remove_file(&logs[0]).expect("removed");
    let files =
        || listed().filter(|path| path.extension().is_none_or(|ending| ending != "slab")).collect::<BTreeSet<_>>();
    let before = files();
    for which in 0..4 {
        let refused = keep(&first, which).map(drop);
        assert!(matches!(refused, Err(Error::Store(StoreError::LogGone { .. }))), "{refused:?}");
    }
    assert_eq!(sort(&first, 4..20), (16, 0), "what was read before is read now");
    drop(first);
    assert_eq!(files(), before, "no log was made or removed");
    let refused = Manager::builder().memory(1 << 20).directory_of(directory.path(), CAP).build().map(drop);
    assert!(matches!(refused, Err(Error::Store(StoreError::Damaged { .. }))), "{refused:?}");
}

#[test]
fn a_device_that_ends_early_costs_what_lies_behind_its_end() {
    let test = "broken::a_device_that_ends_early_costs_what_lies_behind_its_end";
    let Some(disk) = Mount::ext4(test, 32) else { return };
    let first = manager(disk.path());
    let last = keep_all(&first, 40);
    disk.cut(8);
    let lease = last.lease_best().expect("in memory");
    assert!(lease[..] == pattern(39, BYTES)[..], "memory is as it was");
    drop(lease);
    let (right, refused) = sort(&first, 0..40);
    assert!(refused > 0 && right > 0, "{right} right, {refused} refused");
    // Whether a sound block is left depends on the file system: durable, or an error.
    let told: Vec<bool> = (0..5).map(|which| keep(&first, 100 + which).is_ok()).collect();
    for (which, durable) in told.iter().enumerate() {
        match first.open(&name(100 + which)) {
            Ok(buffer) => _ = look(&buffer, 100 + which),
            Err(_) => assert!(!durable),
        }
    }
    first.check().expect("sound");
    drop((last, first));
}

#[test]
fn a_whole_chunk_is_written_over_although_what_was_there_is_damaged() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = Manager::builder().memory(MIB).chunk(64 << 10).directory_of(directory.path(), CAP);
    let manager = manager.build().expect("it is built");
    let hint = terrace_tiers::ledger::PlacementHint { tier: Some(1), keep: false };
    let options = terrace_tiers::BufferOptions { hint, ..terrace_tiers::BufferOptions::default() };
    let buffer = manager.allocate_with(128 << 10, options).expect("room");
    buffer.write(0, &[7; 128 << 10]).expect("written");
    for slab in slabs(directory.path()) {
        let bytes = std::fs::metadata(&slab).expect("there").len();
        std::fs::write(&slab, vec![0; bytes as usize]).expect("damaged");
    }
    assert!(buffer.write(5, &[8; 100]).is_err(), "a part of a chunk needs the rest");
    assert_eq!(buffer.write(0, &[8; 64 << 10]), Ok(()));
    let mut read = vec![0; 64 << 10];
    assert_eq!(buffer.read(0, &mut read), Ok(()));
    assert!(read.iter().all(|byte| *byte == 8) && buffer.read(64 << 10, &mut [0; 9]).is_err());
}
