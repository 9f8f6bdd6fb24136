//! A forked child has its parent's manager, but none of its threads: dropping it does nothing, and calls return errors.
#![cfg(target_os = "linux")]

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tempfile::TempDir;
use terrace_file::{Directory, EngineKind, Executor, JoinHandle, StoreOptions};
use terrace_tests::hung::in_child;
use terrace_tiers::manager::BufferOptions;
use terrace_tiers::{Buffer, Error, Manager};

const MIB: u64 = 1 << 20;

fn build(directory: &TempDir, kind: EngineKind) -> Option<Manager> {
    let builder = Manager::builder().memory(8 * MIB).directory_of(directory.path(), 128 * MIB).engine(kind);
    builder.build().map_err(|error| assert!(kind == EngineKind::IoUring, "{error}")).ok()
}

/// A manager with a durable buffer, where this user may have the engine.
fn world(kind: EngineKind) -> Option<(TempDir, Manager, Buffer)> {
    let directory = tempfile::tempdir().expect("a directory");
    let manager = build(&directory, kind)?;
    let buffer = manager.allocate_named("a", MIB).expect("room");
    buffer.write(0, &[1; 100]).expect("written");
    manager.sync(&buffer).expect("durable");
    Some((directory, manager, buffer))
}

const ENGINES: [EngineKind; 2] = [EngineKind::IoUring, EngineKind::Threads];

/// Copies to files and from there, which go on as long as no result is taken.
fn copies(manager: &Manager) -> (Vec<Buffer>, Vec<JoinHandle<Result<(), Error>>>) {
    let all: Vec<_> = (0..12).map(|_| manager.allocate(2 * MIB).expect("room")).collect();
    let joins =
        all.iter().flat_map(|buffer| [buffer.write_async(0, vec![1; 1 << 20]), manager.promote_async(buffer, 0)]);
    let joins = joins.collect();
    (all, joins)
}

#[test]
fn a_forked_child_drops_a_manager_and_nothing_happens() {
    for kind in ENGINES {
        for state in ["idle", "copies", "a sync"] {
            let Some((directory, manager, buffer)) = world(kind) else { continue };
            let (others, mut joins) = if state == "copies" { copies(&manager) } else { Default::default() };
            if state == "a sync" {
                buffer.write(0, &[1; 100]).expect("written");
                let mut sync = manager.sync_async(&buffer);
                // Its waker stays with it.
                if Pin::new(&mut sync).poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                    joins.push(sync);
                }
            }
            let (joins, others, buffer, manager) = in_child((joins, others, buffer, manager), drop);
            for join in joins {
                let ended = join.wait();
                assert!(state == "copies" || ended.is_ok(), "the parent goes on: {ended:?}");
            }
            manager.check().expect("sound");
            drop((others, buffer, manager));
            let manager = build(&directory, kind).expect("no manager has the directory");
            assert_eq!(manager.open("a").expect("durable").lease_best().expect("read")[..100], [1; 100]);
        }
    }
}

#[test]
fn a_forked_child_reads_and_drops_leases_and_futures() {
    for kind in ENGINES {
        let Some((_directory, manager, buffer)) = world(kind) else { continue };
        let other = manager.allocate(MIB).expect("room");
        let (shared, exclusive) = (buffer.lease_best().expect("memory"), other.lease_mut().expect("memory"));
        // Requests a move of a leased buffer: releasing the lease would notify it.
        let wants = manager.demote_async(&buffer, 1);
        let third = manager.allocate(MIB).expect("room");
        // Until a request waits for its copy, which may end at once.
        let future = loop {
            manager.demote(&third, 1).expect("no lease is held");
            let mut future = Box::pin(third.lease_best_async());
            if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
                break future;
            }
        };
        let (shared, exclusive, _) = in_child((shared, exclusive, future), |(shared, exclusive, future)| {
            assert_eq!((shared[0], exclusive[0]), (1, 0), "what the parent had then");
            assert!(matches!(futures_lite::future::block_on(future), Err(Error::Forked)));
            drop((shared, exclusive));
        });
        drop((shared, exclusive));
        assert!(matches!(wants.wait(), Ok(()) | Err(Error::Leased)));
        buffer.write(0, &[2]).expect("the parent goes on");
        manager.sync(&buffer).expect("the parent goes on");
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs tasks until a future has ended.
fn drive<F: Future>(tasks: &Executor, future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(ended) = poll(future.as_mut()) {
            return ended;
        }
        tasks.run(Duration::MAX);
        std::thread::yield_now();
    }
}

/// Of leases that evict each other's buffers one is taken at a time: the child has a future that waits for the
/// parent's.
#[test]
fn a_lease_that_waits_for_its_turn_ends_in_a_forked_child() {
    let (directory, tasks) = (tempfile::tempdir().expect("a directory"), Executor::new());
    let files = Directory::open(directory.path(), EngineKind::Threads, &Executor::new()).expect("it opens");
    let builder = Manager::builder().memory(MIB).pinned_cap(4 * MIB).disk(Arc::new(files), StoreOptions::new(64 * MIB));
    let built = builder.tasks(&tasks).maintenance_interval(Duration::ZERO).build_async().expect("it begins");
    let manager = drive(&tasks, built).expect("it is built");
    let allocate = || drive(&tasks, manager.allocate_async(MIB, BufferOptions::default())).expect("room");
    let buffers = [(); 3].map(|()| allocate());
    let mut leases = [0, 1].map(|at| Box::pin(buffers[at].lease_best_async()));
    for (at, lease) in leases.iter_mut().enumerate() {
        assert!(poll(lease.as_mut()).is_pending());
        let is_up = || if manager.list()[at].tier == 0 { Poll::Ready(()) } else { Poll::Pending };
        drive(&tasks, std::future::poll_fn(|_| is_up()));
        drop(drive(&tasks, buffers[2].lease_best_async()).expect("it is evicted, and was not polled"));
    }
    // The first holds the gate while it promotes its buffer, the second waits for it.
    leases.iter_mut().for_each(|lease| assert!(poll(lease.as_mut()).is_pending()));
    let leases = in_child(leases, |[_, second]| {
        assert!(matches!(futures_lite::future::block_on(second), Err(Error::Forked)));
    });
    leases.into_iter().for_each(|lease| drop(drive(&tasks, lease).expect("the parent goes on")));
}

