//! Copies that panic, copies without staging memory, and copies that wait to begin.

use super::super::{Buffer, BufferOptions, Manager};
use super::*;
use std::cell::Cell;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use terrace_file::{Directory, EngineKind, Executor, StoreOptions};

thread_local! {
    /// Whether copies of this thread's tasks panic.
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

pub(super) fn panic_if_told() {
    assert!(!PANICS.get(), "in a copy, on purpose");
}

/// Runs tasks until a future has ended.
fn drive<F: Future>(tasks: &Executor, future: F) -> F::Output {
    let (mut future, begun) = (std::pin::pin!(future), Instant::now());
    while begun.elapsed() < Duration::from_secs(20) {
        if let Poll::Ready(ended) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return ended;
        }
        tasks.run(Duration::MAX);
        std::thread::yield_now();
    }
    panic!("it does not end");
}

#[test]
fn a_copy_of_whole_pages_needs_no_staging_memory() {
    let directory = tempfile::tempdir().expect("a directory");
    let builder = Manager::builder().memory(8 << 20).directory_of(directory.path(), 64 << 20);
    let manager = builder.maintenance_interval(Duration::ZERO).build().expect("it is built");
    let bytes: Vec<u8> = (0..3 << 20).map(|at| (at >> 12) as u8).collect();
    let buffer = manager.allocate(3 << 20).expect("room");
    buffer.write(0, &bytes).expect("written");
    let all: Vec<Frame> = std::iter::from_fn(|| manager.shared.frames.take(4096).ok()).collect();
    assert!(all.len() > 1000);
    manager.demote(&buffer, 1).expect("moved");
    assert!(buffer.lease_best().expect("brought up")[..] == bytes);
    drop(all);
    manager.check().expect("sound");
}

#[test]
fn a_copy_that_panics_is_a_failed_copy() {
    let (directory, tasks) = (tempfile::tempdir().expect("a directory"), Executor::new());
    let files = Directory::open(directory.path(), EngineKind::Best, &Executor::new()).expect("it opens");
    let builder = Manager::builder().memory(4 << 20).disk(Arc::new(files), StoreOptions::new(64 << 20));
    let built = builder.tasks(&tasks).maintenance_interval(Duration::ZERO).build_async().expect("it begins");
    let manager = drive(&tasks, built).expect("it is built");
    let named = |name: &str| BufferOptions { name: Some(name.into()), ..BufferOptions::default() };
    let buffer = drive(&tasks, manager.allocate_async(1 << 20, named("a"))).expect("room");
    drive(&tasks, buffer.write_async(0, vec![7; 1 << 20])).expect("written");
    PANICS.set(true);
    assert_eq!(drive(&tasks, manager.sync_async(&buffer)), Err(Error::Panicked));
    PANICS.set(false);
    manager.check().expect("sound");
    // The tier that failed is suspended until this tick.
    manager.tick(1_000_000);
    drop(drive(&tasks, manager.allocate_async(1 << 20, named("b"))).expect("room"));
    drive(&tasks, manager.sync_async(&buffer)).expect("durable");
    drive(&tasks, manager.demote_async(&buffer, 1)).expect("moved");
    PANICS.set(true);
    assert_eq!(drive(&tasks, buffer.lease_best_async()).map(drop), Err(Error::Panicked));
    PANICS.set(false);
    manager.tick(2_000_000);
    assert!(drive(&tasks, buffer.lease_best_async()).expect("brought up").iter().all(|byte| *byte == 7));
    manager.check().expect("sound");
}

