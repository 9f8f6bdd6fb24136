//! Which calls of a manager wait for which, and which wait no more.
#![cfg(target_os = "linux")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use terrace_device::Device;
use terrace_file::{Directory, Disk, EngineKind, Executor, JoinHandle, StoreOptions};
use terrace_tiers::ledger::PlacementHint;
use terrace_tiers::manager::ManagerBuilder;
use terrace_tiers::{Buffer, BufferOptions, Error, Manager};

const MIB: u64 = 1 << 20;

/// A manager whose tasks run when the test lets them, above 64 MiB of files.
pub fn by_hand(builder: ManagerBuilder) -> (TempDir, Executor, Manager) {
    let directory = tempfile::tempdir().expect("a directory");
    let files = Directory::open(directory.path(), EngineKind::Best, &Executor::new()).expect("it opens");
    let (tasks, manager) = by_hand_on(Arc::new(files), builder);
    (directory, tasks, manager)
}

/// The same on a disk.
pub fn by_hand_on(disk: Arc<dyn Disk>, builder: ManagerBuilder) -> (Executor, Manager) {
    let tasks = Executor::new();
    let builder = builder.disk(disk, StoreOptions::new(64 * MIB)).tasks(&tasks).maintenance_interval(Duration::ZERO);
    let manager = drive(&tasks, builder.build_async().expect("it begins")).expect("it is built");
    (tasks, manager)
}

