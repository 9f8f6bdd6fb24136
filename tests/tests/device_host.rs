//! The suite of every device, on the host's memory.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use terrace_device::{Backend, Device, DeviceBlock, DeviceError, DeviceOptions, FaultReason, HostBackend, MemoryKind};
use terrace_tests::device::World;
use terrace_tests::waker::{Call, waker};

fn world(case: &dyn Fn(&World<'_>)) {
    case(&World { open: &|options| Device::open(HostBackend::with_total(1 << 30), options), bytes: true });
}

terrace_tests::device_suite!(world);

#[test]
fn the_host_takes_no_region_of_no_bytes_nor_beyond_its_total() {
    let host = HostBackend::with_total(1 << 20);
    for bytes in [0, (1 << 20) + 1, u64::MAX] {
        let refused = host.take(MemoryKind::Device, bytes).expect_err("no such region");
        assert_eq!(refused.reason, FaultReason::OutOfMemory, "{bytes}");
    }
    assert_eq!(host.memory().expect("it is told").total, 1 << 20);
}

const MIB: u64 = 1 << 20;

/// A device of so many MiB, which may all be used.
fn device_of(mib: u64) -> Device {
    let options = DeviceOptions { capacity: mib * MIB, blocks: 1 << 10, ..DeviceOptions::default() };
    Device::open(HostBackend::with_total(1 << 30), options).expect("valid options")
}

#[test]
fn a_batch_has_a_block_for_each_size_in_its_order() {
    let device = device_of(64);
    let stream = device.stream().expect("a stream");
    let sizes = [100, MIB, 4096, 2 * MIB, MIB, 100];
    for _ in 0..2 {
        // The second time the small ones are in the stream's cache.
        let blocks = device.allocate_batch(&stream, &sizes).expect("there is room");
        let bytes: Vec<u64> = blocks.iter().map(DeviceBlock::bytes).collect();
        assert_eq!(bytes, [256, MIB, 4096, 2 * MIB, MIB, 256]);
        let mut starts: Vec<_> = blocks.iter().map(|block| (block.address(), block.bytes())).collect();
        starts.sort_unstable();
        assert!(starts.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{starts:x?}");
        assert_eq!(device.stats().pool.live_blocks, 6);
        device.free_batch(blocks);
        assert_eq!((device.stats().pool.live_blocks, device.check()), (0, Ok(())));
    }
    assert!(device.stats().cache_hits >= 3);
    assert_eq!(device.allocate_batch(&stream, &[]).expect("nothing").len(), 0);
}

#[test]
fn a_batch_that_does_not_fit_leaves_nothing() {
    let device = device_of(16);
    let stream = device.stream().expect("a stream");
    let kept = device.allocate(&stream, MIB).expect("a block");
    drop(device.allocate(&stream, 4096).expect("one for the cache"));
    let refused = device.allocate_batch(&stream, &[4096, 4 * MIB, 4 * MIB, 4 * MIB, 4 * MIB]);
    let DeviceError::OutOfMemory(what) = refused.expect_err("16 MiB beside the one") else { panic!("another error") };
    assert_eq!(what.asked, 4 * MIB);
    let refused = device.allocate_batch(&stream, &[4096, MIB, 0]);
    assert!(matches!(refused, Err(DeviceError::BadRequest { bytes: 0, .. })));
    assert_eq!((device.stats().pool.live_blocks, device.stats().pool.failed), (1, 1));
    assert_eq!(device.check(), Ok(()));
    drop(device.allocate(&stream, 12 * MIB).expect("all the rest, beside a segment of 4 MiB"));
    let other = device_of(16);
    let refused = other.allocate_batch(&stream, &[4096]);
    assert!(matches!(refused, Err(DeviceError::OtherDevice { .. })));
    // A batch frees blocks of another device too, each where it belongs.
    other.free_batch(vec![kept]);
    assert_eq!(device.stats().pool.live_blocks, 0);
}

/// What a batch lacks is asked for as by a request alone.
#[test]
fn the_hook_serves_a_batch_too() {
    let device = device_of(8);
    let stream = device.stream().expect("a stream");
    let kept = std::sync::Mutex::new(vec![device.allocate(&stream, 4 * MIB).expect("a block")]);
    device.on_out_of_memory(move |_| kept.lock().is_ok_and(|mut kept| kept.pop().is_some()));
    let blocks = device.allocate_batch(&stream, &[3 * MIB, 3 * MIB, MIB]).expect("the hook makes room");
    assert_eq!((blocks.len(), device.stats().pool.live_blocks), (3, 3));
    device.forget_hook();
}

/// A waker, and how often it was called.
fn counting() -> (Waker, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let theirs = Arc::clone(&count);
    let count_wakes = move |call| _ = theirs.fetch_add(u64::from(call == Call::Wake), Ordering::Relaxed);
    (waker(count_wakes), count)
}

/// Polls a future of a block: its bytes once it is ready.
fn polled(
    future: Pin<&mut impl Future<Output = Result<DeviceBlock, DeviceError>>>,
    waker: &Waker,
) -> Option<Result<DeviceBlock, DeviceError>> {
    match future.poll(&mut Context::from_waker(waker)) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

#[test]
fn a_request_waits_until_another_thread_frees() {
    let device = device_of(16);
    let stream = device.stream().expect("a stream");
    let block = device.allocate(&stream, 12 * MIB).expect("room");
    let (tell, told) = mpsc::channel();
    device.on_out_of_memory(move |_| {
        tell.send(()).expect("the test waits");
        false
    });
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| device.allocate_within(&stream, 12 * MIB, Duration::from_secs(60)));
        told.recv().expect("it found no memory");
        drop(block);
        assert_eq!(waits.join().expect("no panic").expect("what was freed").bytes(), 12 * MIB);
    });
    device.forget_hook();
    assert_eq!((device.stats().pool.live_blocks, device.stats().pool.failed), (0, 0));
}

