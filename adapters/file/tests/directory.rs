//! A directory belongs to one store at a time, even without its lock file, and no link in it is followed.
#![cfg(target_os = "linux")]

mod common;

use common::{StoreFixture, names, open, open_with, options};
use futures_channel::oneshot;
use futures_lite::future::block_on;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use terrace_file::{Directory, Disk, DiskRequest, EngineKind, Executor, FileFault, FileFaultReason};
use terrace_file::{StoreError, StoreFile, StoreOptions};

fn try_directory(path: &Path) -> Result<(), FileFault> {
    Directory::open(path, EngineKind::Best, &Executor::new()).map(drop)
}

fn refusal(path: &Path) -> Option<StoreError> {
    open_with(path, EngineKind::Best, options()).map(drop).err()
}

fn has_kept_one(path: &Path) {
    open(path).keep(1, 9).expect("room");
}

#[test]
fn a_lock_file_that_was_removed_lets_no_second_store_in() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = open(directory.path());
    first.keep(1, 1).expect("room");
    std::fs::remove_file(directory.path().join("terrace.lock")).expect("removed");
    let fault = try_directory(directory.path()).expect_err("it is in use");
    assert_eq!(fault.reason, FileFaultReason::Busy, "{fault}");
    (2..6).for_each(|object| first.keep(object, object as u8).expect("durable"));
    drop(first);
    let again = open(directory.path());
    assert!((1..6).all(|object| again.holds(&again.part(object), object as u8)));
}

/// Takes the superblock's or the log's name from an open store by `how`.
fn lose(superblock: bool, path: &Path, how: impl FnOnce(&Path)) {
    let fixture = open(path);
    fixture.keep(1, 1).expect("room");
    let logs = names(path).into_iter().filter(|file| matches!(file, StoreFile::Log(_)));
    let file = if superblock { StoreFile::Superblock } else { logs.min().expect("there is a log") };
    how(&path.join(file.to_string()));
    for object in 2..6 {
        assert_eq!(fixture.keep(object, 2), Err(StoreError::LogGone { file }), "nothing is made durable any more");
    }
    assert!(fixture.holds(&fixture.part(1), 1), "what was durable is read");
    assert!(fixture.holds(&fixture.put(7).expect("room"), 7), "and there is room for what is not durable");
}

#[test]
fn a_log_or_superblock_that_is_not_the_one_of_its_name_any_more_ends_durability() {
    let cut = |file: &Path, bytes| {
        std::fs::File::options().write(true).open(file).expect("it is there").set_len(bytes).expect("cut");
    };
    let ways: [&dyn Fn(&Path); 6] = [
        &|log| cut(log, 0),
        &|log| cut(log, 60 << 10),
        &|log| std::fs::remove_file(log).expect("removed"),
        &|log| std::fs::rename(log, log.with_extension("old")).expect("renamed"),
        &|log| {
            std::fs::copy(log, log.with_extension("copy")).expect("copied");
            std::fs::rename(log.with_extension("copy"), log).expect("replaced");
        },
        &|log| {
            std::fs::rename(log, log.with_extension("old")).expect("renamed");
            symlink(log.with_extension("old"), log).expect("a link");
        },
    ];
    for how in ways {
        for superblock in [false, true] {
            let directory = tempfile::tempdir().expect("a directory");
            lose(superblock, directory.path(), how);
        }
    }
}

/// The log that lost its name holds the group: once the name is restored, the group counts.
#[test]
fn what_a_log_that_is_gone_may_name_keeps_its_room() {
    for file in [StoreFile::Log(1), StoreFile::Superblock] {
        let directory = tempfile::tempdir().expect("a directory");
        let fixture = open(directory.path());
        fixture.keep(1, 1).expect("room");
        let at = directory.path().join(file.to_string());
        std::fs::rename(&at, at.with_extension("old")).expect("renamed");
        assert_eq!(fixture.keep(1, 2), Err(StoreError::LogGone { file }));
        (0..10).for_each(|_| drop(fixture.put(3).expect("room for what is not durable")));
        drop(fixture);
        std::fs::rename(at.with_extension("old"), &at).expect("restored");
        let fixture = open(directory.path());
        let kept = fixture.store.object(1).expect("it was durable").meta[0];
        assert!([1, 2].contains(&kept) && fixture.holds(&fixture.part(1), kept), "{file}");
    }
}

/// Puts something else in the place of a file.
type Way<'a> = &'a dyn Fn(&Path);

