//! The store on real files, through both engines.
#![cfg(target_os = "linux")]

mod ground;

use ground::{Ground, PIECE, names, on_disk, open, open_with, options};
use std::path::Path;
use std::sync::Arc;
use terrace_file::{Change, Directory, Disk, EngineKind, File, Frames, Reason, Store, StoreError, StoreOptions, Tasks};

#[test]
fn what_was_committed_is_there_after_a_restart_and_nothing_else() {
    for kind in [EngineKind::Best, EngineKind::Threads] {
        let directory = tempfile::tempdir().expect("a directory");
        let ground = open_with(directory.path(), kind, options()).expect("it opens");
        for object in 0..40 {
            ground.keep(object, object as u8).expect("room");
        }
        ground.keep(7, 200).expect("room");
        let volatile = ground.put(99).expect("room");
        assert!(ground.holds(&volatile, 99));
        ground.store.commit(vec![Change::Remove { object: 3 }]).wait().expect("durable");
        ground.store.check().expect("sound");
        drop(ground);
        let ground = open_with(directory.path(), kind, options()).expect("it opens");
        let expected: Vec<u64> = (0..40).filter(|object| *object != 3).collect();
        assert_eq!(ground.store.objects(), expected);
        for object in expected {
            let byte = if object == 7 { 200 } else { object as u8 };
            assert!(ground.holds(&ground.part(object), byte));
            assert_eq!(ground.store.object(object).expect("there").meta[..], [byte; 3]);
        }
        let pages = (PIECE as u64).next_multiple_of(4096);
        assert_eq!(ground.store.stats().live, 39 * pages, "what was not committed takes no room");
    }
}

#[test]
fn a_log_that_is_full_is_followed_by_another_and_the_files_stay_bounded() {
    let directory = tempfile::tempdir().expect("a directory");
    let ground = open(directory.path());
    for round in 0..200u64 {
        ground.keep(round % 5, round as u8).expect("room");
        assert!(on_disk(directory.path()) <= options().cap);
    }
    let logs = |path: &Path| names(path).into_iter().filter(|file| matches!(file, File::Log(_))).collect::<Vec<_>>();
    let mut logs = logs(directory.path());
    logs.sort();
    let [File::Log(generation), File::Log(next)] = logs[..] else { panic!("one log, and the file of the next") };
    assert_eq!(next, generation + 1);
    assert!(generation > 10, "8 blocks, of which a group takes one: {generation}");
    drop(ground);
    let ground = open(directory.path());
    for object in 0..5 {
        assert!(ground.holds(&ground.part(object), 195 + object as u8));
    }
}

#[test]
fn a_piece_may_have_several_names() {
    let directory = tempfile::tempdir().expect("a directory");
    let ground = open(directory.path());
    let alone = ground.put(1).expect("room");
    let shared = ground.put(2).expect("room");
    let named = |object, part| Change::Piece { object, part, piece: Arc::clone(&shared) };
    ground.store.commit(vec![named(1, 0), named(1, 1), named(2, 0)]).wait().expect("durable");
    ground.store.commit(vec![named(3, 0), Change::Piece { object: 3, part: 1, piece: alone }]).wait().expect("durable");
    drop(shared);
    let pages = (PIECE as u64).next_multiple_of(4096);
    let holds = |ground: &Ground, names: &[(u64, u32)]| {
        for &(object, part) in names {
            let piece = Arc::clone(&ground.store.object(object).expect("it is there").parts[&part]);
            assert!(ground.holds(&piece, 2), "{object} {part}");
        }
        assert_eq!(ground.store.stats().live, 2 * pages, "its bytes are there once");
    };
    let all = [(1, 0), (1, 1), (2, 0), (3, 0)];
    holds(&ground, &all);
    drop(ground);
    let ground = open(directory.path());
    holds(&ground, &all);
    // A second slab, and the first has little: what is in it is moved.
    let mut filler: Vec<_> = (0..100).map(|byte| ground.put(byte).expect("room")).collect();
    filler.drain(..90);
    ground.store.tidy().wait().expect("tidy");
    drop(filler);
    holds(&ground, &all);
    ground.store.commit(vec![Change::Remove { object: 1 }]).wait().expect("durable");
    drop(ground);
    holds(&open(directory.path()), &all[2..]);
}