#[test]
fn when_the_time_is_over_the_error_says_what_there_was() {
    let device = device_of(16);
    let stream = device.stream().expect("a stream");
    let block = device.allocate(&stream, 12 * MIB).expect("room");
    for limit in [Duration::ZERO, Duration::from_millis(2)] {
        let refused = device.allocate_within(&stream, 12 * MIB, limit).expect_err("nothing was freed");
        let DeviceError::OutOfMemory(what) = refused else { panic!("another error") };
        assert_eq!((what.asked, what.in_use, what.capacity), (12 * MIB, 12 * MIB, 16 * MIB));
    }
    assert_eq!(device.stats().pool.failed, 2);
    drop(block);
    assert!(device.allocate_within(&stream, 12 * MIB, Duration::ZERO).is_ok(), "nothing waits any more");
    for (bytes, message) in [(0, "at least one byte"), (1 << 40, "more than the device has")] {
        let refused = device.allocate_within(&stream, bytes, Duration::from_secs(60)).expect_err("a bad request");
        assert!(refused.to_string().contains(message), "{refused}");
    }
    let other = device_of(16).stream().expect("a stream");
    let refused = device.allocate_within(&other, MIB, Duration::from_secs(60));
    assert!(matches!(refused, Err(DeviceError::OtherDevice { .. })));
}

#[test]
fn the_first_that_waits_is_served_first() {
    let device = device_of(16);
    let stream = device.stream().expect("a stream");
    let [large, _small] = [8, 4].map(|mib| device.allocate(&stream, mib * MIB).expect("room"));
    let ((first_waker, first_woken), (second_waker, second_woken)) = (counting(), counting());
    let woken = || [&first_woken, &second_woken].map(|count| count.load(Ordering::Relaxed));
    let mut second = pin!(device.allocate_async(&stream, MIB));
    {
        let mut first = pin!(device.allocate_async(&stream, 12 * MIB));
        assert!(polled(first.as_mut(), &first_waker).is_none());
        // There is room for this one, but it comes second; a call that does not wait has the room.
        assert!(polled(second.as_mut(), &second_waker).is_none());
        drop(device.allocate(&stream, 2 * MIB).expect("room"));
        assert_eq!(woken(), [0, 0]);
        // What is freed on a stream that opens now goes to the pool too, not to its cache.
        let late = device.stream().expect("a stream");
        drop(device.allocate(&late, 4096).expect("room"));
        assert_eq!(device.coalesce(), 0);
        drop(late);
        drop(large);
        assert_eq!(woken(), [1, 0]);
        let block = polled(first.as_mut(), &first_waker).expect("it was woken").expect("a block");
        assert!(polled(second.as_mut(), &second_waker).is_none(), "all 16 MiB are in use");
        drop(block);
    }
    assert_eq!(woken(), [1, 1]);
    assert_eq!(polled(second.as_mut(), &second_waker).expect("it was woken").expect("a block").bytes(), MIB);
}

