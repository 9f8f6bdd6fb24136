//! Mapped files among other buffers.
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use terrace_tiers::manager::MappedFile;
use terrace_tiers::{Buffer, Error, Manager};

const MIB: usize = 1 << 20;

fn manager(path: &Path) -> Manager {
    Manager::builder()
        .memory(MIB as u64)
        .directory_of(path, 16 << 20)
        .pinned_cap(MIB as u64)
        .build()
        .expect("it is built")
}

fn file(directory: &Path, bytes: usize) -> PathBuf {
    let path = directory.join("weights");
    std::fs::write(&path, (0..bytes).map(|at| (at % 251) as u8).collect::<Vec<_>>()).expect("written");
    path
}

fn map(manager: &Manager, path: &Path) -> Buffer {
    // SAFETY: the file lies in a directory of the test's own, which no longer writes to it.
    manager.map_file(unsafe { MappedFile::open_unchecked(path) }.expect("it maps"))
}

/// Whether the process has the file mapped.
fn is_mapped(path: &Path) -> bool {
    std::fs::read_to_string("/proc/self/maps").expect("maps").contains(path.to_str().expect("a name"))
}

#[test]
fn a_mapped_file_is_read_where_it_is_beyond_every_budget_until_it_is_dropped() {
    let directory = tempfile::tempdir().expect("a directory");
    // Four times the memory, and the cap of leases.
    let path = file(directory.path(), 4 * MIB + 5);
    let manager = manager(directory.path());
    let full = manager.allocate(MIB as u64).expect("room");
    let weights = map(&manager, &path);
    let other = full.lease_best().expect("all that may be leased");
    let (lease, again) = (weights.lease_best().expect("a lease"), weights.lease_best().expect("another"));
    assert_eq!((lease.len(), lease.as_ptr()), (4 * MIB + 5, again.as_ptr()));
    assert!(lease.iter().enumerate().all(|(at, byte)| *byte == (at % 251) as u8));
    assert_eq!(manager.tiers()[0].view.used, MIB as u64, "the other buffer's");
    let listed = |manager: &Manager| manager.list().into_iter().find(|listed| listed.file.is_some());
    let of_file = listed(&manager).expect("it is listed");
    assert_eq!((of_file.file.as_deref(), of_file.bytes, of_file.leased), (path.to_str(), 4 * MIB as u64 + 5, true));
    assert_eq!(usize::from(of_file.tier), manager.tiers().len());
    drop((lease, again, other));
    assert!(!listed(&manager).expect("it is listed").leased);
    let mut bytes = [0; 3];
    weights.read(251, &mut bytes).expect("read");
    assert_eq!(bytes, [0, 1, 2]);
    assert_eq!(weights.read_async(4 * MIB as u64, 5).wait().expect("read").len(), 5);
    assert!(matches!(weights.read(4 * MIB as u64, &mut [0; 6]), Err(Error::OutOfBounds { .. })));
    manager.check().expect("sound");
    let clone = weights.clone();
    drop(weights);
    assert!(is_mapped(&path), "a handle is left");
    drop(clone);
    assert!(!is_mapped(&path));
    assert_eq!(listed(&manager), None);
}

#[test]
fn what_would_write_move_or_keep_it_is_refused_and_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = file(directory.path(), MIB);
    let manager = manager(directory.path());
    let weights = map(&manager, &path);
    assert_eq!(weights.write(0, &[9]), Err(Error::Mapped));
    assert_eq!(weights.write_async(0, vec![9]).wait(), Err(Error::Mapped));
    assert_eq!(weights.lease_mut().map(drop), Err(Error::Mapped));
    assert_eq!(manager.promote(&weights, 0), Err(Error::Mapped));
    assert_eq!(manager.demote(&weights, 1), Err(Error::Mapped));
    assert_eq!(manager.sync(&weights), Err(Error::Mapped));
    assert_eq!((manager.prefetch(&weights), manager.prefetch_async(&weights).wait()), (Ok(()), Ok(())));
    assert_eq!(weights.lease_best().expect("a lease")[..3], [0, 1, 2]);
    assert_eq!(std::fs::read(&path).expect("read")[..3], [0, 1, 2]);
}

#[test]
fn a_file_without_bytes_is_a_buffer_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = manager(directory.path());
    let empty = map(&manager, &file(directory.path(), 0));
    assert_eq!(empty.lease_best().expect("a lease").len(), 0);
    assert_eq!(empty.read(0, &mut []), Ok(()));
    assert_eq!(manager.prefetch(&empty), Ok(()));
}
