//! Threads beside one whose pages the driver is mapping: they wait for no call of it.

use super::{open, small};
use std::sync::mpsc;
use std::time::Duration;
use terrace_device::{Device, DeviceError, DeviceOptions, PoolOrigin, Stream};
use terrace_tests::simcuda::{Session, Simulator};

const MIB: u64 = 1 << 20;

/// Long enough for whatever others do meanwhile: it ends when they are done.
const LONG: Duration = Duration::from_secs(600);

fn pages(capacity: u64) -> DeviceOptions {
    DeviceOptions { origin: PoolOrigin::Pages, capacity, ..small() }
}

/// Ends the wait when dropped, also by a panic, which would wait for the thread.
struct Slow<'a>(&'a Session);

impl Drop for Slow<'_> {
    fn drop(&mut self) {
        TAKING.iter().for_each(|name| self.0.latency_of(name, Duration::ZERO, Duration::ZERO));
    }
}

/// The functions by which memory comes in handles and in segments.
const TAKING: [&str; 2] = ["cuMemCreate", "cuMemAlloc_v2"];

/// Lets a thread allocate `bytes`, and does `meanwhile` while the driver makes its first handle; returns what the thread got.
fn beside<R>(
    session: &Session,
    (device, stream, bytes): (&Device, &Stream, u64),
    meanwhile: impl FnOnce() -> R,
) -> (Result<u64, DeviceError>, R) {
    std::thread::scope(|scope| {
        let made = || TAKING.iter().map(|name| session.calls(Some(name))).sum::<u64>();
        let before = made();
        TAKING.iter().for_each(|name| session.latency_of(name, LONG, Duration::ZERO));
        let slow = Slow(session);
        let thread = scope.spawn(move || device.allocate(stream, bytes).map(|block| block.bytes()));
        while made() == before {
            std::thread::yield_now();
        }
        let result = meanwhile();
        assert!(!thread.is_finished(), "the driver has not answered");
        drop(slow);
        (thread.join().expect("no panic"), result)
    })
}

/// Hits of a stream's cache, blocks out of gaps, frees, figures, and other threads' growths: none waits for the driver.
#[test]
fn a_hit_waits_for_no_driver_call_of_another_thread() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, pages(256 * MIB)).expect("a device");
    let streams = [(); 2].map(|()| device.stream().expect("a stream"));
    // What the second stream works with: a gap of 8 MiB, into which the other's block does not fit.
    let gap = device.allocate(&streams[1], 8 * MIB).expect("room");
    let _behind = device.allocate(&streams[1], 2 * MIB).expect("room");
    drop((gap, device.allocate(&streams[1], 4096).expect("room")));
    let (grown, calls) = beside(&session, (&device, &streams[0], 64 * MIB), || {
        let before = session.calls(None);
        for size in [4096, MIB, 300_000, 4096] {
            (0..100).for_each(|_| drop(device.allocate(&streams[1], size).expect("out of what is there")));
        }
        let blocks: Vec<_> = (0..4).map(|_| device.allocate(&streams[1], MIB).expect("out of a gap")).collect();
        drop(blocks);
        device.check().expect("every invariant holds while pages are on their way");
        assert!(device.stats().pool.reserved >= 72 * MIB, "the capacity is taken at once");
        session.calls(None) - before
    });
    assert_eq!(grown, Ok(64 * MIB));
    assert_eq!(calls, 0, "driver calls for blocks that were there");
    device.check().expect("every invariant holds");
}