#[test]
fn a_future_that_is_dropped_is_forgotten() {
    let device = device_of(16);
    let stream = device.stream().expect("a stream");
    let large = device.allocate(&stream, 12 * MIB).expect("room");
    let ((first_waker, first_woken), (second_waker, second_woken)) = (counting(), counting());
    let mut second = pin!(device.allocate_async(&stream, 2 * MIB));
    let mut first = Box::pin(device.allocate_async(&stream, 8 * MIB));
    assert!(polled(first.as_mut(), &first_waker).is_none() && polled(second.as_mut(), &second_waker).is_none());
    drop(first);
    assert_eq!(second_woken.load(Ordering::Relaxed), 1, "the larger one stood before it");
    // What is granted to a future and not taken is freed with it.
    let mut third = Box::pin(device.allocate_async(&stream, 8 * MIB));
    assert!(polled(third.as_mut(), &first_waker).is_none());
    drop(large);
    assert_eq!((first_woken.load(Ordering::Relaxed), device.stats().pool.live_blocks), (1, 2));
    drop(third);
    assert_eq!(device.stats().pool.live_blocks, 1);
    drop(polled(second, &second_waker).expect("it was woken").expect("a block"));
    assert_eq!((device.stats().pool.live_blocks, device.check()), (0, Ok(())));
}

#[test]
fn a_request_waits_for_a_capacity_that_rises_and_for_blocks_of_a_cache() {
    let device = device_of(16);
    let (stream, other) = (device.stream().expect("a stream"), device.stream().expect("another"));
    let full = device.allocate(&stream, 16 * MIB).expect("all of it");
    let (waker, woken) = counting();
    {
        let mut waits = pin!(device.allocate_async(&stream, 20 * MIB));
        assert!(polled(waits.as_mut(), &waker).is_none());
        device.set_capacity(64 * MIB);
        assert_eq!(woken.load(Ordering::Relaxed), 1);
        assert!(polled(waits, &waker).is_some_and(|done| done.is_ok()));
    }
    drop(full);
    // All of it in blocks that their stream would keep.
    device.trim();
    device.set_capacity(4 * MIB);
    let mut blocks: Vec<_> = (0..256).map(|_| device.allocate(&stream, 16 << 10).expect("room")).collect();
    let mut waits = pin!(device.allocate_async(&other, 16 << 10));
    assert!(polled(waits.as_mut(), &waker).is_none());
    drop(blocks.pop());
    assert_eq!((woken.load(Ordering::Relaxed), device.stats().pool.pooled), (2, 0));
    assert!(polled(waits, &waker).is_some_and(|done| done.is_ok()));
}

/// A request for which nothing could be freed would wait for ever.
#[test]
fn what_no_free_can_serve_is_refused_at_once() {
    let device = device_of(16);
    let stream = device.stream().expect("a stream");
    drop(device.allocate(&stream, 4096).expect("room"));
    let began = std::time::Instant::now();
    let refused = device.allocate_within(&stream, 20 * MIB, Duration::from_secs(600));
    assert!(matches!(refused, Err(DeviceError::OutOfMemory(_))) && began.elapsed() < Duration::from_secs(60));
}

/// A device of 32 MiB whose streams cache up to 1 MiB, in blocks of 64 KiB at most.
fn caching(change: impl FnOnce(&mut DeviceOptions)) -> Device {
    let mut options = DeviceOptions { capacity: 32 * MIB, blocks: 1 << 12, ..DeviceOptions::default() };
    options = DeviceOptions { stream_cache: MIB, pooled_per_bucket: 1 << 10, small_threshold: 64 << 10, ..options };
    change(&mut options);
    Device::open(HostBackend::with_total(1 << 30), options).expect("valid options")
}

/// Bytes that a stream's cache keeps of 2 MiB that are freed.
fn kept(device: &Device, stream: &terrace_device::Stream) -> u64 {
    device.clear();
    drop((0..32).map(|_| device.allocate(stream, 64 << 10).expect("room")).collect::<Vec<_>>());
    device.coalesce()
}

