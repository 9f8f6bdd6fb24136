//! Wakers that use the manager they wait for, own it, or panic.
#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tempfile::TempDir;
use terrace_file::{Directory, EngineKind, Executor, StoreOptions};
use terrace_tests::hung::bounded;
use terrace_tests::waker::{Call, waker};
use terrace_tiers::manager::BufferOptions;
use terrace_tiers::{Buffer, Manager};

const MIB: u64 = 1 << 20;

/// A manager whose tasks run when the test lets them, and a named buffer of it.
fn by_hand() -> (TempDir, Executor, Manager, Buffer) {
    let (directory, tasks) = (tempfile::tempdir().expect("a directory"), Executor::new());
    let files = Directory::open(directory.path(), EngineKind::Best, &Executor::new()).expect("it opens");
    let builder = Manager::builder().memory(8 * MIB).disk(Arc::new(files), StoreOptions::new(64 * MIB));
    let built = builder.tasks(&tasks).maintenance_interval(Duration::ZERO).build_async().expect("it begins");
    let manager = drive(&tasks, built).expect("it is built");
    let options = BufferOptions { name: Some("a".into()), ..BufferOptions::default() };
    let buffer = drive(&tasks, manager.allocate_async(4 * MIB, options)).expect("room");
    drive(&tasks, buffer.write_async(0, vec![1; 4 << 20])).expect("written");
    (directory, tasks, manager, buffer)
}

fn drive<F: Future>(tasks: &Executor, future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(ended) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return ended;
        }
        tasks.run(Duration::MAX);
        std::thread::yield_now();
    }
}

/// Waits for a lease that a copy blocks, which began beside a reader; `waker` is replaced, and woken.
fn wait_for_a_copy(by_hand: &(TempDir, Executor, Manager, Buffer), waker: impl Fn() -> Waker) {
    let (_, tasks, manager, buffer) = by_hand;
    let lease = drive(tasks, buffer.lease_best_async()).expect("memory");
    let synced = manager.sync_async(buffer);
    while manager.tiers()[1].view.used == 0 {
        assert!(tasks.run_one(0), "a copy begins");
    }
    drop(lease);
    let mut wanted = Box::pin(buffer.lease_mut_async());
    let mut dropped = Box::pin(buffer.lease_mut_async());
    for _ in 0..3 {
        assert!(wanted.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
        assert!(dropped.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
    }
    drop(dropped);
    drive(tasks, synced).expect("it is durable");
    drop(drive(tasks, wanted).expect("the copy has ended"));
    // The lease blocked a copy: a task, which holds the manager, notifies the ledger.
    tasks.run(Duration::MAX);
}

#[test]
fn wakers_of_leases_may_use_the_manager_and_the_buffer() {
    bounded(|| {
        let world = by_hand();
        let acts = Arc::new(AtomicUsize::new(0));
        let (manager, buffer, count) = (world.2.clone(), world.3.clone(), Arc::clone(&acts));
        let meddles = Arc::new(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            assert_eq!((manager.list().len(), manager.tiers().len()), (1, 2));
            manager.tick(0);
            manager.prefetch(&buffer).expect("it is there");
            drop((manager.open("a"), buffer.try_lease(), buffer.read_async(0, 1), buffer.lease_best_async()));
        });
        wait_for_a_copy(&world, || {
            let meddles = Arc::clone(&meddles);
            waker(move |act| meddles(act))
        });
        // Four were replaced, one was dropped with its future, one was woken and dropped.
        assert!(acts.load(Ordering::Relaxed) >= 7);
        world.2.check().expect("sound");
        drop(meddles);
        // The tasks that the wakers began.
        world.1.run(Duration::MAX);
    });
}

#[test]
fn a_panicking_waker_of_a_lease_strands_no_other() {
    bounded(|| {
        let world = by_hand();
        let woken = Arc::new(AtomicUsize::new(0));
        let panics = || {
            let woken = Arc::clone(&woken);
            waker(move |act| {
                if act == Call::Wake {
                    woken.fetch_add(1, Ordering::Relaxed);
                    panic!("in a waker, on purpose");
                }
            })
        };
        let (_, tasks, manager, buffer) = &world;
        let mut synced = [(); 2].map(|()| manager.sync_async(buffer));
        for sync in &mut synced {
            assert!(std::pin::Pin::new(sync).poll(&mut Context::from_waker(&panics())).is_pending());
        }
        // Earlier wakers have run then.
        drive(tasks, manager.sync_async(buffer)).expect("it is durable");
        assert_eq!(woken.load(Ordering::Relaxed), 2);
        for sync in synced {
            drive(tasks, sync).expect("it is durable");
        }
        drive(tasks, buffer.write_async(0, vec![2])).expect("no lease is held");
        wait_for_a_copy(&by_hand(), panics);
        assert_eq!(woken.load(Ordering::Relaxed), 3);
        manager.check().expect("sound");
    });
}

#[test]
fn a_waker_may_own_the_manager_and_the_buffer_that_it_waits_for() {
    for kind in [EngineKind::IoUring, EngineKind::Threads] {
        let directory = tempfile::tempdir().expect("a directory");
        let build = || Manager::builder().memory(8 * MIB).directory_of(directory.path(), 64 * MIB).engine(kind).build();
        let Some(manager) = build().map_err(|error| assert!(kind == EngineKind::IoUring, "{error}")).ok() else {
            continue;
        };
        let buffer = manager.allocate_named("a", MIB).expect("room");
        buffer.write(0, &[1; 100]).expect("written");
        let mut sync = manager.sync_async(&buffer);
        let (woken, wake) = mpsc::channel();
        let own = Mutex::new(Some((manager, buffer)));
        let waker = waker(move |call| {
            if call == Call::Clone {
                return;
            }
            drop(own.lock().expect("no panic").take());
            let _ = woken.send(());
        });
        let synced = match std::pin::Pin::new(&mut sync).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(synced) => synced,
            Poll::Pending => {
                wake.recv().expect("it is woken");
                sync.wait()
            }
        };
        drop(waker);
        synced.expect("it is durable");
        let manager = build().expect("no manager has the directory");
        assert_eq!(manager.open("a").map(|buffer| buffer.bytes()), Ok(MIB));
    }
}
