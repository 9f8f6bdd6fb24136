//! Who waits for whom in a manager, and who does not wait any more.
#![cfg(target_os = "linux")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use terrace_file::{Directory, EngineKind, Join, StoreOptions, Tasks};
use terrace_tiers::{Error, Manager, Options};

const MIB: u64 = 1 << 20;

#[test]
fn who_asks_no_more_is_in_nobodys_way() {
    let (directory, tasks) = (tempfile::tempdir().expect("a directory"), Tasks::new());
    let files = Directory::open(directory.path(), EngineKind::Best, &Tasks::new()).expect("it opens");
    let builder = Manager::builder().memory(MIB).disk(Arc::new(files), StoreOptions::new(64 * MIB));
    let build = builder.tasks(&tasks).upkeep(Duration::ZERO).build_async().expect("it begins");
    let manager = drive(&tasks, build).expect("it is built");
    let ask = |bytes, wait| manager.allocate_async(bytes, Options { wait, ..Options::default() });
    let held = drive(&tasks, ask(manager.tiers()[1].view.capacity - MIB, false)).expect("room");
    // One that waits; and one that would have room, but came later.
    let waiting = ask(2 * MIB, true);
    assert!(tasks.run(Duration::MAX));
    let later = ask(1000, true);
    assert!(tasks.run(Duration::MAX) && manager.list().len() == 1);
    drop(waiting);
    assert!(tasks.run(Duration::MAX) && manager.list().len() == 2);
    let later = drive(&tasks, later).expect("it is its turn");
    drop(held);
    assert!(tasks.run(Duration::MAX));
    assert_eq!(manager.list().len(), 1, "nothing came for who asks no more");
    // Dropped at each step: asked, granted, made, there.
    for steps in 0..6 {
        let asked = ask(4096, false);
        (0..steps).for_each(|_| _ = tasks.run_one(0));
        drop(asked);
        assert!(tasks.run(Duration::MAX));
        assert_eq!(manager.list().len(), 1, "after {steps} steps");
        manager.check().expect("sound");
    }
    drop(later);
    assert_eq!(manager.list(), []);
}

/// Runs tasks until one has ended.
fn drive<T>(tasks: &Tasks, mut join: Join<T>) -> T {
    loop {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(ended) = Pin::new(&mut join).poll(&mut context) {
            return ended;
        }
        tasks.run(Duration::MAX);
        std::thread::yield_now();
    }
}

#[test]
fn leases_take_their_turn_with_calls() {
    let manager = Manager::builder().memory(4 * MIB).build().expect("it is built");
    let buffer = manager.allocate(MIB).expect("room");
    let writing = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seed in 0..200 {
                // While a lease is held, it is refused.
                while let Err(error) = buffer.write(0, &[seed; MIB as usize]) {
                    assert_eq!(error, Error::Leased);
                }
            }
            writing.store(false, Ordering::Relaxed);
        });
        while writing.load(Ordering::Relaxed) {
            drop(buffer.lease_best().expect("nobody has it for long"));
            drop(buffer.lease_mut().expect("nobody has it for long"));
        }
    });
}

#[test]
fn a_copy_that_began_beside_a_reader_is_waited_for_when_the_reader_is_gone() {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = Manager::builder().memory(64 << 20).directory_of(directory.path(), 256 << 20).build().expect("built");
    for name in ["write", "lease", "remove"] {
        let buffer = manager.allocate_named(name, 16 << 20).expect("room");
        buffer.write(0, &[1]).expect("written");
        let files = || manager.tiers()[1].view.used;
        let (lease, before) = (buffer.lease_best().expect("memory"), files());
        let synced = manager.sync_async(&buffer);
        while files() == before {
            std::thread::yield_now();
        }
        drop(lease);
        match name {
            "write" => buffer.write(0, &[2]).expect("the copy ends"),
            "lease" => buffer.lease_mut().expect("the copy ends")[0] = 2,
            _ => manager.remove(name).expect("the copy ends"),
        }
        assert!(matches!(synced.wait(), Ok(()) | Err(Error::Freed)));
    }
}