#[test]
fn a_cancelled_request_blocks_no_other() {
    let (_directory, tasks, manager) = by_hand(Manager::builder().memory(MIB));
    let ask = |bytes, wait| manager.allocate_async(bytes, BufferOptions { wait, ..BufferOptions::default() });
    let held = drive(&tasks, ask(manager.tiers()[1].view.capacity - MIB, false)).expect("room");
    // A request that waits; and a later one for which there would be room.
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
    // Dropped at each step: requested, granted, allocated, delivered.
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

/// Runs tasks until a future has ended.
pub fn drive<F: Future>(tasks: &Executor, future: F) -> F::Output {
    drive_by(future, || _ = tasks.run(Duration::MAX))
}

/// Polls a future until it has ended; `work` is done in between.
fn drive_by<F: Future>(future: F, work: impl Fn()) -> F::Output {
    let (mut future, begun) = (std::pin::pin!(future), Instant::now());
    loop {
        let mut context = Context::from_waker(Waker::noop());
        if let Poll::Ready(ended) = future.as_mut().poll(&mut context) {
            return ended;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not end");
        work();
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
            drop(buffer.lease_best().expect("no call holds it for long"));
            drop(buffer.lease_mut().expect("no call holds it for long"));
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
        let synced = synced.wait();
        // The lease may have been held when the sync looked again.
        let leased = name == "lease" && synced == Err(Error::Leased);
        assert!(matches!(synced, Ok(()) | Err(Error::Freed)) || leased, "{name}: {synced:?}");
    }
}

#[test]
fn a_buffer_that_is_freed_before_its_copy_begins_is_no_fault_of_the_tier() {
    let (_directory, tasks, manager) = by_hand(Manager::builder().memory(MIB));
    let evicted = drive(&tasks, manager.allocate_async(MIB, BufferOptions::default())).expect("room");
    let asked = begin_to_evict(&tasks, &manager);
    drop(evicted);
    let _got = drive(&tasks, asked).expect("room");
    assert!(manager.tiers()[1].view.suspended_until.is_none(), "nothing is wrong with it");
    assert_eq!(manager.list().len(), 1);
}

/// Requests a MiB; the buffers in memory are about to be copied.
fn begin_to_evict(tasks: &Executor, manager: &Manager) -> JoinHandle<Result<Buffer, Error>> {
    let asked = manager.allocate_async(MIB, BufferOptions::default());
    while manager.tiers()[1].view.used == 0 {
        assert!(tasks.run_one(0), "room is made");
    }
    asked
}

#[test]
fn the_name_of_what_was_removed_while_it_was_copied_is_free() {
    let (_directory, tasks, manager) = by_hand(Manager::builder().memory(32 * MIB));
    let named = || BufferOptions { name: Some("a".into()), ..BufferOptions::default() };
    let evicted = drive(&tasks, manager.allocate_async(32 * MIB, named())).expect("room");
    drive(&tasks, evicted.write_async(0, vec![1; 32 << 20])).expect("written");
    let asked = begin_to_evict(&tasks, &manager);
    // It takes longer than the commit does.
    drive_by(manager.remove_async("a"), || _ = tasks.run_one(0)).expect("no lease is held");
    assert!(manager.open("a").is_err(), "the name is free");
    drop((evicted, asked));
    tasks.run(Duration::MAX);
}

#[test]
fn a_buffer_that_is_written_in_files_or_being_made_is_removed_afterwards() {
    let (_directory, tasks, manager) = by_hand(Manager::builder().memory(MIB));
    let named = || BufferOptions { name: Some("a".into()), ..BufferOptions::default() };
    for steps in 0..8 {
        // Too large for memory.
        let buffer = drive(&tasks, manager.allocate_async(2 * MIB, named())).expect("room in files");
        let written = buffer.write_async(0, vec![1; MIB as usize]);
        (0..steps).for_each(|_| _ = tasks.run_one(0));
        assert_eq!(drive(&tasks, manager.remove_async("a")), Ok(()), "after {steps} steps");
        assert!(matches!(drive(&tasks, written), Ok(()) | Err(Error::Freed)));
        let asked = manager.allocate_async(MIB, named());
        (0..steps).for_each(|_| _ = tasks.run_one(0));
        let there = manager.open("a").is_ok();
        let removed = drive(&tasks, manager.remove_async("a"));
        assert!(matches!(removed, Ok(()) | Err(Error::NoSuchName(_))) && removed.is_ok() == there, "{removed:?}");
        drop(drive(&tasks, asked));
        let _ = drive(&tasks, manager.remove_async("a"));
        assert_eq!(manager.list(), []);
    }
}

/// 2 MiB of a device above 8 MiB of memory.
fn with_a_device() -> (TempDir, Executor, Manager) {
    by_hand(Manager::builder().device_of(&Device::host(), 2 * MIB).memory(8 * MIB))
}

#[test]
fn an_unnamed_buffer_that_is_dropped_while_it_is_copied_beside_a_reader_is_freed() {
    let (_directory, tasks, manager) = with_a_device();
    let buffer = drive(&tasks, manager.allocate_async(MIB, BufferOptions::default())).expect("room");
    let lease = drive(&tasks, buffer.lease_device_async()).expect("it is there");
    let mut wanted = Box::pin(buffer.lease_best_async());
    assert!(wanted.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    while manager.tiers()[1].view.used == 0 {
        assert!(tasks.run_one(0), "it is copied to memory");
    }
    drop(wanted);
    drop(lease);
    drop(buffer);
    let is_empty = || manager.tiers().iter().all(|tier| tier.view.used == 0);
    drive(&tasks, std::future::poll_fn(|_| if is_empty() { Poll::Ready(()) } else { Poll::Pending }));
}

#[test]
fn a_lessee_does_not_wait_for_a_move_request_that_waits_for_its_lease() {
    let mut refused = 0;
    for (steps, sync) in (0..12).flat_map(|steps| [(steps, false), (steps, true)]) {
        let (_directory, tasks, manager) = with_a_device();
        let hint =
            |tier| BufferOptions { hint: PlacementHint { tier: Some(tier), keep: false }, ..BufferOptions::default() };
        let full: Vec<_> =
            (0..2).map(|_| drive(&tasks, manager.allocate_async(MIB, hint(0))).expect("room on the device")).collect();
        let options = BufferOptions { name: Some("a".into()), ..hint(1) };
        let buffer = drive(&tasks, manager.allocate_async(MIB, options)).expect("room in memory");
        // A buffer that was never written has no bytes in memory to lease yet.
        drive(&tasks, buffer.write_async(0, vec![7])).expect("room");
        let another = manager.promote_async(&buffer, 0);
        (0..steps).for_each(|_| _ = tasks.run_one(0));
        let lease = buffer.try_lease().expect("no other lease is held");
        if sync {
            let synced = manager.sync_async(&buffer);
            tasks.run(Duration::MAX);
            // A buffer that met a lease is deferred until then.
            manager.tick(1);
            assert_eq!(drive(&tasks, synced), Ok(()), "whoever reads, after {steps} steps");
        } else {
            let own = drive(&tasks, manager.promote_async(&buffer, 0));
            refused += u32::from(lease.is_some() && own == Err(Error::Leased));
        }
        // Neither does a request that came before the lease was taken.
        assert!(matches!(drive(&tasks, another), Ok(()) | Err(Error::Leased)), "after {steps} steps");
        drop(lease);
        drop((buffer, full));
        // The remaining tasks hold the manager, which its last handle waits for; some of them wait for the disk.
        std::thread::scope(|scope| {
            let ended = scope.spawn(move || drop(manager));
            drive_by(
                std::future::poll_fn(|_| if ended.is_finished() { Poll::Ready(()) } else { Poll::Pending }),
                || {
                    tasks.run(Duration::MAX);
                },
            );
        });
    }
    assert!(refused > 0);
}

#[test]
fn a_lease_that_is_not_polled_blocks_no_other() {
    let (_directory, tasks, manager) = by_hand(Manager::builder().memory(MIB).pinned_cap(4 * MIB));
    let buffer = || drive(&tasks, manager.allocate_async(MIB, BufferOptions::default())).expect("room");
    let buffers: Vec<_> = (0..4).map(|_| buffer()).collect();
    let mut kept: Vec<_> = buffers[..3].iter().map(|buffer| Box::pin(buffer.lease_best_async())).collect();
    let mut in_vain = |at: usize| {
        assert!(kept[at].as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let is_up = || manager.list()[at].tier == 0;
        drive(&tasks, std::future::poll_fn(|_| if is_up() { Poll::Ready(()) } else { Poll::Pending }));
        assert!(tasks.run(Duration::MAX));
        drop(drive(&tasks, buffers[3].lease_best_async()).expect("it is evicted, and was not polled"));
    };
    // It holds the gate from its second poll on.
    in_vain(0);
    in_vain(0);
    // It takes over the gate: the holder was not polled when it could go on.
    in_vain(1);
    in_vain(1);
    in_vain(2);
    while let Some(last) = kept.pop() {
        drop(drive(&tasks, last).expect("futures that are not polled block no other"));
    }
    manager.check().expect("sound");
}

#[test]
fn a_buffer_of_another_manager_is_refused_and_nothing_is_touched() {
    let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let build = |at: usize| {
        let builder = Manager::builder().memory(4 * MIB).directory_of(directories[at].path(), 64 * MIB);
        builder.build().expect("it is built")
    };
    let keep = |manager: &Manager, name: &str, byte| {
        let buffer = manager.allocate_named(name, MIB).expect("room");
        buffer.write(0, &[byte; 100]).expect("written");
        manager.sync(&buffer).expect("durable");
        buffer
    };
    let (one, two) = (build(0), build(1));
    let mine: Vec<_> = ["a", "b"].into_iter().map(|name| keep(&one, name, 1)).collect();
    let other = keep(&two, "c", 2);
    other.write(0, &[3; 100]).expect("written");
    two.demote(&other, 1).expect("moved");
    let unsaved = two.allocate_named("d", MIB).expect("room");
    for buffer in [&other, &unsaved] {
        let refused = Err(Error::OtherManager);
        assert_eq!(one.sync(buffer), refused);
        assert_eq!(one.promote(buffer, 0), refused);
        assert_eq!(one.demote(buffer, 1), refused);
        assert_eq!(one.prefetch(buffer), refused);
    }
    assert_eq!(one.tiers()[0].view.used, 2 * MIB, "what has the same number did not move");
    drop((mine, one));
    let one = build(0);
    for name in ["a", "b"] {
        assert_eq!(one.open(name).expect("durable").lease_best().expect("read")[..100], [1; 100]);
    }
    two.sync(&other).expect("durable");
    assert_eq!(other.lease_best().expect("read")[..100], [3; 100]);
}

#[test]
fn the_last_manager_may_go_in_a_callback_of_maintenance() {
    let directory = tempfile::tempdir().expect("a directory");
    let last = Arc::new(Mutex::new(None::<Manager>));
    let (told, tell) = mpsc::channel();
    let slot = Arc::clone(&last);
    let builder = Manager::builder().memory(8 * MIB).directory_of(directory.path(), 64 * MIB);
    let builder = builder.maintenance_interval(Duration::from_millis(20)).on_pressure(move |_, _| {
        if std::thread::current().name() == Some("terrace-upkeep") {
            let last = slot.lock().expect("no panic").take();
            let begun = Instant::now();
            drop(last);
            let _ = told.send(begun.elapsed());
        }
    });
    let manager = builder.build().expect("it is built");
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    for name in names {
        let buffer = manager.allocate_named(name, MIB).expect("room");
        buffer.write(0, &[1; 4096]).expect("written");
        manager.sync(&buffer).expect("durable");
    }
    *last.lock().expect("no panic") = Some(manager);
    // Maintenance makes room ahead of need, which lowers the pressure; reading raises it again.
    while let Some(manager) = &*last.lock().expect("no panic") {
        let read = |name| assert_eq!(manager.open(name).expect("durable").lease_best().expect("read")[0], 1);
        names.into_iter().for_each(read);
    }
    let took = tell.recv().expect("pressure is told of");
    assert!(took < Duration::from_secs(10), "it waits for itself");
}

#[test]
fn a_directory_that_is_named_twice_is_a_bad_setting() {
    let directory = tempfile::tempdir().expect("a directory");
    let (path, link) = (directory.path().join("a"), directory.path().join("b"));
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    for again in [path.clone(), link, directory.path().join("./a/../a")] {
        let builder = Manager::builder().memory(4 * MIB).directory_of(&path, 64 * MIB).directory_of(again, 64 * MIB);
        assert!(matches!(builder.build().map(drop), Err(Error::BadSetting(_))));
    }
}
