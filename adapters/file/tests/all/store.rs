//! The store on real files, through both engines.
#![cfg(target_os = "linux")]

use crate::common;

use common::{PIECE, StoreFixture, names, on_disk, open, open_with, options};
use std::path::Path;
use std::sync::Arc;
use terrace_file::{
    Change, Directory, Disk, EngineKind, Executor, FileFaultReason, FramePool, Store, StoreError, StoreFile,
    StoreOptions,
};

#[test]
fn what_was_committed_is_there_after_a_restart_and_nothing_else() {
    for kind in [EngineKind::Best, EngineKind::Threads] {
        let directory = tempfile::tempdir().expect("a directory");
        let fixture = open_with(directory.path(), kind, options()).expect("it opens");
        for object in 0..40 {
            fixture.keep(object, object as u8).expect("room");
        }
        fixture.keep(7, 200).expect("room");
        let volatile = fixture.put(99).expect("room");
        assert!(fixture.holds(&volatile, 99));
        fixture.store.commit(vec![Change::Remove { object: 3 }]).wait().expect("durable");
        fixture.store.check().expect("sound");
        drop(fixture);
        let fixture = open_with(directory.path(), kind, options()).expect("it opens");
        let expected: Vec<u64> = (0..40).filter(|object| *object != 3).collect();
        assert_eq!(fixture.store.objects(), expected);
        for object in expected {
            let byte = if object == 7 { 200 } else { object as u8 };
            assert!(fixture.holds(&fixture.part(object), byte));
            assert_eq!(fixture.store.object(object).expect("there").meta[..], [byte; 3]);
        }
        let pages = (PIECE as u64).next_multiple_of(4096);
        assert_eq!(fixture.store.stats().live, 39 * pages, "what was not committed takes no room");
    }
}

#[test]
fn a_log_that_is_full_is_followed_by_another_and_the_files_stay_bounded() {
    let directory = tempfile::tempdir().expect("a directory");
    let fixture = open(directory.path());
    for round in 0..200u64 {
        fixture.keep(round % 5, round as u8).expect("room");
        assert!(on_disk(directory.path()) <= options().cap);
    }
    let logs =
        |path: &Path| names(path).into_iter().filter(|file| matches!(file, StoreFile::Log(_))).collect::<Vec<_>>();
    let mut logs = logs(directory.path());
    logs.sort();
    let [StoreFile::Log(generation), StoreFile::Log(next)] = logs[..] else {
        panic!("one log, and the file of the next")
    };
    assert_eq!(next, generation + 1);
    assert!(generation > 10, "8 blocks, of which a group takes one: {generation}");
    drop(fixture);
    let fixture = open(directory.path());
    for object in 0..5 {
        assert!(fixture.holds(&fixture.part(object), 195 + object as u8));
    }
}

#[test]
fn a_piece_may_have_several_names() {
    let directory = tempfile::tempdir().expect("a directory");
    let fixture = open(directory.path());
    let alone = fixture.put(1).expect("room");
    let shared = fixture.put(2).expect("room");
    let named = |object, part| Change::Piece { object, part, piece: Arc::clone(&shared) };
    fixture.store.commit(vec![named(1, 0), named(1, 1), named(2, 0)]).wait().expect("durable");
    fixture
        .store
        .commit(vec![named(3, 0), Change::Piece { object: 3, part: 1, piece: alone }])
        .wait()
        .expect("durable");
    drop(shared);
    let pages = (PIECE as u64).next_multiple_of(4096);
    let holds = |fixture: &StoreFixture, names: &[(u64, u32)]| {
        for &(object, part) in names {
            let piece = Arc::clone(fixture.store.object(object).expect("it is there").parts.get(part).expect("a part"));
            assert!(fixture.holds(&piece, 2), "{object} {part}");
        }
        assert_eq!(fixture.store.stats().live, 2 * pages, "its bytes are there once");
    };
    let all = [(1, 0), (1, 1), (2, 0), (3, 0)];
    holds(&fixture, &all);
    drop(fixture);
    let fixture = open(directory.path());
    holds(&fixture, &all);
    // Fills a second slab; the first, which holds little, is emptied into it.
    let mut filler: Vec<_> = (0..100).map(|byte| fixture.put(byte).expect("room")).collect();
    filler.drain(..90);
    fixture.store.compact().wait().expect("tidy");
    drop(filler);
    holds(&fixture, &all);
    fixture.store.commit(vec![Change::Remove { object: 1 }]).wait().expect("durable");
    drop(fixture);
    holds(&open(directory.path()), &all[2..]);
}

