//! Futures that are dropped after each of their steps leave no claim, lease or request behind.
#![cfg(target_os = "linux")]

use crate::turns::{by_hand, drive};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use terrace_device::Device;
use terrace_file::Executor;
use terrace_tiers::{Buffer, BufferOptions, Error, Manager};

const KIB: u64 = 1 << 10;
/// Two chunks.
const BYTES: usize = 96 << 10;

type Call<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

/// Begins a call of this name.
fn begin<'a>(what: &str, manager: &Manager, buffer: &'a Buffer) -> Call<'a> {
    let files = manager.tiers().len() as u8 - 1;
    match what {
        "read" => {
            let read = buffer.read_async(1000, BYTES - 1000);
            Box::pin(async { read.await.is_ok() })
        }
        "write" => {
            let written = buffer.write_async(1000, vec![2; BYTES - 1000]);
            Box::pin(async { written.await.is_ok() })
        }
        "lease" => Box::pin(async { buffer.lease_best_async().await.is_ok() }),
        "lease to write" => Box::pin(async { buffer.lease_mut_async().await.is_ok() }),
        "lease on the device" => Box::pin(async { buffer.lease_device_async().await.is_ok() }),
        "lease to write on the device" => Box::pin(async { buffer.lease_device_mut_async().await.is_ok() }),
        _ => {
            let moved = match what {
                "promote" => manager.promote_async(buffer, 0),
                "demote" => manager.demote_async(buffer, files),
                "prefetch" => manager.prefetch_async(buffer),
                "sync" => manager.sync_async(buffer),
                "remove" => manager.remove_async("a"),
                other => panic!("no call: {other}"),
            };
            Box::pin(async { moved.await.is_ok() })
        }
    }
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Runs one task, as soon as there is one; false if the call has ended.
fn step(tasks: &Executor, call: &mut Call<'_>) -> bool {
    let begun = Instant::now();
    loop {
        let ran = tasks.run_one(0);
        if let Poll::Ready(well) = poll(call.as_mut()) {
            assert!(well, "nothing stands in the way");
            return false;
        }
        if ran {
            return true;
        }
        // A disk or a device works.
        assert!(begun.elapsed() < Duration::from_secs(20), "it does not end");
        std::thread::yield_now();
    }
}

/// Where the buffer is when the call begins.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// In memory, or on the device; written there.
    Up,
    /// There, but never written.
    Blank,
    /// In files; others are in memory, and must make room.
    Files,
    /// In memory, beside a sync that has begun during a lease.
    Copied,
}

/// Drops the call after some steps; returns whether it had ended before.
fn drops(tasks: &Executor, manager: &Manager, (what, start): (&str, Start), steps: usize) -> bool {
    let durable = matches!(what, "sync" | "remove") || matches!(start, Start::Copied);
    let named = BufferOptions { name: durable.then(|| "a".into()), ..BufferOptions::default() };
    let buffer = drive(tasks, manager.allocate_async(BYTES as u64, named)).expect("room");
    if !matches!(start, Start::Blank) {
        drive(tasks, buffer.write_async(0, vec![1; BYTES])).expect("room");
    }
    let old = u8::from(!matches!(start, Start::Blank));
    let files = manager.tiers().len() as u8 - 1;
    let mut other = None;
    match start {
        Start::Files => {
            drive(tasks, manager.demote_async(&buffer, files)).expect("room");
            let filling = drive(tasks, manager.allocate_async(192 * KIB, BufferOptions::default())).expect("room");
            drive(tasks, filling.write_async(0, vec![9; 192 << 10])).expect("room");
            other = Some(filling);
        }
        Start::Copied => {
            let (lease, before) = (drive(tasks, buffer.lease_best_async()).expect("memory"), used(manager, files));
            drop(manager.sync_async(&buffer));
            while used(manager, files) == before {
                assert!(tasks.run_one(0), "a copy begins");
            }
            drop(lease);
        }
        Start::Up | Start::Blank => {}
    }
    let mut call = begin(what, manager, &buffer);
    let mut ended = match poll(call.as_mut()) {
        Poll::Ready(well) => {
            assert!(well, "nothing stands in the way");
            true
        }
        Poll::Pending => false,
    };
    for _ in 0..steps {
        ended = ended || !step(tasks, &mut call);
    }
    drop(call);
    let at = format!("{what} from {start:?}, after {steps} steps");
    manager.check().unwrap_or_else(|broken| panic!("{at}: {broken}"));
    let removed = what == "remove";
    if !removed {
        // The dropped call's work goes on to its end: this read waits for it, or comes before it.
        let bytes = drive(tasks, buffer.read_async(0, BYTES)).expect("no lease is held");
        let new = if what == "write" { 2 } else { old };
        let whole =
            |seen: u8| bytes[..1000].iter().all(|byte| *byte == old) && bytes[1000..].iter().all(|byte| *byte == seen);
        assert!(whole(new) || whole(old), "{at}");
        drop(drive(tasks, buffer.lease_mut_async()).unwrap_or_else(|error| panic!("{at}: {error}")));
        drive(tasks, manager.demote_async(&buffer, files)).unwrap_or_else(|error| panic!("{at}: {error}"));
        until(tasks, || what != "write" || drive(tasks, buffer.read_async(1000, 1)).expect("read") == [2], &at);
        drive(tasks, buffer.write_async(0, vec![3; BYTES])).unwrap_or_else(|error| panic!("{at}: {error}"));
        if what == "sync" {
            drive(tasks, manager.sync_async(&buffer)).unwrap_or_else(|error| panic!("{at}: {error}"));
        }
        assert!(drive(tasks, buffer.read_async(0, BYTES)).expect("read").iter().all(|byte| *byte == 3), "{at}");
        if durable {
            drive(tasks, manager.remove_async("a")).unwrap_or_else(|error| panic!("{at}: {error}"));
        }
    }
    drop((buffer, other));
    until(tasks, || manager.list().is_empty() && (0..=files).all(|tier| used(manager, tier) == 0), &at);
    assert!(matches!(manager.open("a"), Err(Error::NoSuchName(_))), "{at}");
    manager.check().unwrap_or_else(|broken| panic!("{at}: {broken}"));
    ended
}

