//! Files as read-only memory.
#![cfg(target_os = "linux")]

use rustix::fs::{MemfdFlags, SealFlags};
use std::fs::File;
use std::io::{IoSliceMut, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use terrace_file::{AccessPattern, FileFault, FileFaultReason, MappedFile};

const PAGE: usize = 4096;

fn write(directory: &tempfile::TempDir, bytes: &[u8]) -> PathBuf {
    let path = directory.path().join("file");
    std::fs::write(&path, bytes).expect("written");
    path
}

fn open(path: &Path) -> Result<MappedFile, FileFault> {
    // SAFETY: the file lies in a directory of the test's own, which no longer writes to it.
    unsafe { MappedFile::open_unchecked(path) }
}

fn counted(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

#[test]
fn all_bytes_are_there_at_a_pages_address_whatever_becomes_of_the_name() {
    let directory = tempfile::tempdir().expect("a directory");
    for bytes in [0, 1, PAGE - 1, PAGE, PAGE + 1, 100 * PAGE + 77] {
        let path = write(&directory, &counted(bytes));
        let mapped = open(&path).expect("it maps");
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(mapped[..], counted(bytes));
        assert!(bytes == 0 || (mapped.as_ptr() as usize).is_multiple_of(PAGE));
        assert_eq!(mapped.name(), path.display().to_string());
    }
}

/// More than the machine's memory: mapping reads and reserves nothing.
#[test]
fn a_huge_file_maps_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = write(&directory, b"");
    let bytes = 4 << 40;
    if let Err(error) = File::options().write(true).open(&path).expect("open").set_len(bytes) {
        println!("SKIP a_huge_file_maps_at_once: the file system takes no file of 4 TiB: {error}");
        return;
    }
    let mapped = open(&path).expect("it maps");
    assert_eq!(mapped.len() as u64, bytes);
    assert_eq!((mapped[0], mapped[mapped.len() - 1]), (0, 0));
}

#[test]
fn what_is_no_plain_file_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("missing");
    let pipe = directory.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).expect("a pipe");
    for (path, call, reason) in [
        (missing.as_path(), "open", FileFaultReason::Gone),
        (directory.path(), "mmap", FileFaultReason::Unsupported),
        (&pipe, "mmap", FileFaultReason::Unsupported),
        (Path::new("/dev/null"), "mmap", FileFaultReason::Unsupported),
    ] {
        let refused = open(path).expect_err("it is no plain file");
        assert_eq!((refused.call, refused.reason), (call, reason), "{refused}");
        assert!(refused.to_string().contains(&path.display().to_string()), "{refused}");
    }
}

#[test]
fn without_a_promise_only_what_cannot_change_is_mapped() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = write(&directory, &counted(PAGE));
    let refused = MappedFile::open(&path).expect_err("any process may write to it");
    assert_eq!(refused.reason, FileFaultReason::Denied, "{refused}");
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut memory = File::from(rustix::fs::memfd_create(c"weights", flags).expect("a memfd"));
    memory.write_all(&counted(3 * PAGE)).expect("written");
    let path = PathBuf::from(format!("/proc/self/fd/{}", memory.as_raw_fd()));
    rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK).expect("sealed");
    assert_eq!(MappedFile::open(&path).expect_err("it may be written to").reason, FileFaultReason::Denied);
    rustix::fs::fcntl_add_seals(&memory, SealFlags::WRITE).expect("sealed");
    assert_eq!(MappedFile::open(&path).expect("it maps")[..], counted(3 * PAGE));
}

#[test]
fn advice_changes_no_byte_and_is_for_ranges_inside() {
    let directory = tempfile::tempdir().expect("a directory");
    let mapped = open(&write(&directory, &counted(10 * PAGE + 5))).expect("it maps");
    for usage in [AccessPattern::Normal, AccessPattern::Sequential, AccessPattern::Random, AccessPattern::WillNeed] {
        for range in [0..0, 0..mapped.len(), 17..5000, mapped.len()..mapped.len()] {
            mapped.advise(range.clone(), usage).unwrap_or_else(|error| panic!("{usage:?} of {range:?}: {error}"));
        }
        #[expect(clippy::reversed_empty_ranges)]
        for range in [0..mapped.len() + 1, 9..8, usize::MAX..usize::MAX] {
            let refused = mapped.advise(range.clone(), usage).expect_err("not inside");
            assert_eq!((refused.reason, refused.offset), (FileFaultReason::UnexpectedEnd, range.start as u64));
        }
    }
    assert_eq!(mapped[..], counted(10 * PAGE + 5));
}