#[test]
fn a_full_store_says_so_and_has_room_again_when_pieces_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let fixture = open(directory.path());
    let mut held = Vec::new();
    let full = loop {
        match fixture.put(held.len() as u8) {
            Ok(piece) => held.push(piece),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, StoreError::Full { asked: 12_288, cap, .. } if cap == options().cap), "{full}");
    assert!(held.len() > 500);
    held.truncate(100);
    fixture.put(1).expect("room again");
    for (byte, piece) in held.iter().enumerate() {
        assert!(fixture.holds(piece, byte as u8));
    }
    assert!(on_disk(directory.path()) <= options().cap);
    held.clear();
    fixture.store.compact().wait().expect("tidy");
    assert!(on_disk(directory.path()) <= 2 * options().slab_bytes, "empty slabs are removed");
}

#[test]
fn a_piece_that_the_system_does_not_move_at_once_is_refused_before_anything_is_written() {
    const MOST: usize = 0x7fff_f000;
    let directory = tempfile::tempdir().expect("a directory");
    let large = StoreOptions { cap: 8 << 30, slab_bytes: 3 << 30, log_bytes: 64 << 10 };
    let fixture = open_with(directory.path(), EngineKind::Best, large).expect("it opens");
    // Takes addresses only: the frame is not touched.
    let frame = FramePool::new(MOST + 1).expect("addresses").take(MOST + 1).expect("room");
    let put = fixture.store.put(frame, MOST + 1).wait();
    assert_eq!(put.result.map(drop), Err(StoreError::TooLarge { asked: MOST + 1, most: MOST }));
    assert!(put.frame.is_some() && fixture.store.stats().live == 0);
}

#[test]
fn a_smaller_cap_is_kept_at_the_next_start_or_refused_with_everything_still_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let fixture = open(directory.path());
    for object in 0..400 {
        fixture.keep(object, object as u8).expect("room");
    }
    // Removes seven of eight objects, spread over all slabs.
    let gone = (0..400).filter(|object| object % 8 != 0).map(|object| Change::Remove { object });
    fixture.store.commit(gone.collect()).wait().expect("durable");
    drop(fixture);
    let small = StoreOptions { cap: 2 << 20, ..options() };
    let fixture = open_with(directory.path(), EngineKind::Best, small).expect("50 pieces fit");
    assert!(on_disk(directory.path()) <= small.cap);
    for object in (0..400).step_by(8) {
        assert!(fixture.holds(&fixture.part(object), object as u8));
    }
    drop(fixture);
    let tiny = StoreOptions { cap: 448 << 10, slab_bytes: 256 << 10, log_bytes: 64 << 10 };
    let refused = open_with(directory.path(), EngineKind::Best, tiny).map(drop);
    assert!(matches!(refused, Err(StoreError::CapTooSmall { needs, cap }) if needs > cap), "{refused:?}");
    let fixture = open(directory.path());
    assert_eq!(fixture.store.objects().len(), 50);
    assert!(fixture.holds(&fixture.part(392), 392u64 as u8));
}

#[test]
fn a_directory_has_one_store_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = open(directory.path());
    let second = open_with(directory.path(), EngineKind::Best, options()).map(drop);
    assert!(matches!(second, Err(StoreError::Fault(fault)) if fault.reason == FileFaultReason::Busy));
    drop(first);
    open(directory.path());
}