#[test]
fn links_pipes_and_directories_are_not_opened() {
    let outside = tempfile::tempdir().expect("a directory");
    let victim = outside.path().join("victim");
    for which in ["terrace.lock", "terrace.superblock", "terrace-00000001.slab", "terrace-00000001.log"] {
        let ways: [(&str, Way<'_>); 5] = [
            ("a symbolic link", &|at| symlink(&victim, at).expect("a link")),
            ("a symbolic link to nothing", &|at| symlink(outside.path().join("nothing"), at).expect("a link")),
            ("a hard link", &|at| std::fs::hard_link(&victim, at).expect("a link")),
            ("a pipe", &|at| mknodat(CWD, at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("a pipe")),
            ("a directory", &|at| std::fs::create_dir(at).expect("a directory")),
        ];
        for (what, how) in ways {
            let directory = tempfile::tempdir().expect("a directory");
            has_kept_one(directory.path());
            // As large as the file it replaces, so that the size does not decide.
            let at = directory.path().join(which);
            std::fs::write(&victim, vec![b'v'; at.metadata().expect("it is there").len() as usize]).expect("written");
            std::fs::remove_file(&at).expect("removed");
            how(&at);
            let before = names(directory.path());
            match refusal(directory.path()) {
                Some(StoreError::Fault(fault)) => {
                    assert_eq!(fault.reason, FileFaultReason::Untrusted, "{what}, {which}: {fault}")
                }
                other => panic!("{what}, {which}: {other:?}"),
            }
            assert_eq!(names(directory.path()), before, "{what}, {which}: nothing was made or removed");
            assert!(at.symlink_metadata().is_ok(), "{what}, {which}: it is still there");
            let bytes = std::fs::read(&victim).expect("it is there");
            assert!(bytes.iter().all(|&byte| byte == b'v'), "{what}, {which}: the victim was written");
            assert!(!outside.path().join("nothing").exists(), "{what}, {which}: a file was made outside");
        }
    }
}

#[test]
fn nothing_is_made_durable_in_a_file_that_has_got_another_link() {
    let directory = tempfile::tempdir().expect("a directory");
    let fixture = open(directory.path());
    fixture.keep(1, 1).expect("room");
    let at = directory.path().join(StoreFile::Superblock.to_string());
    std::fs::hard_link(&at, directory.path().join("other")).expect("a link");
    let (log, another) = (directory.path().join(StoreFile::Log(1).to_string()), directory.path().join("another"));
    std::fs::hard_link(&log, &another).expect("a link");
    let refused = fixture.keep(2, 2);
    assert!(
        matches!(&refused, Err(StoreError::Fault(fault)) if fault.reason == FileFaultReason::Untrusted),
        "{refused:?}"
    );
    let linked = std::fs::read(&log).expect("it is there");
    std::fs::remove_file(directory.path().join("other")).expect("removed");
    fixture.keep(3, 3).expect("the next log has one link");
    assert!(!log.exists() && std::fs::read(&another).expect("it is there") == linked, "what has another name is kept");
    drop(fixture);
    let again = open(directory.path());
    assert!(again.holds(&again.part(3), 3));
}

/// As a child holds descriptors between its fork and its program: a disk that is full would stay so.
#[test]
fn a_removed_file_frees_its_space_while_another_process_has_it_open() {
    let directory = tempfile::tempdir().expect("a directory");
    has_kept_one(directory.path());
    let logs = names(directory.path()).into_iter().filter(|file| matches!(file, StoreFile::Log(_)));
    let held: Vec<_> = logs
        .map(|file| std::fs::File::open(directory.path().join(file.to_string())).expect("it is there"))
        .map(|file| (file.metadata().expect("told").blocks(), file))
        .collect();
    assert!(held.len() == 2 && held.iter().all(|(blocks, _)| *blocks > 0), "one in use, one for the next: {held:?}");
    let _again = open(directory.path());
    for (_, file) in held {
        let told = file.metadata().expect("told");
        assert_eq!((told.nlink(), told.blocks()), (0, 0));
    }
}

#[test]
fn a_slab_that_is_a_link_is_neither_read_nor_written() {
    let (directory, outside) = [(); 2].map(|()| tempfile::tempdir().expect("a directory")).into();
    has_kept_one(directory.path());
    // The slab is opened at its first read.
    let fixture: StoreFixture = open(directory.path());
    let slab = directory.path().join(StoreFile::Slab(1).to_string());
    let moved = outside.path().join("slab");
    std::fs::copy(&slab, &moved).expect("copied");
    std::fs::remove_file(&slab).expect("removed");
    std::fs::hard_link(&moved, &slab).expect("a link");
    let before = std::fs::read(&moved).expect("it is there");
    let refused = fixture.store.get(&fixture.part(1)).wait().map(drop);
    assert!(
        matches!(&refused, Err(StoreError::Fault(fault)) if fault.reason == FileFaultReason::Untrusted),
        "{refused:?}"
    );
    let put = fixture.put(3);
    assert!(put.is_err() || fixture.holds(&put.expect("elsewhere"), 3));
    assert!(std::fs::read(&moved).expect("it is there") == before, "another file was written");
}

#[test]
fn a_piece_in_a_slab_that_is_gone_says_so() {
    for left in [None, Some(0), Some(100)] {
        let directory = tempfile::tempdir().expect("a directory");
        has_kept_one(directory.path());
        let slab = directory.path().join(StoreFile::Slab(1).to_string());
        match left {
            None => std::fs::remove_file(&slab).expect("removed"),
            Some(bytes) => std::fs::write(&slab, vec![9; bytes]).expect("cut"),
        }
        for _ in 0..2 {
            let fixture = open(directory.path());
            let refused = fixture.store.get(&fixture.part(1)).wait().map(drop);
            let gone = matches!(&refused, Err(StoreError::Fault(fault)) if fault.reason == FileFaultReason::Gone);
            assert!(gone, "{left:?}: {refused:?}");
            assert_eq!(slab.exists(), left.is_some(), "{left:?}: what is left of it is not removed");
            fixture.keep(2, 2).expect("there is room elsewhere");
        }
    }
}

#[test]
fn directories_are_made_with_those_that_they_are_in() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a/b/c");
    has_kept_one(&path);
    let again = open(&path);
    assert!(again.holds(&again.part(1), 9));
}

/// The files of a directory that this process has descriptors of, one entry for each descriptor.
fn opened(path: &Path) -> Vec<PathBuf> {
    let links = std::fs::read_dir("/proc/self/fd").expect("Linux says").filter_map(|entry| entry.ok());
    links.filter_map(|entry| std::fs::read_link(entry.path()).ok()).filter(|link| link.starts_with(path)).collect()
}

/// Number of this process's descriptors on files of a directory.
fn open_files(path: &Path) -> usize {
    opened(path).len()
}

#[test]
fn descriptors_are_few_however_many_slabs_there_are() {
    const SLABS: u8 = 200;
    let directory = tempfile::tempdir().expect("a directory");
    // Two pieces do not fit into a slab.
    let options = StoreOptions { cap: 16 << 20, slab_bytes: 16 << 10, log_bytes: 64 << 10 };
    let fixture = open_with(directory.path(), EngineKind::Best, options).expect("it opens");
    let pieces: Vec<_> = (0..SLABS).map(|fill| fixture.put(fill).expect("room")).collect();
    let slabs = || names(directory.path()).into_iter().filter(|file| matches!(file, StoreFile::Slab(_)));
    assert!(slabs().count() >= usize::from(SLABS), "{}", slabs().count());
    // The lock, the directory itself, and the files.
    let most = 128 + 2;
    assert!(open_files(directory.path()) <= most, "{}", open_files(directory.path()));
    for (piece, fill) in pieces.iter().zip(0..SLABS) {
        assert!(fixture.holds(piece, fill), "{fill}");
    }
    assert!(open_files(directory.path()) <= most, "{}", open_files(directory.path()));

    // The first slab was closed. One that takes its name is not read.
    let first = directory.path().join(slabs().min().expect("there are slabs").to_string());
    let copy = directory.path().join("copy");
    std::fs::copy(&first, &copy).expect("copied");
    std::fs::rename(&copy, &first).expect("renamed");
    let refused = fixture.store.get(&pieces[0]).wait().map(drop);
    assert!(matches!(&refused, Err(StoreError::Fault(fault)) if fault.reason == FileFaultReason::Gone), "{refused:?}");
    assert!(fixture.holds(&pieces[1], 1));
}

#[test]
fn the_files_that_were_opened_first_are_closed_first() {
    const MORE: u32 = 8;
    let here = tempfile::tempdir().expect("a directory");
    let directory = Directory::open(here.path(), EngineKind::Best, &Executor::new()).expect("it opens");
    for slab in 0..128 + MORE {
        let (sender, response) = oneshot::channel();
        directory.submit(DiskRequest::Create { file: StoreFile::Slab(slab), bytes: 4096 }, sender);
        assert!(block_on(response).is_ok_and(|response| response.result == Ok(0)), "{slab}");
    }
    let open = opened(here.path());
    let is_open = |slab: u32| open.contains(&here.path().join(StoreFile::Slab(slab).to_string()));
    let slabs: Vec<u32> = (0..128 + MORE).filter(|slab| is_open(*slab)).collect();
    assert_eq!(slabs, Vec::from_iter(MORE..128 + MORE));
}
