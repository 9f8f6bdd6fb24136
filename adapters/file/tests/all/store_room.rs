//! Space for logs and for what they name, under a cap and on full disks.
#![cfg(target_os = "linux")]

use crate::common;

use common::{StoreFixture, names, on_disk, open, open_with, options};
use std::sync::atomic::Ordering;
use terrace_file::{Change, EngineKind, FileFault, FileFaultReason, StoreError, StoreFile, StoreOptions};

/// Commits an object of one page: a store of such objects has a log as large as a slab.
fn keep_page(fixture: &StoreFixture, object: u64) -> Result<(), StoreError> {
    let piece = fixture.store.put(fixture.frames.take(1).expect("room"), 1).wait().result?;
    fixture.store.commit(vec![Change::Piece { object, part: 0, piece }]).wait()
}

#[test]
fn a_store_that_is_full_of_small_pieces_has_room_for_its_log() {
    let directory = tempfile::tempdir().expect("a directory");
    // Small slabs fill the cap without a rest.
    let options = StoreOptions { slab_bytes: 64 << 10, ..options() };
    let fixture = open_with(directory.path(), EngineKind::Best, options).expect("it opens");
    let mut objects = 0;
    let full = loop {
        match keep_page(&fixture, objects) {
            Ok(()) => objects += 1,
            Err(error) => break error,
        }
        assert!(!objects.is_multiple_of(64) || on_disk(directory.path()) <= options.cap);
    };
    assert!(matches!(full, StoreError::Full { .. }), "{full}");
    assert!(objects > 1000, "{objects}");
    // Removing half of them takes more records than a log holds: a full store can be emptied.
    for object in 0..objects / 2 {
        fixture.store.commit(vec![Change::Remove { object }]).wait().expect("it goes");
        fixture.store.check().expect("sound");
    }
    keep_page(&fixture, 0).expect("room again");
    drop(fixture);
    let fixture = open_with(directory.path(), EngineKind::Best, options).expect("it opens");
    assert_eq!(fixture.store.objects().len() as u64, objects - objects / 2 + 1);
    assert!(on_disk(directory.path()) <= options.cap);
}

#[test]
fn a_log_that_outgrew_its_first_size_is_followed_by_another_on_a_full_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let fixture = open(directory.path());
    for object in 0..1000 {
        keep_page(&fixture, object).expect("room");
    }
    let logs = || names(directory.path()).into_iter().filter(|file| matches!(file, StoreFile::Log(_))).max();
    let (last, live) = (logs(), fixture.store.stats().live);
    fixture.disk.full.store(true, Ordering::Relaxed);
    // Each commit takes at least a block: enough to fill this log and the next.
    let mut commits = 0;
    let refused = loop {
        match keep_page(&fixture, commits % 1000) {
            Ok(()) => commits += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::Fault(FileFault { reason: FileFaultReason::Full, .. })), "{refused}");
    assert!(commits > 16, "it took the next log's file: {commits}");
    assert_eq!(logs(), last, "which was there");
    assert_eq!(fixture.store.stats().live, live, "nothing of what was refused was written: it has no room");
    fixture.disk.full.store(false, Ordering::Relaxed);
    keep_page(&fixture, 0).expect("the disk has room");
}

#[test]
fn what_a_commit_that_failed_may_have_written_keeps_its_room() {
    let directory = tempfile::tempdir().expect("a directory");
    let fixture = open(directory.path());
    fixture.disk.full.store(true, Ordering::Relaxed);
    fixture.keep(1, 1).expect_err("no slab can be made");
    fixture.disk.full.store(false, Ordering::Relaxed);
    fixture.keep(1, 1).expect("room");
    fixture.disk.full.store(true, Ordering::Relaxed);
    let logs = || names(directory.path()).into_iter().filter(|file| matches!(file, StoreFile::Log(_))).count();
    while logs() > 1 {
        fixture.keep(1, 1).expect("the next log's file is there");
    }
    fixture.disk.stuck.store(true, Ordering::Relaxed);
    fixture.keep(2, 2).expect_err("it is not durable, and no other log can be made");
    let others: Vec<_> = (0..10).map(|_| fixture.put(3).expect("room")).collect();
    assert!(others.iter().all(|piece| fixture.holds(piece, 3)));
    drop((others, fixture));
    // What failed to sync reached the disk all the same.
    let fixture = open(directory.path());
    assert!(fixture.holds(&fixture.part(1), 1) && fixture.holds(&fixture.part(2), 2));
}

#[test]
fn on_a_full_disk_nothing_is_said_that_the_next_log_could_not_say() {
    let directory = tempfile::tempdir().expect("a directory");
    let fixture = open(directory.path());
    keep_page(&fixture, 0).expect("room");
    fixture.disk.full.store(true, Ordering::Relaxed);
    let many = (1..1000).map(|object| Change::Meta { object, meta: vec![7; 100] }).collect();
    let refused = fixture.store.commit(many).wait();
    assert!(matches!(refused, Err(StoreError::Fault(FileFault { reason: FileFaultReason::Full, .. }))), "{refused:?}");
    assert_eq!(fixture.store.objects(), [0]);
    fixture.store.commit(vec![Change::Remove { object: 0 }]).wait().expect("there is room for less");
}

#[test]
fn a_frame_that_ends_inside_a_page_is_written_up_to_its_last_whole_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let fixture = open(directory.path());
    for (taken, asked, most) in [(100, 100, 0), (5000, 5000, 4096)] {
        let frame = fixture.frames.take_packed(taken).expect("room");
        let refused = fixture.store.put(frame, asked).wait();
        assert_eq!(refused.result.map(drop), Err(StoreError::TooLarge { asked, most }));
        assert!(refused.frame.is_some(), "the memory is back");
    }
    let put = fixture.store.put(fixture.frames.take_packed(5000).expect("room"), 4096).wait();
    assert_eq!(put.result.expect("it fits").bytes(), 4096);
}