/// A manager whose tasks are run by hand; and buffers of 4 KiB, more than may be copied to files at once, all of which are
/// leaving memory. The last ones wait for their copies to begin.
fn leaving(directory: &std::path::Path) -> (Executor, Manager, Vec<Buffer>) {
    let tasks = Executor::new();
    let files = Directory::open(directory, EngineKind::Best, &Executor::new()).expect("it opens");
    let builder = Manager::builder().memory(4 << 20).disk(Arc::new(files), StoreOptions::new(64 << 20));
    let built = builder.tasks(&tasks).maintenance_interval(Duration::ZERO).build_async().expect("it begins");
    let manager = drive(&tasks, built).expect("it is built");
    let options = |at: usize| BufferOptions { name: Some(at.to_string()), ..BufferOptions::default() };
    let buffers: Vec<Buffer> = (0..FILE_COPIES + 64)
        .map(|at| {
            let buffer = drive(&tasks, manager.allocate_async(4096, options(at))).expect("room");
            drive(&tasks, buffer.write_async(0, vec![at as u8; 4096])).expect("written");
            buffer
        })
        .collect();
    manager.resize(0, 4096).expect("a tier");
    (tasks, manager, buffers)
}

#[test]
fn what_waits_for_its_copy_is_leased_and_not_freed_meanwhile() {
    let directory = tempfile::tempdir().expect("a directory");
    let (tasks, manager, buffers) = leaving(directory.path());
    let (at, last) = (buffers.len() - 2, &buffers[buffers.len() - 2]);
    let lease = last.try_lease().expect("no other lease is held").expect("its copy has not begun");
    let removed = drive(&tasks, manager.remove_async(&at.to_string()));
    assert_eq!(removed, Err(Error::Leased));
    tasks.run(Duration::MAX);
    assert!(lease.iter().all(|byte| *byte == at as u8));
    drop(lease);
    assert_eq!(drive(&tasks, manager.remove_async(&at.to_string())), Ok(()));
    assert_eq!(last.try_lease().map(drop), Err(Error::Freed));
    manager.check().expect("sound");
}

#[test]
fn what_waits_for_its_copy_is_written_afterwards() {
    let directory = tempfile::tempdir().expect("a directory");
    let (tasks, manager, buffers) = leaving(directory.path());
    let last = &buffers[buffers.len() - 2];
    let written = last.write_async(0, vec![9; 4096]);
    assert_eq!(drive(&tasks, written), Ok(()));
    assert_eq!(drive(&tasks, last.read_async(0, 4096)), Ok(vec![9; 4096]));
    manager.check().expect("sound");
}

#[test]
fn a_write_in_files_that_panics_leaves_the_buffer_usable() {
    let (directory, tasks) = (tempfile::tempdir().expect("a directory"), Executor::new());
    let files = Directory::open(directory.path(), EngineKind::Best, &Executor::new()).expect("it opens");
    let builder = Manager::builder().memory(1 << 20).disk(Arc::new(files), StoreOptions::new(64 << 20));
    let built = builder.tasks(&tasks).maintenance_interval(Duration::ZERO).build_async().expect("it begins");
    let manager = drive(&tasks, built).expect("it is built");
    let hint = crate::ledger::PlacementHint { tier: Some(1), keep: false };
    let options = BufferOptions { hint, ..BufferOptions::default() };
    let buffer = drive(&tasks, manager.allocate_async(1 << 20, options)).expect("room");
    PANICS.set(true);
    assert_eq!(drive(&tasks, buffer.write_async(0, vec![7; 100])), Err(Error::Panicked));
    PANICS.set(false);
    assert_eq!(drive(&tasks, buffer.write_async(0, vec![8; 100])), Ok(()));
    assert_eq!(drive(&tasks, buffer.read_async(0, 100)), Ok(vec![8; 100]));
    manager.check().expect("sound");
}

#[test]
fn only_chunks_above_the_small_ones_take_a_turn() {
    let manager = Manager::builder().memory(4 << 20).build().expect("it is built");
    let takes = |bytes| drive(&Executor::new(), manager.shared.turn(bytes)).is_some();
    assert_eq!([1, SMALL_CHUNK, SMALL_CHUNK + 1].map(takes), [false, false, true]);
}