#[test]
fn a_full_store_says_so_and_has_room_again_when_pieces_go() {
    let directory = tempfile::tempdir().expect("a directory");
    let ground = open(directory.path());
    let mut held = Vec::new();
    let full = loop {
        match ground.put(held.len() as u8) {
            Ok(piece) => held.push(piece),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, StoreError::Full { asked: 12_288, cap, .. } if cap == options().cap), "{full}");
    assert!(held.len() > 500);
    held.truncate(100);
    ground.put(1).expect("room again");
    for (byte, piece) in held.iter().enumerate() {
        assert!(ground.holds(piece, byte as u8));
    }
    assert!(on_disk(directory.path()) <= options().cap);
    held.clear();
    ground.store.tidy().wait().expect("tidy");
    assert!(on_disk(directory.path()) <= 2 * options().slab_bytes, "empty slabs are removed");
}

#[test]
fn a_piece_that_the_system_does_not_move_at_once_is_refused_before_anything_is_written() {
    const MOST: usize = 0x7fff_f000;
    let directory = tempfile::tempdir().expect("a directory");
    let large = StoreOptions { cap: 8 << 30, slab_bytes: 3 << 30, log_bytes: 64 << 10 };
    let ground = open_with(directory.path(), EngineKind::Best, large).expect("it opens");
    // Addresses only: nothing of it is touched.
    let frame = Frames::new(MOST + 1).expect("addresses").take(MOST + 1).expect("room");
    let put = ground.store.put(frame, MOST + 1).wait();
    assert_eq!(put.result.map(drop), Err(StoreError::TooLarge { asked: MOST + 1, most: MOST }));
    assert!(put.frame.is_some() && ground.store.stats().live == 0);
}

#[test]
fn a_smaller_cap_is_kept_at_the_next_start_or_refused_with_everything_still_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let ground = open(directory.path());
    for object in 0..400 {
        ground.keep(object, object as u8).expect("room");
    }
    // Most of it goes, spread over all slabs.
    let gone = (0..400).filter(|object| object % 8 != 0).map(|object| Change::Remove { object });
    ground.store.commit(gone.collect()).wait().expect("durable");
    drop(ground);
    let small = StoreOptions { cap: 2 << 20, ..options() };
    let ground = open_with(directory.path(), EngineKind::Best, small).expect("50 pieces fit");
    assert!(on_disk(directory.path()) <= small.cap);
    for object in (0..400).step_by(8) {
        assert!(ground.holds(&ground.part(object), object as u8));
    }
    drop(ground);
    let tiny = StoreOptions { cap: 448 << 10, slab_bytes: 256 << 10, log_bytes: 64 << 10 };
    let refused = open_with(directory.path(), EngineKind::Best, tiny).map(drop);
    assert!(matches!(refused, Err(StoreError::CapTooSmall { needs, cap }) if needs > cap), "{refused:?}");
    let ground = open(directory.path());
    assert_eq!(ground.store.objects().len(), 50);
    assert!(ground.holds(&ground.part(392), 392u64 as u8));
}

#[test]
fn a_directory_has_one_store_at_a_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = open(directory.path());
    let second = open_with(directory.path(), EngineKind::Best, options()).map(drop);
    assert!(matches!(second, Err(StoreError::Fault(fault)) if fault.reason == Reason::Busy));
    drop(first);
    open(directory.path());
}

#[test]
fn what_is_no_directory_is_said_to_be_none() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name| directory.path().join(name);
    let open = |path: &Path| Directory::open(path, EngineKind::Best, &Tasks::new()).map(drop);
    std::fs::write(at("file"), "").expect("written");
    std::os::unix::fs::symlink(at("file"), at("link to it")).expect("a link");
    std::os::unix::fs::symlink(at("nothing"), at("link to nothing")).expect("a link");
    std::fs::create_dir(at("directory")).expect("made");
    std::os::unix::fs::symlink(at("directory"), at("link to a directory")).expect("a link");
    for name in ["file", "link to it", "link to nothing", "file/below"] {
        let fault = open(&at(name)).expect_err("it is no directory");
        assert_eq!(fault.reason, Reason::NoDirectory, "{name}: {fault}");
    }
    open(&at("link to a directory")).expect("it is one");
}

