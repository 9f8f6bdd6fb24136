//! Requests that wait for memory which streams still use: no thread of the program is blocked, and no look is in vain.

use super::{open, small};
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::channel;
use std::task::{Context, Poll};
use std::time::Duration;
use terrace_device::{Device, DeviceError, DeviceOptions, PoolOrigin};
use terrace_tests::simcuda::Simulator;
use terrace_tests::waker::{Call, waker};

const MIB: u64 = 1 << 20;
/// Less than the simulator's patience (20 s), after which it ends a wait itself.
const SOON: Duration = Duration::from_secs(10);

/// A future waits for what a held stream still uses, until that stream gets on; nothing else is called meanwhile.
fn waits_for_its_stream(options: DeviceOptions, shared: bool) {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, options).expect("a device");
    let (one, two) = (device.stream().expect("a stream"), device.stream().expect("another"));
    let mut large = device.allocate(&two, 200 * MIB).expect("most of 256 MiB");
    session.hold();
    large.fill(0, MIB, 1).expect("queued");
    if shared {
        // The block of one stream, used on the other: it is held.
        large.used_on(&one).expect("the same device");
    }
    drop(large);
    let (told, woken) = channel();
    let waker = waker(move |call| {
        if call == Call::Wake {
            told.send(()).expect("the test waits");
        }
    });
    let mut context = Context::from_waker(&waker);
    let waits = || session.calls(Some("cuEventSynchronize")) + session.calls(Some("cuStreamSynchronize"));
    let before = waits();
    let mut allocation = pin!(device.allocate_async(&one, 100 * MIB));
    assert!(allocation.as_mut().poll(&mut context).is_pending());
    assert!(allocation.as_mut().poll(&mut context).is_pending(), "it is in the queue");
    assert_eq!((waits(), woken.try_recv().is_err()), (before, true), "no thread waits in the driver");
    // A limit is kept, however long the stream takes.
    let refused = device.allocate_within(&one, 100 * MIB, Duration::from_millis(1));
    assert!(matches!(refused, Err(DeviceError::OutOfMemory(what)) if what.asked == 100 * MIB && what.fault.is_none()));
    session.release();
    woken.recv_timeout(SOON).expect("the stream is done");
    let Poll::Ready(Ok(block)) = allocation.as_mut().poll(&mut context) else { panic!("it was woken") };
    assert_eq!((block.bytes(), waits()), (100 * MIB, before));
    device.check().expect("it is sound");
    one.synchronize().expect("done");
    two.synchronize().expect("done");
}

#[test]
fn a_future_is_woken_when_a_stream_is_done_with_what_it_freed() {
    waits_for_its_stream(small(), false);
}

#[test]
fn a_future_is_woken_when_a_stream_is_done_with_another_s_block() {
    waits_for_its_stream(small(), true);
}

#[test]
fn a_future_is_woken_when_segments_can_go_back() {
    waits_for_its_stream(DeviceOptions { origin: PoolOrigin::Segments, ..small() }, false);
}

/// Free pages under work in flight must not move before it is done: a future waits for that too.
#[test]
fn a_future_is_woken_when_pages_may_move() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let sizes = [100 * MIB, 2 * MIB, 100 * MIB, 2 * MIB];
    let [first, wall, second, end] = sizes.map(|bytes| device.allocate(&stream, bytes).expect("room"));
    session.hold();
    let mut first = first;
    first.fill(0, MIB, 1).expect("queued");
    drop((first, second));
    let (told, woken) = channel();
    let waker = waker(move |call| {
        if call == Call::Wake {
            told.send(()).expect("the test waits");
        }
    });
    let mut context = Context::from_waker(&waker);
    let before = session.calls(Some("cuEventSynchronize"));
    let mut allocation = pin!(device.allocate_async(&stream, 180 * MIB));
    assert!(allocation.as_mut().poll(&mut context).is_pending());
    let refused = device.allocate_within(&stream, 180 * MIB, Duration::from_millis(1));
    assert!(
        matches!(refused, Err(DeviceError::OutOfMemory(what)) if what.fault.is_none()),
        "a busy stream is no fault"
    );
    assert_eq!(session.calls(Some("cuEventSynchronize")), before);
    session.release();
    woken.recv_timeout(SOON).expect("the stream is done");
    assert!(matches!(allocation.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
    drop((wall, end));
    stream.synchronize().expect("done");
}

/// While nothing waits, a hit and its free make no call, and so do they after the last that waited.
#[test]
fn caches_serve_again_when_nothing_waits() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let full = device.allocate(&stream, 256 * MIB).expect("all of it");
    let mut context = Context::from_waker(std::task::Waker::noop());
    let hits = |device: &Device| {
        drop(device.allocate(&stream, 4096).expect("room"));
        let (before, calls) = (device.stats().cache_hits, session.calls(None));
        (0..10).for_each(|_| drop(device.allocate(&stream, 4096).expect("room")));
        (device.stats().cache_hits - before, session.calls(None) - calls)
    };
    {
        let mut allocation = pin!(device.allocate_async(&stream, MIB));
        assert!(allocation.as_mut().poll(&mut context).is_pending());
        drop(full);
        assert_eq!(hits(&device), (10, 0), "it was granted its block, though it did not take it yet");
    }
    assert_eq!((hits(&device), device.stats().pool.live_blocks), ((10, 0), 0));
}

/// Memory that can neither be zeroed nor given back is nobody's: no request waits for it.
#[test]
fn nothing_waits_for_memory_that_is_lost() {
    let mut session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    session.allow_leaks();
    let options = DeviceOptions { capacity: 64 * MIB, origin: PoolOrigin::Segments, zero_fresh: true, ..small() };
    let device = open(0, options).expect("a device");
    let stream = device.stream().expect("a stream");
    for name in ["cuMemsetD8Async", "cuMemFree_v2"] {
        (1..9).for_each(|nth| session.fail(name, nth, 999));
    }
    device.allocate(&stream, 40 * MIB).expect_err("it cannot be zeroed");
    assert_eq!((device.stats().pool.reserved, device.stats().pool.live_blocks), (40 * MIB, 0));
    let mut allocation = pin!(device.allocate_async(&stream, 60 * MIB));
    let polled = allocation.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Err(DeviceError::OutOfMemory(_)))), "{polled:?}");
    session.forget();
}

/// A stream that always has work: what was freed may move once the work before that is done, however much follows.
#[test]
fn a_future_is_served_though_its_stream_stays_busy() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let sizes = [100 * MIB, 2 * MIB, 100 * MIB, 2 * MIB];
    let [mut first, mut wall, second, end] = sizes.map(|bytes| device.allocate(&stream, bytes).expect("room"));
    session.hold();
    first.fill(0, MIB, 1).expect("queued");
    drop((first, second));
    let mut context = Context::from_waker(std::task::Waker::noop());
    let mut allocation = pin!(device.allocate_async(&stream, 180 * MIB));
    let mut queued = || (0..4).for_each(|_| wall.fill(0, 512, 2).expect("queued"));
    let served = (0..50).any(|_| {
        let ready = allocation.as_mut().poll(&mut context).is_ready();
        queued();
        // Fewer than were queued: the stream is never idle.
        session.step(2);
        ready
    });
    assert!(served && session.step(1) == 1, "work is left");
    session.release();
    stream.synchronize().expect("done");
    drop((wall, end));
}