#[test]
fn freed_blocks_merge_at_once_past_a_threshold_or_when_memory_is_short() {
    let lazy = caching(|_| ());
    let stream = lazy.stream().expect("a stream");
    assert_eq!(kept(&lazy, &stream), MIB);
    drop([(); 3].map(|()| lazy.allocate(&stream, 64 << 10).expect("room")));
    let before = lazy.stats().pool;
    assert_eq!((before.pooled, lazy.coalesce(), lazy.coalesce()), (192 << 10, 192 << 10, 0));
    let after = lazy.stats().pool;
    assert_eq!((after.pooled, after.reserved, after.returns), (0, before.reserved, before.returns));
    assert_eq!(lazy.check(), Ok(()));
    let at_once = caching(|options| options.coalesce = 0);
    let stream = at_once.stream().expect("a stream");
    assert_eq!(kept(&at_once, &stream), 0);
    drop(at_once.allocate(&stream, 4 * MIB).expect("room"));
    assert_eq!((at_once.stats().pool.pooled, at_once.stats().cache_hits), (0, 0), "large blocks too");
    let one = caching(|options| options.coalesce = 256 << 10);
    let stream = one.stream().expect("a stream");
    let cached = [4, 5].map(|blocks| {
        drop((0..blocks).map(|_| one.allocate(&stream, 64 << 10).expect("room")).collect::<Vec<_>>());
        one.coalesce() >> 10
    });
    assert_eq!(cached, [256, 0], "the block that is too many empties the cache");
    // Of two streams together, as soon as one of them reaches the pool: with a block that is more than both may have, or a miss.
    let cached = |blocks: usize, misses: bool| {
        let some = caching(|options| options.coalesce = 256 << 10);
        let streams = [(); 2].map(|()| some.stream().expect("a stream"));
        let all: Vec<_> = (0..blocks).map(|at| some.allocate(&streams[at % 2], 32 << 10).expect("room")).collect();
        drop(all);
        let _miss = misses.then(|| some.allocate(&streams[0], 3 * MIB).expect("room"));
        let cached = some.coalesce() >> 10;
        assert_eq!(some.check(), Ok(()));
        cached
    };
    assert_eq!([8, 16, 17, 18, 20].map(|blocks| cached(blocks, false)), [256, 512, 0, 32, 96]);
    assert_eq!([8, 10].map(|blocks| cached(blocks, true)), [256, 0]);
}

#[test]
fn caches_follow_the_pressure_without_being_asked() {
    for adapt in [true, false] {
        let device = caching(|options| options.adapt = adapt);
        let stream = device.stream().expect("a stream");
        assert_eq!(kept(&device, &stream), MIB);
        let large = device.allocate(&stream, 26 * MIB).expect("room");
        // Looked at by the next miss: 26 of 32 MiB are high pressure.
        let at_high = kept(&device, &stream);
        let more = device.allocate(&stream, 3 * MIB).expect("room");
        let at_critical = kept(&device, &stream);
        let late = device.stream().expect("a stream that opens under pressure");
        let at_critical = [at_critical, kept(&device, &late)];
        drop((large, more));
        let step = 64 << 10;
        let expected = if adapt { [MIB / 3 * 2, MIB / 9 * 4, MIB / 9 * 4] } else { [MIB; 3] };
        assert_eq!([at_high, at_critical[0], at_critical[1]], expected.map(|bytes| bytes / step * step), "{adapt}");
        assert_eq!([kept(&device, &stream), kept(&device, &late)], [MIB; 2], "as before");
        assert_eq!(device.check(), Ok(()));
    }
}

#[test]
fn maintenance_does_what_is_due_and_tells_it() {
    let device = caching(|_| ());
    let stream = device.stream().expect("a stream");
    let start = std::time::Instant::now();
    drop((0..32).map(|_| device.allocate(&stream, 64 << 10).expect("room")).collect::<Vec<_>>());
    let done = device.maintain_at(start);
    assert_eq!((done.coalesced, done.returned, done.adapted), (0, 0, false), "nothing is due");
    let large = device.allocate(&stream, 27 * MIB).expect("room");
    let done = device.maintain_at(start);
    assert_eq!((done.coalesced, done.returned, done.adapted), (MIB, 0, true), "pressure is high");
    drop(large);
    let done = device.maintain_at(start);
    assert_eq!((done.coalesced, done.adapted), (0, true), "pressure fell");
    assert!(!device.maintain_at(start).adapted);
}

/// A hook that panics in the middle of a batch: what the batch had is free.
#[test]
fn a_batch_frees_what_it_has_when_the_hook_panics() {
    let device = device_of(16);
    let stream = device.stream().expect("a stream");
    device.on_out_of_memory(|_| panic!("the hook"));
    let batch = || device.allocate_batch(&stream, &[12 * MIB, 12 * MIB, MIB]);
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(batch));
    device.forget_hook();
    assert!(ended.is_err(), "the hook's panic is the caller's");
    assert_eq!(device.stats().pool.live_blocks, 0);
    drop(device.allocate(&stream, 12 * MIB).expect("it is free"));
    device.check().expect("it is sound");
}