#[test]
fn files_of_others_and_of_other_versions_are_refused_and_kept() {
    let foreign = |text: &[u8]| {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(File::Log(1).to_string());
        let mut bytes = text.to_vec();
        bytes.resize(64 << 10, 7);
        std::fs::write(&path, &bytes).expect("written");
        let refused = open_with(directory.path(), EngineKind::Best, options()).map(drop);
        assert_eq!(std::fs::read(&path).expect("it is there"), bytes, "nothing was touched");
        refused
    };
    assert_eq!(foreign(b"SQLite format 3\0"), Err(StoreError::Foreign { file: File::Log(1) }));
    let file = File::Log(1);
    assert_eq!(foreign(b"terrace\x1a\x03\0\0\0"), Err(StoreError::Newer { file, version: 3 }));
    assert_eq!(foreign(b"terrace\x1a\x01\0\0\0"), Err(StoreError::Older { file, version: 1 }));
    let lost = tempfile::tempdir().expect("a directory");
    std::fs::write(lost.path().join(File::Slab(4).to_string()), [1; 8192]).expect("written");
    let refused = open_with(lost.path(), EngineKind::Best, options()).map(drop);
    assert_eq!(refused, Err(StoreError::Damaged { file: File::Superblock }));
    assert_eq!(names(lost.path()), [File::Slab(4)], "nothing was made");
}

/// As a kill leaves them, between the name and the room.
#[test]
fn files_that_were_named_but_not_made_are_passed_over() {
    let directory = tempfile::tempdir().expect("a directory");
    let ground = open(directory.path());
    ground.keep(1, 9).expect("room");
    drop(ground);
    let empty = [File::Slab(2), File::Log(9)];
    empty.iter().for_each(|file| std::fs::write(directory.path().join(file.to_string()), []).expect("written"));
    let ground = open(directory.path());
    assert!(ground.holds(&ground.part(1), 9));
    assert!(!names(directory.path()).contains(&empty[0]));
    for object in 2..200 {
        ground.keep(object, object as u8).expect("more slabs and logs are made");
    }
}

/// As a power cut leaves it, before the size of the next log is durable.
#[test]
fn a_log_without_its_end_is_counted_as_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let good = options();
    let tight = StoreOptions { cap: good.least_cap(), ..good };
    let ground = open_with(directory.path(), EngineKind::Best, tight).expect("it opens");
    ground.keep(1, 9).expect("room");
    drop(ground);
    let mut logs = names(directory.path()).into_iter().filter(|file| matches!(file, File::Log(_)));
    let next = logs.by_ref().max().expect("the next log was made ahead");
    let log = std::fs::File::options().write(true).open(directory.path().join(next.to_string())).expect("a log");
    log.set_len(tight.log_bytes - 4096).expect("shorter");
    let ground = open_with(directory.path(), EngineKind::Best, tight).expect("it fits as before");
    assert!(ground.holds(&ground.part(1), 9));
    assert_eq!(ground.store.stats().disk, on_disk(directory.path()));
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
    let ground = open(directory.path());
    (0..20).for_each(|object| ground.keep(object, 7).expect("room"));
    drop(ground);
    for file in names(directory.path()) {
        let path = directory.path().join(file.to_string());
        let mut bytes = std::fs::read(&path).expect("read");
        match file {
            File::Superblock => bytes[..4096][100] ^= 4,
            // The first copy, every block of it.
            File::Log(_) => bytes[..32 << 10].chunks_mut(4096).for_each(|block| block[100] ^= 4),
            File::Slab(_) => {
                let first = bytes.iter().position(|byte| *byte == 7).expect("a piece");
                bytes[first + 5000] ^= 1;
            }
        }
        std::fs::write(&path, bytes).expect("written");
    }
    let ground = open(directory.path());
    assert_eq!(ground.store.objects().len(), 20);
    let broken = (0..20).filter(|object| ground.store.get(&ground.part(*object)).wait().is_err()).count();
    assert_eq!(broken, 1);
}

#[test]
fn a_piece_of_another_store_is_refused() {
    let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let [ours, theirs] = directories.each_ref().map(|directory| open(directory.path()));
    ours.keep(1, 1).expect("room");
    theirs.keep(1, 2).expect("room");
    // One that only lies there, one that is durable, and one that is lost.
    let lost = File::Slab(1).to_string();
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
    let (tasks, frames) = (Tasks::new(), Frames::new(8 << 20).expect("memory"));
    let disk: Arc<dyn Disk> = Arc::new(Directory::open(directory.path(), EngineKind::Best, &tasks).expect("it opens"));
    let open = || Store::open(Arc::clone(&disk), &tasks, &frames, options()).wait();
    let first = open().expect("it opens");
    let busy = |refused: StoreError| matches!(refused, StoreError::Fault(fault) if fault.reason == Reason::Busy);
    assert!(open().is_err_and(busy));
    let second = first.clone();
    drop(first);
    assert!(open().is_err_and(busy));
    drop(second);
    open().expect("nobody has it");
}