fn used(manager: &Manager, tier: u8) -> u64 {
    manager.tiers()[usize::from(tier)].view.used
}

/// Runs tasks until it holds.
fn until(tasks: &Executor, holds: impl Fn() -> bool, at: &str) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{at}: it does not come to that");
        tasks.run(Duration::MAX);
        std::thread::yield_now();
    }
}

/// Drops the calls after each number of steps until they end before.
fn each_step_of(device: bool, calls: &[&str], starts: &[Start]) {
    let mut builder = Manager::builder().memory(256 * KIB).chunk(64 << 10);
    if device {
        builder = builder.device_of(&Device::host(), 256 * KIB);
    }
    let (_directory, tasks, manager) = by_hand(builder);
    for (what, start) in calls.iter().flat_map(|what| starts.iter().map(move |start| (*what, *start))) {
        let ended = (0..200).find(|steps| drops(&tasks, &manager, (what, start), *steps));
        ended.unwrap_or_else(|| panic!("{what} from {start:?} takes more than 200 steps"));
    }
    tasks.run(Duration::MAX);
}

#[test]
fn reads_and_writes_that_are_dropped_on_the_way_leave_nothing() {
    each_step_of(false, &["read", "write"], &[Start::Up, Start::Blank, Start::Files, Start::Copied]);
}

#[test]
fn leases_that_are_dropped_on_the_way_leave_nothing() {
    let starts = [Start::Up, Start::Blank, Start::Files, Start::Copied];
    each_step_of(false, &["lease", "lease to write"], &starts);
}

#[test]
fn moves_that_are_dropped_on_the_way_leave_nothing() {
    let calls = ["promote", "demote", "prefetch"];
    each_step_of(false, &calls, &[Start::Up, Start::Blank, Start::Files, Start::Copied]);
}

#[test]
fn syncs_and_removals_that_are_dropped_on_the_way_leave_nothing() {
    let calls = ["sync", "remove"];
    each_step_of(false, &calls, &[Start::Up, Start::Files, Start::Copied]);
}

#[test]
fn calls_that_are_dropped_on_the_way_leave_nothing_on_a_device() {
    let leases = ["lease", "lease to write", "lease on the device", "lease to write on the device"];
    each_step_of(true, &leases, &[Start::Up, Start::Files]);
    each_step_of(true, &["read", "write", "promote", "demote", "prefetch", "sync", "remove"], &[Start::Up]);
}

#[test]
fn a_buffer_that_another_handle_leases_outlives_the_allocation_that_was_dropped() {
    let (_directory, tasks, manager) = by_hand(Manager::builder().memory(8 << 20));
    let options = BufferOptions { name: Some("a".into()), ..BufferOptions::default() };
    let asked = manager.allocate_async(1 << 20, options);
    assert!(tasks.run(Duration::MAX));
    let opened = manager.open("a").expect("it is granted");
    opened.write(0, &[7; 100]).expect("written");
    let lease = opened.lease_best().expect("in memory");
    drop(asked);
    assert!(tasks.run(Duration::MAX));
    let other = drive(&tasks, manager.allocate_async(1 << 20, BufferOptions::default())).expect("room");
    other.write(0, &[8; 100]).expect("written");
    assert_eq!(lease[..100], [7; 100]);
    drop(lease);
    assert_eq!((opened.name(), manager.list().len()), (Some("a"), 2));
    assert_eq!(drive(&tasks, manager.remove_async("a")), Ok(()));
    manager.check().expect("sound");
}