#[test]
fn what_is_no_directory_is_said_to_be_none() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name| directory.path().join(name);
    let open = |path: &Path| Directory::open(path, EngineKind::Best, &Executor::new()).map(drop);
    std::fs::write(at("file"), "").expect("written");
    std::os::unix::fs::symlink(at("file"), at("link to it")).expect("a link");
    std::os::unix::fs::symlink(at("nothing"), at("link to nothing")).expect("a link");
    std::fs::create_dir(at("directory")).expect("made");
    std::os::unix::fs::symlink(at("directory"), at("link to a directory")).expect("a link");
    for name in ["file", "link to it", "link to nothing", "file/below"] {
        let fault = open(&at(name)).expect_err("it is no directory");
        assert_eq!(fault.reason, FileFaultReason::NotADirectory, "{name}: {fault}");
    }
    open(&at("link to a directory")).expect("it is one");
}

#[test]
fn files_of_others_and_of_other_versions_are_refused_and_kept() {
    let foreign = |text: &[u8]| {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(StoreFile::Log(1).to_string());
        let mut bytes = text.to_vec();
        bytes.resize(64 << 10, 7);
        std::fs::write(&path, &bytes).expect("written");
        let refused = open_with(directory.path(), EngineKind::Best, options()).map(drop);
        assert_eq!(std::fs::read(&path).expect("it is there"), bytes, "nothing was touched");
        refused
    };
    assert_eq!(foreign(b"SQLite format 3\0"), Err(StoreError::Foreign { file: StoreFile::Log(1) }));
    let file = StoreFile::Log(1);
    assert_eq!(foreign(b"terrace\x1a\x03\0\0\0"), Err(StoreError::Newer { file, version: 3 }));
    assert_eq!(foreign(b"terrace\x1a\x01\0\0\0"), Err(StoreError::Older { file, version: 1 }));
    let lost = tempfile::tempdir().expect("a directory");
    std::fs::write(lost.path().join(StoreFile::Slab(4).to_string()), [1; 8192]).expect("written");
    let refused = open_with(lost.path(), EngineKind::Best, options()).map(drop);
    assert_eq!(refused, Err(StoreError::Damaged { file: StoreFile::Superblock }));
    assert_eq!(names(lost.path()), [StoreFile::Slab(4)], "nothing was made");
}

/// A kill between the creation of a file and the allocation of its space leaves such files.
#[test]
fn files_that_were_named_but_not_made_are_passed_over() {
    let directory = tempfile::tempdir().expect("a directory");
    let fixture = open(directory.path());
    fixture.keep(1, 9).expect("room");
    drop(fixture);
    let empty = [StoreFile::Slab(2), StoreFile::Log(9)];
    empty.iter().for_each(|file| std::fs::write(directory.path().join(file.to_string()), []).expect("written"));
    let fixture = open(directory.path());
    assert!(fixture.holds(&fixture.part(1), 9));
    assert!(!names(directory.path()).contains(&empty[0]));
    for object in 2..200 {
        fixture.keep(object, object as u8).expect("more slabs and logs are made");
    }
}

/// A power cut before the size of the next log is durable leaves such a file.
#[test]
fn a_log_without_its_end_is_counted_as_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let good = options();
    let tight = StoreOptions { cap: good.least_cap(), ..good };
    let fixture = open_with(directory.path(), EngineKind::Best, tight).expect("it opens");
    fixture.keep(1, 9).expect("room");
    drop(fixture);
    let mut logs = names(directory.path()).into_iter().filter(|file| matches!(file, StoreFile::Log(_)));
    let next = logs.by_ref().max().expect("the next log was made ahead");
    let log = std::fs::File::options().write(true).open(directory.path().join(next.to_string())).expect("a log");
    log.set_len(tight.log_bytes - 4096).expect("shorter");
    let fixture = open_with(directory.path(), EngineKind::Best, tight).expect("it fits as before");
    assert!(fixture.holds(&fixture.part(1), 9));
    assert_eq!(fixture.store.stats().disk, on_disk(directory.path()));
}

