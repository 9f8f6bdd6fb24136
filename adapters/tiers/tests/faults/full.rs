//! Disks that are smaller than the cap, and files that may not grow.

use super::mount::Mount;
use super::*;
use std::sync::Arc;
use terrace_file::{
    Change, Directory, Disk, EngineKind, Executor, FileFaultReason, FramePool, Store, StoreError, StoreOptions,
};

/// Sixteen times the disk: slabs of 4 MiB, a log of 1 MiB.
const CAP: u64 = 256 * MIB;

/// Fills it until a call is refused. Returns how many buffers are durable.
fn fill(manager: &Manager) -> usize {
    for which in 0..1000 {
        if let Err(error) = keep(manager, which) {
            let full = match &error {
                Error::Store(StoreError::Fault(fault)) => fault.reason == FileFaultReason::Full,
                other => matches!(other, Error::Suspended { .. } | Error::NoRoom { .. } | Error::Refused(_)),
            };
            assert!(full, "{error}");
            return which;
        }
    }
    panic!("300 MB on a disk of 16")
}

fn a_full_disk(disk: &Mount) {
    let first = manager(disk.path(), CAP);
    let durable = fill(&first);
    assert!(durable >= 16, "three slabs hold some 40, two 27: {durable}");
    first.check().expect("sound");
    (0..durable).for_each(|which| holds(&first, which));
    drop(first);
    let second = manager(disk.path(), CAP);
    (0..durable).for_each(|which| holds(&second, which));
    // Makes room again.
    let half = durable / 2;
    (0..half).for_each(|which| in_the_end(|| second.remove(&name(which))));
    for which in 1000..1000 + half / 2 {
        in_the_end(|| keep(&second, which));
    }
    second.check().expect("sound");
    drop(second);
    let third = manager(disk.path(), CAP);
    (half..durable).chain(1000..1000 + half / 2).for_each(|which| holds(&third, which));
    assert_eq!(third.list().len(), durable - half + half / 2);
}

#[test]
fn a_full_disk_in_memory_loses_nothing_and_goes_on_when_there_is_room() {
    let test = "full::a_full_disk_in_memory_loses_nothing_and_goes_on_when_there_is_room";
    let Some(disk) = Mount::tmpfs(test, 16) else { return };
    a_full_disk(&disk);
}

#[test]
fn a_full_ext4_loses_nothing_and_goes_on_when_there_is_room() {
    let test = "full::a_full_ext4_loses_nothing_and_goes_on_when_there_is_room";
    let Some(disk) = Mount::ext4(test, 16) else { return };
    a_full_disk(&disk);
}

/// The next log is created when this one is full: a disk that is full by then must not stop what would make room.
#[test]
fn a_log_that_is_full_on_a_full_disk_is_followed_by_another() {
    let test = "full::a_log_that_is_full_on_a_full_disk_is_followed_by_another";
    let Some(mount) = Mount::tmpfs(test, 8) else { return };
    let (tasks, frames) = (Executor::new(), FramePool::new(4 << 20).expect("memory"));
    let disk = Arc::new(Directory::open(mount.path(), EngineKind::Best, &tasks).expect("it opens"));
    let options = StoreOptions { cap: 64 << 20, slab_bytes: 1 << 20, log_bytes: 256 << 10 };
    let store = Store::open(Arc::clone(&disk) as Arc<dyn Disk>, &tasks, &frames, options).wait().expect("it opens");
    let put = |byte: u8| {
        let mut frame = frames.take(1 << 16).expect("room");
        frame.fill(byte);
        store.put(frame, 1 << 16).wait().result
    };
    let mut held = Vec::new();
    while let Ok(piece) = put(held.len() as u8) {
        held.push(piece);
    }
    // Another user takes what slabs free.
    std::fs::write(mount.path().join("another"), vec![1; 8 << 20]).expect_err("it is full");
    for round in 0..200u64 {
        let piece = Arc::clone(&held[round as usize % held.len()]);
        store.commit(vec![Change::Piece { object: round % 8, part: 0, piece }]).wait().expect("durable");
    }
    let kept = |object: u64| Arc::clone(store.object(object).expect("there").parts.get(0).expect("a part"));
    for object in 0..8 {
        // The last of the 200 rounds that wrote it.
        let byte = ((192 + object) % held.len() as u64) as u8;
        assert!(store.get(&kept(object)).wait().expect("read").iter().take(1 << 16).all(|read| *read == byte));
    }
    store.commit((0..8).map(|object| Change::Remove { object }).collect()).wait().expect("durable");
    held.clear();
    assert_eq!(put(1).expect("room again").bytes(), 1 << 16);
}

/// A limit on files, as `ulimit -f` sets it: the log can be made, slabs cannot.
#[test]
fn a_limit_on_the_size_of_files_is_an_error_and_memory_goes_on() {
    let test = "full::a_limit_on_the_size_of_files_is_an_error_and_memory_goes_on";
    let Some(path) = given() else {
        let directory = tempfile::tempdir().expect("a directory");
        // The signal that comes with the limit is the program's to ignore; 1024 blocks of 512.
        let limited = "trap '' XFSZ; ulimit -f 1024; exec \"$0\" \"$@\"";
        return passes(again(test, &["sh", "-c", limited], directory.path()));
    };
    let manager = builder(&path, 64 * MIB).maintenance_interval(Duration::ZERO).build().expect("it is built");
    let buffer = manager.allocate_named("one", BYTES).expect("in memory");
    buffer.write(0, &pattern(1, BYTES)).expect("written");
    let refused = manager.sync(&buffer);
    let Err(Error::Store(StoreError::Fault(fault))) = &refused else { panic!("{refused:?}") };
    assert_eq!((fault.code, fault.call), (libc::EFBIG, "fallocate"));
    // The disk has room and refuses all the same: the tier is suspended for its time, and longer each time.
    let left = |manager: &Manager| match manager.sync(&buffer) {
        Err(Error::Suspended { left, .. }) => left,
        other => panic!("{other:?}"),
    };
    manager.tick(1);
    assert_eq!(left(&manager), 999);
    manager.tick(1000);
    assert!(matches!(manager.sync(&buffer), Err(Error::Store(StoreError::Fault(_)))));
    manager.tick(1001);
    assert_eq!(left(&manager), 1999);
    look(&buffer, 1).expect("in memory");
    drop((buffer, manager));
    assert_eq!(super::manager(&path, 64 * MIB).list(), []);
}

/// Durable versions fill the store while newer ones are written: it is full before the tier is.
#[test]
fn a_store_that_is_full_takes_copies_again_as_soon_as_something_is_removed() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager =
        builder(directory.path(), 12 * MIB).maintenance_interval(Duration::ZERO).build().expect("it is built");
    (0..25).for_each(|which| drop(keep(&manager, which).expect("7 MB of room")));
    let is_resting = || manager.tiers()[1].view.suspended_until.is_some();
    // Written anew in memory, and evicted from there.
    let full = (0..25).find(|which| {
        let buffer = manager.open(&name(*which)).expect("it is there");
        let _ = buffer.lease_mut().map(|mut lease| lease.copy_from_slice(&pattern(*which, BYTES)));
        is_resting()
    });
    assert!(full.is_some(), "the store is full");
    manager.tick(1);
    assert!(is_resting(), "nothing has changed");
    manager.remove(&name(24)).expect("removed");
    manager.tick(2);
    assert!(!is_resting(), "it would be tried again after a second");
    (0..24).for_each(|which| holds(&manager, which));
    manager.check().expect("sound");
}