/// The same while a segment is taken.
#[test]
fn a_hit_waits_for_no_segment_of_another_thread() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let options = DeviceOptions { origin: PoolOrigin::Segments, capacity: 256 * MIB, ..small() };
    let device = open(0, options).expect("a device");
    let streams = [(); 2].map(|()| device.stream().expect("a stream"));
    let kept = device.allocate(&streams[1], 8 * MIB).expect("room");
    drop(device.allocate(&streams[1], 8 * MIB).expect("room"));
    let before = device.stats().pool.reserved;
    let (grown, calls) = beside(&session, (&device, &streams[0], 64 * MIB), || {
        let calls = session.calls(None);
        for size in [4096, MIB, 300_000, 4096] {
            (0..100).for_each(|_| drop(device.allocate(&streams[1], size).expect("out of what is there")));
        }
        device.check().expect("every invariant holds while a segment is on its way");
        assert!(device.stats().pool.reserved >= before + 64 * MIB, "the capacity is taken at once");
        session.calls(None) - calls
    });
    assert_eq!((grown, calls), (Ok(64 * MIB), 0));
    drop(kept);
    device.check().expect("every invariant holds");
    // What the driver refuses is asked for once more, under the lock; at last nothing is kept.
    device.trim();
    session.fail("cuMemAlloc_v2", 1, 2);
    drop(device.allocate(&streams[0], 100 * MIB).expect("the driver refuses once only"));
    device.trim();
    let peak = device.stats().pool.peak_reserved;
    (1..=200).for_each(|nth| session.fail("cuMemAlloc_v2", nth, 2));
    let refused = device.allocate(&streams[0], 200 * MIB).expect_err("the driver has no memory");
    session.fail("*", 0, 0);
    assert!(matches!(refused, DeviceError::OutOfMemory(_)), "{refused}");
    let after = device.stats().pool;
    assert_eq!((after.reserved, after.in_use, after.peak_reserved), (0, 0, peak));
    device.check().expect("every invariant holds");
}

/// Pages that the driver refuses are asked for once more, under the lock, with all else that there is.
#[test]
fn what_the_driver_refuses_leaves_nothing() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, pages(256 * MIB)).expect("a device");
    let stream = device.stream().expect("a stream");
    for name in ["cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        session.fail(name, 1, 2);
        let block = device.allocate(&stream, 40 * MIB).expect("the driver refuses once only");
        device.check().expect("every invariant holds");
        drop(block);
        device.trim();
        assert_eq!(device.stats().pool.reserved, 0, "after {name}");
    }
    let before = device.stats().pool;
    let calls = session.calls(None);
    // More than was ever reserved.
    (1..=200).for_each(|nth| session.fail("cuMemCreate", nth, 2));
    let refused = device.allocate(&stream, 140 * MIB).expect_err("the driver has no memory");
    session.fail("*", 0, 0);
    assert!(matches!(refused, DeviceError::OutOfMemory(_)), "{refused}");
    let after = device.stats().pool;
    assert_eq!((after.reserved, after.in_use, after.pooled), (0, 0, 0));
    assert_eq!((after.peak_reserved, after.peak_in_use), (before.peak_reserved, before.peak_in_use));
    assert!(after.source_calls > before.source_calls && session.calls(None) > calls, "calls that failed count too");
    device.check().expect("every invariant holds");
}

/// A request that fits only into what another thread is mapping waits for that, and does not fail.
#[test]
fn no_request_fails_while_pages_for_it_are_on_their_way() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    // Of the 10 MiB the first request takes 4, 3 of them ahead; the second needs two of those.
    let device = open(0, pages(10 * MIB)).expect("a device");
    let streams = [(); 2].map(|()| device.stream().expect("a stream"));
    let (asked, answer) = mpsc::channel();
    std::thread::scope(|scope| {
        let (first, ()) = beside(&session, (&device, &streams[0], 3 * MIB), || {
            let (device, stream) = (&device, &streams[1]);
            scope.spawn(move || asked.send(device.allocate(stream, 7 * MIB).map(|block| block.bytes())));
            let early = answer.recv_timeout(Duration::from_millis(300));
            assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout), "it waits");
        });
        assert_eq!(first, Ok(3 * MIB));
        assert_eq!(answer.recv(), Ok(Ok(7 * MIB)));
    });
    device.check().expect("every invariant holds");
}

/// Fresh pages are zeros before anyone gets them.
#[test]
fn what_is_mapped_without_the_lock_is_zeroed() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, DeviceOptions { zero_fresh: true, ..pages(64 * MIB) }).expect("a device");
    let stream = device.stream().expect("a stream");
    let mut block = device.allocate(&stream, 8 * MIB).expect("room");
    let mut bytes = vec![1; 8 << 20];
    block.read(0, &mut bytes).expect("a live block");
    assert!(bytes.iter().all(|byte| *byte == 0));
    block.fill(0, 8 * MIB, 7).expect("a live block");
    stream.synchronize().expect("done");
    drop(block);
    device.trim();
    // The simulator gives the same memory with what was left in it.
    session.fail("cuMemsetD8Async", 1, 999);
    let block = device.allocate(&stream, 8 * MIB).expect("zeroed at the second try");
    block.read(0, &mut bytes).expect("a live block");
    assert!(bytes.iter().all(|byte| *byte == 0));
}