#[test]
fn options_that_cannot_be_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let good = options();
    for bad in [
        StoreOptions { cap: 0, ..good },
        StoreOptions { slab_bytes: 0, ..good },
        StoreOptions { slab_bytes: 4097, ..good },
        StoreOptions { slab_bytes: 1 << 33, cap: 1 << 40, ..good },
        StoreOptions { log_bytes: 4096, ..good },
        StoreOptions { log_bytes: (1 << 63) - 4096, cap: u64::MAX, ..good },
    ] {
        let refused = open_with(directory.path(), EngineKind::Best, bad).map(drop);
        assert!(matches!(refused, Err(StoreError::BadOptions(_))), "{bad:?}");
    }
    assert_eq!(names(directory.path()), []);
}

#[test]
fn a_bit_that_flips_in_a_slab_is_told_and_in_a_log_is_mended() {
    let directory = tempfile::tempdir().expect("a directory");
    let fixture = open(directory.path());
    (0..20).for_each(|object| fixture.keep(object, 7).expect("room"));
    drop(fixture);
    for file in names(directory.path()) {
        let path = directory.path().join(file.to_string());
        let mut bytes = std::fs::read(&path).expect("read");
        match file {
            StoreFile::Superblock => bytes[..4096][100] ^= 4,
            // Every block of the first copy.
            StoreFile::Log(_) => bytes[..32 << 10].chunks_mut(4096).for_each(|block| block[100] ^= 4),
            StoreFile::Slab(_) => {
                let first = bytes.iter().position(|byte| *byte == 7).expect("a piece");
                bytes[first + 5000] ^= 1;
            }
        }
        std::fs::write(&path, bytes).expect("written");
    }
    let fixture = open(directory.path());
    assert_eq!(fixture.store.objects().len(), 20);
    let broken = (0..20).filter(|object| fixture.store.get(&fixture.part(*object)).wait().is_err()).count();
    assert_eq!(broken, 1);
}

#[test]
fn a_piece_of_another_store_is_refused() {
    let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let [ours, theirs] = directories.each_ref().map(|directory| open(directory.path()));
    ours.keep(1, 1).expect("room");
    theirs.keep(1, 2).expect("room");
    // A piece that was put, one that is durable, and one that is lost.
    let lost = StoreFile::Slab(1).to_string();
    drop(theirs);
    std::fs::write(directories[1].path().join(lost), [0; 8192]).expect("cut");
    let theirs = open(directories[1].path());
    for piece in [theirs.put(3).expect("room"), theirs.part(1)] {
        let change = Change::Piece { object: 1, part: 0, piece: Arc::clone(&piece) };
        assert_eq!(ours.store.commit(vec![change]).wait(), Err(StoreError::OtherPiece));
        assert_eq!(ours.store.get(&piece).wait().map(drop), Err(StoreError::OtherPiece));
    }
    assert!(ours.holds(&ours.part(1), 1));
    let old = ours.part(1);
    drop(ours);
    let ours = open(directories[0].path());
    assert_eq!(ours.store.get(&old).wait().map(drop), Err(StoreError::OtherPiece), "its room may be another's by now");
    assert!(ours.holds(&ours.part(1), 1));
}

#[test]
fn a_disk_is_one_stores_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let (tasks, frames) = (Executor::new(), FramePool::new(8 << 20).expect("memory"));
    let disk: Arc<dyn Disk> = Arc::new(Directory::open(directory.path(), EngineKind::Best, &tasks).expect("it opens"));
    let open = || Store::open(Arc::clone(&disk), &tasks, &frames, options()).wait();
    let first = open().expect("it opens");
    let busy =
        |refused: StoreError| matches!(refused, StoreError::Fault(fault) if fault.reason == FileFaultReason::Busy);
    assert!(open().is_err_and(busy));
    let second = first.clone();
    drop(first);
    assert!(open().is_err_and(busy));
    drop(second);
    open().expect("no store has it");
}