#[test]
fn every_call_on_a_manager_says_that_this_is_a_forked_child() {
    for kind in ENGINES {
        let Some((_directory, manager, buffer)) = world(kind) else { continue };
        let pending = manager.sync_async(&buffer);
        let (_, _, pending) = in_child((manager, buffer, pending), |(manager, buffer, pending)| {
            let forked = Err(Error::Forked);
            assert_eq!(pending.wait(), forked, "begun by the parent");
            assert_eq!(manager.allocate_with(1, BufferOptions::default()).map(drop), forked);
            assert_eq!(manager.allocate_named("b", 1).map(drop), forked);
            assert_eq!(manager.open("a").map(drop), forked);
            assert_eq!(manager.remove("a"), forked);
            assert_eq!(manager.sync(&buffer), forked);
            assert_eq!(manager.promote(&buffer, 0), forked);
            assert_eq!(manager.demote(&buffer, 1), forked);
            assert_eq!(manager.prefetch(&buffer), forked);
            assert_eq!(manager.resize(0, MIB), forked);
            assert_eq!(buffer.read(0, &mut [0]), forked);
            assert_eq!(buffer.write(0, &[0]), forked);
            assert_eq!(buffer.read_async(0, 1).wait().map(drop), forked);
            assert_eq!(buffer.write_async(0, vec![0]).wait(), forked);
            assert_eq!(buffer.try_lease().map(drop), forked);
            assert_eq!(buffer.lease_best().map(drop), forked);
            assert_eq!(buffer.lease_mut().map(drop), forked);
            assert!(buffer.lease_device().is_err() && manager.check().is_err());
            assert_eq!((manager.list().len(), manager.tiers().len(), manager.move_stats()), (0, 0, Default::default()));
            manager.tick(1);
            // A manager of its own works.
            let (_directory, own, buffer) = world(kind).expect("as in the parent");
            assert_eq!(own.sync(&buffer), Ok(()));
        });
        pending.wait().expect("the parent goes on");
    }
}

/// When the process forks, its threads hold brief leases, leases or the manager's lock, and the disk performs their writes.
#[test]
fn a_fork_amid_writes_and_leases_of_other_threads_stops_neither_process() {
    for kind in ENGINES {
        let Some((directory, manager, buffer)) = world(kind) else { continue };
        let others: Vec<_> = (0..4).map(|_| manager.allocate(3 * MIB).expect("room")).collect();
        let (third, ends) = (manager.allocate(MIB).expect("room"), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for (seed, other) in (1..).zip(&others) {
                let (manager, buffer, ends) = (&manager, &buffer, &ends);
                scope.spawn(move || {
                    let bytes = vec![seed; 3 << 20];
                    while !ends.load(Ordering::Relaxed) {
                        other.write(0, &bytes).expect("nobody else has it");
                        let written = other.write_async(1 << 20, vec![seed; 100]);
                        buffer.write(u64::from(seed) * 1000, &[seed; 1000]).expect("calls alone have it");
                        written.wait().expect("nobody else has it");
                        assert!(matches!(other.lease_best().map(|lease| lease[7]), Ok(byte) if byte == seed));
                        manager.demote(other, 1).expect("no lease is held");
                        let mut read = [0; 1000];
                        buffer.read(u64::from(seed) * 1000, &mut read).expect("calls alone have it");
                        assert_eq!(read, [seed; 1000]);
                    }
                });
            }
            for _ in 0..25 {
                manager.demote(&third, 1).expect("no lease is held");
                let mut lease = Box::pin(third.lease_mut_async());
                // It may be there at once: then nothing waits for it.
                let lease = poll(lease.as_mut()).is_pending().then_some(lease);
                let handles = (manager.clone(), buffer.clone(), others.clone(), manager.sync_async(&buffer));
                let (_, _, _, synced) = in_child(handles, |(manager, buffer, others, synced)| {
                    assert_eq!(buffer.write(0, &[9]), Err(Error::Forked));
                    assert_eq!(others[3].read(0, &mut [0]), Err(Error::Forked));
                    assert_eq!(others[2].lease_mut().map(drop), Err(Error::Forked));
                    assert!(manager.check().is_err() && manager.list().is_empty());
                    assert!(matches!(synced.wait(), Ok(()) | Err(Error::Forked)));
                    drop((others, buffer, manager));
                });
                lease.into_iter().for_each(|lease| {
                    drop(futures_lite::future::block_on(lease).expect("the parent goes on"));
                });
                synced.wait().expect("the parent goes on");
            }
            ends.store(true, Ordering::Relaxed);
        });
        manager.sync(&buffer).expect("the parent goes on");
        manager.check().expect("sound");
        drop((others, third, buffer, manager));
        let manager = build(&directory, kind).expect("no manager has the directory");
        let durable = manager.open("a").expect("durable");
        assert_eq!(durable.lease_best().expect("read")[..100], [1; 100]);
        (1..5u8).for_each(|seed| assert_eq!(durable.lease_best().expect("read")[usize::from(seed) * 1000], seed));
    }
}
