//! What users bring is called without a lock, and a panic in it strands nobody: wakers, releases, hooks, keepers, buffers that
//! a lane drops.

use super::{LEN, Late, engine, ground};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, RawWaker, RawWakerVTable, Wake, Waker};
use terrace_device::{Device, DeviceBuffer, HostSource, RawStream, Transfer, TransferEngine};
use terrace_tests::hung::bounded;

/// A transfer that was put on the lane's stream, whose wait takes until the device is open.
fn flying(late: &Late, engine: &TransferEngine, to: DeviceBuffer<u8>) -> Transfer<Vec<u8>, DeviceBuffer<u8>> {
    late.shut();
    let transfer = engine.upload(vec![5; 100], to, 0);
    while late.left() == 0 {
        std::thread::yield_now();
    }
    transfer
}

fn poll<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

#[test]
fn a_waker_that_panics_ends_neither_its_lane_nor_its_transfer() {
    bounded(|| {
        let (late, device, stream, buffer) = ground();
        let engine = engine(&device);
        let mut first = flying(&late, &engine, buffer);
        assert!(poll(&mut first, &Waker::from(Arc::new(Panics))).is_pending());
        late.open();
        let other = DeviceBuffer::<u8>::new(&device, &stream, LEN).expect("memory");
        engine.upload(vec![6; 10], other, 0).wait().expect("the lane goes on");
        let done = first.wait().expect("it was done");
        assert_eq!(done.target.to_vec().expect("read")[99..101], [5, 1]);
    });
}

/// A waker owns its own transfer and the engine, and asks for more of it, from the lane.
#[test]
fn a_waker_that_owns_what_it_wakes_may_ask_and_let_go() {
    type Mine = (Transfer<Vec<u8>, DeviceBuffer<u8>>, TransferEngine, DeviceBuffer<u8>);
    struct Owner(Mutex<Option<Mine>>, Mutex<Sender<Vec<u8>>>);
    impl Wake for Owner {
        fn wake(self: Arc<Self>) {
            let (mut own, engine, more) = self.0.lock().expect("not poisoned").take().expect("woken once");
            assert!(poll(&mut own, Waker::noop()).is_ready());
            let asked = engine.upload(vec![8; 10], more, 0);
            let tell = self.1.lock().expect("not poisoned").clone();
            // Whoever waits for a transfer does so elsewhere.
            std::thread::spawn(move || {
                let done = asked.wait().expect("asked for on a lane");
                tell.send(done.target.as_slice().slice(..10).and_then(|front| front.to_vec()).expect("read"))
            });
            drop(engine);
        }
    }
    bounded(|| {
        let (late, device, stream, buffer) = ground();
        let (tell, hear) = channel();
        let owner = Arc::new(Owner(Mutex::new(None), Mutex::new(tell)));
        let engine = engine(&device);
        let more = DeviceBuffer::new(&device, &stream, LEN).expect("memory");
        let mut own = flying(&late, &engine, buffer);
        assert!(poll(&mut own, &Waker::from(Arc::clone(&owner))).is_pending());
        *owner.0.lock().expect("not poisoned") = Some((own, engine, more));
        drop(owner);
        late.open();
        assert_eq!(hear.recv().expect("it was woken"), [8; 10]);
    });
}

/// Wakers that panic when they are dropped: the one that is replaced, and the one that comes too late.
#[test]
fn a_waker_whose_drop_panics_loses_no_end() {
    static DROPS: AtomicU32 = AtomicU32::new(0);
    static TABLE: RawWakerVTable = RawWakerVTable::new(|_| raw(), |_| {}, |_| {}, |_| fall());
    fn raw() -> RawWaker {
        RawWaker::new(std::ptr::null(), &TABLE)
    }
    fn fall() {
        DROPS.fetch_add(1, Ordering::Relaxed);
        panic!("a waker whose drop panics");
    }
    bounded(|| {
        let (late, device, _stream, buffer) = ground();
        let engine = engine(&device);
        let mut transfer = flying(&late, &engine, buffer);
        // SAFETY: the functions of the table use no data.
        let waker = std::mem::ManuallyDrop::new(unsafe { Waker::from_raw(raw()) });
        assert!(poll(&mut transfer, &waker).is_pending() && poll(&mut transfer, &waker).is_pending());
        assert_eq!(DROPS.load(Ordering::Relaxed), 1, "the first was replaced");
        late.open();
        let done = loop {
            match poll(&mut transfer, &waker) {
                Poll::Ready(done) => break done,
                Poll::Pending => std::thread::yield_now(),
            }
        };
        assert_eq!(done.expect("it was done").source, [5; 100]);
    });
}