/// The kernel's flags of a mapping: two letters for each advice that holds.
fn flags(mapped: &MappedFile) -> String {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux says");
    let start = format!("{:x}-", mapped.as_ptr().addr());
    let from = maps.lines().skip_while(|line| !line.starts_with(&start));
    from.filter_map(|line| line.strip_prefix("VmFlags:")).next().expect("flags").into()
}

#[test]
fn advice_reaches_the_system() {
    let directory = tempfile::tempdir().expect("a directory");
    let mapped = open(&write(&directory, &counted(16 * PAGE))).expect("it maps");
    let advised = |usage| {
        mapped.advise(0..16 * PAGE, usage).expect("inside");
        let flags = flags(&mapped);
        ["sr", "rr"].map(|advice| flags.split_whitespace().any(|flag| flag == advice))
    };
    assert_eq!(advised(AccessPattern::Sequential), [true, false]);
    assert_eq!(advised(AccessPattern::Random), [false, true]);
    assert_eq!(advised(AccessPattern::Normal), [false, false]);
}

/// KiB of a mapping that are resident in this process.
fn resident(mapped: &MappedFile) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let start = format!("{:x}-", mapped.as_ptr() as usize);
    let mut lines = maps.lines().skip_while(|line| !line.starts_with(&start));
    let line = lines.find_map(|line| line.strip_prefix("Rss:")).expect("the mapping is listed");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn a_stream_has_every_byte_and_keeps_few() {
    let directory = tempfile::tempdir().expect("a directory");
    let (bytes, step) = (32 << 20, 1 << 20);
    let path = write(&directory, &counted(bytes));
    let mapped = open(&path).expect("it maps");
    assert_eq!(mapped[..], counted(bytes));
    assert!(resident(&mapped) >= bytes as u64 / 1024, "all of it was used");
    let (mut at, mut most) = (0, 0);
    for part in mapped.stream(step) {
        assert!(part.iter().zip(at..).all(|(byte, at)| *byte == (at % 251) as u8), "from {at} on");
        at += part.len();
        if at > bytes / 2 {
            most = most.max(resident(&mapped));
        }
    }
    assert_eq!(at, bytes);
    assert!(resident(&mapped) <= 3 * step as u64 / 1024, "{} KiB are left", resident(&mapped));
    let ahead = (bytes / 2 + 3 * step) as u64 / 1024;
    assert!(most <= ahead, "{most} KiB after the half, most of which lies ahead");
    for few in [0, 1, PAGE + 1] {
        std::fs::remove_file(&path).expect("removed");
        let mapped = open(&write(&directory, &counted(few))).expect("it maps");
        assert_eq!((mapped.stream(0).count(), mapped.stream(PAGE).count()), (few, few.div_ceil(PAGE)));
    }
}

/// Whether the page cache holds the start of a file, if the file system can tell: a read that may not wait finds only cached
/// bytes.
fn is_cached(file: &File) -> Result<bool, rustix::io::Errno> {
    let mut page = [0; PAGE];
    match rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut page)], 0, rustix::io::ReadWriteFlags::NOWAIT) {
        Ok(read) => Ok(read > 0),
        Err(rustix::io::Errno::AGAIN) => Ok(false),
        Err(error) => Err(error),
    }
}

#[test]
fn a_stream_leaves_nothing_in_the_page_cache() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = write(&directory, &counted(4 << 20));
    let file = File::open(&path).expect("open");
    file.sync_all().expect("on the disk: what is not stays in the cache");
    match is_cached(&file) {
        Ok(true) => {}
        other => {
            println!("SKIP a_stream_leaves_nothing_in_the_page_cache: the file system does not tell: {other:?}");
            return;
        }
    }
    let mapped = open(&path).expect("it maps");
    assert_eq!(mapped.stream(1 << 20).map(<[u8]>::len).sum::<usize>(), 4 << 20);
    assert_eq!(is_cached(&file), Ok(false));
    assert_eq!(mapped[..PAGE], counted(PAGE), "and what is used is read again");
}