/// Host memory whose drop panics.
struct Falls(Vec<u8>);

// SAFETY: the elements of a vector that nobody changes.
unsafe impl HostSource<u8> for Falls {
    fn elements(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Falls {
    fn drop(&mut self) {
        panic!("host memory whose drop panics");
    }
}

#[test]
fn a_buffer_whose_drop_panics_does_not_end_the_lane_that_drops_it() {
    bounded(|| {
        let (late, device, stream, buffer) = ground();
        let engine = engine(&device);
        late.shut();
        let given_up = engine.upload(Falls(vec![5; 100]), buffer, 0);
        while late.left() == 0 {
            std::thread::yield_now();
        }
        drop(given_up);
        late.open();
        let other = DeviceBuffer::<u8>::new(&device, &stream, LEN).expect("memory");
        let done = engine.upload(vec![6; 10], other, 0).wait().expect("the lane goes on");
        assert_eq!(done.source, [6; 10]);
    });
}

#[test]
fn a_release_that_panics_is_told_to_nobody_and_the_next_is_called() {
    let (_late, device, stream, mut buffer) = ground();
    let called = Arc::new(AtomicU32::new(0));
    let wrap = |panics: bool| {
        let (called, inside) = (Arc::clone(&called), device.clone());
        let release = Box::new(move |_, _| {
            // Also from in here: no lock is held.
            inside.stats();
            called.fetch_add(1, Ordering::Relaxed);
            assert!(!panics, "a release that panics");
        });
        // SAFETY: a block of the device, which outlives what is wrapped; nothing is put on the stream for it.
        unsafe { device.wrap(&stream, buffer.address(), 256, Some(release)) }.expect("wrapped")
    };
    let blocks = [wrap(true), wrap(false), wrap(true), wrap(false)];
    // Work of the stream that they wait for, all of them.
    buffer.as_slice_mut().fill(3).expect("put on the stream");
    drop(blocks);
    device.trim();
    assert_eq!(called.load(Ordering::Relaxed), 4);
}

#[test]
fn a_hook_is_dropped_without_a_lock_and_may_panic() {
    struct Another(Device);
    impl Drop for Another {
        fn drop(&mut self) {
            self.0.on_out_of_memory(|_| false);
        }
    }
    bounded(|| {
        let (_late, device, stream, _buffer) = ground();
        let another = Another(device.clone());
        device.on_out_of_memory(move |_| another.0.stats().held > 0);
        device.forget_hook();
        device.on_out_of_memory(|_| panic!("a hook that panics"));
        device.set_capacity(1 << 20);
        let fails = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| device.allocate(&stream, 2 << 20)));
        assert!(fails().is_err() && fails().is_err(), "asked again, though it panicked");
        device.forget_hook();
        device.allocate(&stream, 2 << 20).expect_err("no room");
        device.allocate(&stream, 1000).expect("the device works");
    });
}

/// Adopts another handle when it is dropped.
struct Keeper(Device, Arc<AtomicU32>);

impl Drop for Keeper {
    fn drop(&mut self) {
        // SAFETY: this device has no streams behind its handles: any number is one.
        let stream = unsafe { self.0.adopt_stream(RawStream(99)) };
        drop(stream);
        self.1.fetch_add(1, Ordering::Relaxed);
        panic!("a keeper that panics");
    }
}

#[test]
fn a_keeper_is_let_go_of_without_a_lock_and_may_panic() {
    bounded(|| {
        let (late, device, stream, _buffer) = ground();
        let gone = Arc::new(AtomicU32::new(0));
        let keeper = || Keeper(device.clone(), Arc::clone(&gone));
        // What the only stream freed is in flight: another one cannot be let in without an event.
        drop(device.allocate(&stream, 1 << 18).expect("a block"));
        // Out of the stream's cache, which would keep it.
        device.coalesce();
        late.mute(true);
        // SAFETY: as above.
        let refused = unsafe { device.adopt_kept_stream(RawStream(78), keeper()) };
        refused.expect_err("no event");
        assert_eq!(gone.load(Ordering::Relaxed), 1, "with the refusal");
        late.mute(false);
        // SAFETY: as above.
        let adopted = unsafe { device.adopt_kept_stream(RawStream(77), keeper()) }.expect("adopted");
        drop(adopted);
        assert_eq!(gone.load(Ordering::Relaxed), 2, "with its stream");
    });
}
