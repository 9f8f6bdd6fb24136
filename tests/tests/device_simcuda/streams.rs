//! Streams of the driver: in flight, shared, destroyed by others, captured.

use super::{open, small};
pub use cudarc_free::raw;
use terrace_device::{Device, DeviceOptions, RawStream, Stream};
use terrace_tests::simcuda::{Session, Simulator};

/// Calls of the driver that a program makes itself.
mod cudarc_free {
    use terrace_tests::simcuda::Simulator;

    /// A function of the driver by name, with one pointer-sized argument and an out pointer or flags.
    pub fn raw<F: Copy>(name: &str) -> F {
        let library = Simulator::get().library();
        // SAFETY: the caller names the function's own type; the library is never unloaded.
        let symbol = unsafe { library.get::<F>(name.as_bytes()) };
        *symbol.unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

/// Makes the first device's context this thread's; gives back what lets go of it.
pub fn enter() -> impl Drop {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            let release: unsafe extern "C" fn(i32) -> i32 = raw("cuDevicePrimaryCtxRelease_v2");
            // SAFETY: retained by `enter`.
            assert_eq!(unsafe { release(0) }, 0);
        }
    }
    let retain: unsafe extern "C" fn(*mut u64, i32) -> i32 = raw("cuDevicePrimaryCtxRetain");
    let enter: unsafe extern "C" fn(u64) -> i32 = raw("cuCtxSetCurrent");
    let mut context = 0;
    // SAFETY: the driver writes one handle.
    assert_eq!(unsafe { retain(&mut context, 0) }, 0);
    // SAFETY: the context just retained.
    assert_eq!(unsafe { enter(context) }, 0);
    Leave
}

/// Work in flight on one stream: another stream does not get the memory; once it is done, it does.
#[test]
fn memory_in_flight_goes_to_others_after_its_event() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let (one, two) = (device.stream().expect("a stream"), device.stream().expect("another"));
    session.hold();
    let mut block = device.allocate(&one, 10 << 20).expect("a block");
    block.fill(0, 10 << 20, 1).expect("queued");
    let address = block.address();
    drop(block);
    let mut other = device.allocate(&two, 10 << 20).expect("other memory");
    assert_ne!(other.address(), address, "memory that a queued fill will write to");
    other.fill(0, 10 << 20, 2).expect("queued");
    drop(other);
    session.release();
    one.synchronize().expect("done");
    two.synchronize().expect("done");
    let blocks =
        [device.allocate(&two, 10 << 20), device.allocate(&two, 10 << 20)].map(|block| block.expect("a block"));
    assert!(blocks.iter().any(|block| block.address() == address), "memory whose event has happened");
}

/// A block that another stream still reads is not given out again, even to its own stream.
#[test]
fn a_block_used_elsewhere_is_held_until_that_is_done() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let (one, two) = (device.stream().expect("a stream"), device.stream().expect("another"));
    let mut block = device.allocate(&one, 1 << 20).expect("a block");
    block.fill(0, 1 << 20, 1).expect("queued");
    let mut copy = device.allocate(&two, 1 << 20).expect("a block");
    session.hold();
    copy.copy_from(0, &block, 0, 1 << 20).expect("queued on the second stream");
    block.used_on(&two).expect("said so");
    let address = block.address();
    drop(block);
    assert_eq!(device.stats().held, 1);
    let mut again = device.allocate(&one, 1 << 20).expect("other memory");
    assert_ne!(again.address(), address);
    again.fill(0, 1 << 20, 3).expect("queued");
    session.release();
    two.synchronize().expect("done");
    let mut back = vec![0; 1 << 20];
    copy.read(0, &mut back).expect("read");
    assert!(back.iter().all(|&byte| byte == 1), "the copy has what the block had");
}

/// The copy is queued while the driver still has the fill to do: it begins after it.
#[test]
fn a_copy_from_another_stream_s_block_begins_after_the_work_queued_there() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let (one, two) = (device.stream().expect("a stream"), device.stream().expect("another"));
    let mut block = device.allocate(&one, 1 << 20).expect("a block");
    let mut copy = device.allocate(&two, 1 << 20).expect("a block");
    session.hold();
    block.fill(0, 1 << 20, 5).expect("queued");
    copy.copy_from(0, &block, 0, 1 << 20).expect("queued on the second stream");
    block.fill(0, 1 << 20, 9).expect("queued behind the copy");
    session.release();
    let mut back = vec![0; 1 << 20];
    copy.read(0, &mut back).expect("read");
    assert!(back.iter().all(|&byte| byte == 5), "after the first fill, before the second");
}

/// Wrapped memory waits for its stream only: where that is idle, the release runs before the drop returns.
#[test]
fn wrapped_memory_of_an_idle_stream_goes_back_at_once() {
    let _session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let inner = device.allocate(&stream, 1 << 20).expect("a block");
    let (said, released) = std::sync::mpsc::channel();
    let release = Box::new(move |address, bytes| said.send((address, bytes)).expect("heard"));
    // SAFETY: the range is a live block of this device, which outlives the wrapped one.
    let wrapped = unsafe { device.wrap(&stream, inner.address(), 4096, Some(release)) }.expect("wrapped");
    stream.synchronize().expect("done");
    drop(wrapped);
    assert_eq!(released.try_recv(), Ok((inner.address(), 4096)));
}

/// A release that an allocation calls may itself ask for more than there is, while that allocation's pages are mapped.
#[test]
fn a_release_may_allocate_while_its_caller_grows() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, DeviceOptions { capacity: 64 << 20, ..small() }).expect("a device");
    let [stream, other] = [(); 2].map(|()| device.stream().expect("a stream"));
    let inner = device.allocate(&stream, 1 << 20).expect("a block");
    let (said, heard) = std::sync::mpsc::channel();
    let (asking, again, refused) = (device.clone(), other.clone(), said.clone());
    let release = Box::new(move |_, _| refused.send(asking.allocate(&again, 60 << 20).is_err()).expect("heard"));
    // SAFETY: the range is a live block of this device, which outlives the wrapped one.
    let mut wrapped = unsafe { device.wrap(&stream, inner.address(), 4096, Some(release)) }.expect("wrapped");
    session.hold();
    wrapped.fill(0, 4096, 1).expect("queued");
    drop(wrapped);
    session.release();
    stream.synchronize().expect("done");
    let (growing, there) = (device.clone(), other.clone());
    let thread = std::thread::spawn(move || said.send(growing.allocate(&there, 20 << 20).is_ok()).expect("heard"));
    let wait = std::time::Duration::from_secs(60);
    assert_eq!(
        [heard.recv_timeout(wait), heard.recv_timeout(wait)],
        [Ok(true), Ok(true)],
        "neither waits for the other"
    );
    thread.join().expect("no panic");
    drop(inner);
}

/// Streams that somebody else made; destroyed behind our back, they cost a wait and no more.
#[test]
fn a_foreign_stream_is_one_stream_and_may_be_destroyed() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let own = device.stream().expect("a stream");
    let _entered = enter();
    let create: unsafe extern "C" fn(*mut u64, u32) -> i32 = raw("cuStreamCreate");
    let destroy: unsafe extern "C" fn(u64) -> i32 = raw("cuStreamDestroy_v2");
    let mut handle = 0;
    // SAFETY: the driver writes one handle; the device's context is current on this thread since it was opened.
    assert_eq!(unsafe { create(&mut handle, 1) }, 0);
    // SAFETY: a live stream of this device; what happens when it dies is what is tested.
    let foreign = unsafe { device.adopt_stream(RawStream(handle)) }.expect("adopted");
    // SAFETY: as above.
    let twice = unsafe { device.adopt_stream(RawStream(handle)) }.expect("adopted");
    assert_eq!(device.stats().streams, 2, "asked twice, it is one stream");
    drop(twice);
    let mut block = device.allocate(&foreign, 5 << 20).expect("a block");
    block.fill(0, 5 << 20, 1).expect("queued");
    // SAFETY: the handle is live; nothing is put on it afterwards.
    assert_eq!(unsafe { destroy(handle) }, 0);
    drop(block);
    drop(foreign);
    drop(device.allocate(&own, 200 << 20).expect("what the dead stream had serves as well"));
    session.forget(); // asking the driver for an event on a dead stream is how one learns that it is dead
}

/// While a graph is captured nothing is asked of its stream, and its memory stays its own.
#[test]
fn a_captured_stream_is_left_alone() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let (stream, other) = (device.stream().expect("a stream"), device.stream().expect("another"));
    let _entered = enter();
    let begin: unsafe extern "C" fn(u64, i32) -> i32 = raw("cuStreamBeginCapture_v2");
    let end: unsafe extern "C" fn(u64, *mut u64) -> i32 = raw("cuStreamEndCapture");
    let destroy: unsafe extern "C" fn(u64) -> i32 = raw("cuGraphDestroy");
    // What the stream freed before waits for it, with no event yet.
    let mut before = device.allocate(&stream, 5 << 20).expect("a block");
    before.fill(0, 5 << 20, 1).expect("queued");
    drop(before);
    device.coalesce();
    let pool = device.graph_pool().expect("a pool");
    let capture = stream.capture(&pool).expect("routed");
    // SAFETY: a live stream; mode 0 is global, the strictest.
    assert_eq!(unsafe { begin(stream.raw().0, 0) }, 0);
    let mut inside = device.allocate(&stream, 1 << 20).expect("allocated during a capture");
    inside.fill(0, 1 << 20, 5).expect("captured");
    drop(inside);
    // Allocations elsewhere, frees and polls go on meanwhile.
    for i in 0..100u64 {
        drop(device.allocate(&other, 50_000 + i * 1000).expect("a block on another stream"));
    }
    drop(device.allocate(&other, 5 << 20).expect("other memory than what waits for the captured stream"));
    let mut graph = 0;
    // SAFETY: the capture begun above; the driver writes one handle.
    assert_eq!(unsafe { end(stream.raw().0, &mut graph) }, 0, "the capture was not disturbed");
    drop(capture);
    // SAFETY: the graph just made.
    assert_eq!(unsafe { destroy(graph) }, 0);
    drop(pool);
    assert!(session.violations().is_empty(), "{:?}", session.violations());
}

/// A stream that is captured when the device first hears of it: the host waits for what was in flight, the stream is not
/// made to.
#[test]
fn a_stream_may_be_captured_before_it_is_known() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let one = device.stream().expect("a stream");
    let mut block = device.allocate(&one, 5 << 20).expect("a block");
    block.fill(0, 5 << 20, 1).expect("queued");
    drop(block);
    // From here on there is an event for what the first did while it was alone.
    let two = device.stream().expect("a second one");
    let _entered = enter();
    let create: unsafe extern "C" fn(*mut u64, u32) -> i32 = raw("cuStreamCreate");
    let begin: unsafe extern "C" fn(u64, i32) -> i32 = raw("cuStreamBeginCapture_v2");
    let end: unsafe extern "C" fn(u64, *mut u64) -> i32 = raw("cuStreamEndCapture");
    let [destroy, destroy_graph]: [unsafe extern "C" fn(u64) -> i32; 2] =
        [raw("cuStreamDestroy_v2"), raw("cuGraphDestroy")];
    let (mut handle, mut graph) = (0, 0);
    // SAFETY: the driver writes one handle; the device's context is current on this thread.
    assert_eq!(unsafe { create(&mut handle, 1) }, 0);
    // SAFETY: a live stream; mode 0 is global, the strictest.
    assert_eq!(unsafe { begin(handle, 0) }, 0);
    // SAFETY: a live stream of this device, destroyed after the last use.
    let fresh = unsafe { device.adopt_stream(RawStream(handle)) }.expect("adopted");
    let pool = device.graph_pool().expect("a pool");
    let capture = fresh.capture(&pool).expect("routed");
    drop(device.allocate(&fresh, 1 << 20).expect("allocated during a capture"));
    drop(device.allocate(&two, 5 << 20).expect("what the first freed, or other memory"));
    // SAFETY: the capture begun above; the driver writes one handle.
    assert_eq!(unsafe { end(handle, &mut graph) }, 0, "the capture was not disturbed");
    drop((capture, pool, fresh));
    // SAFETY: the graph just made.
    assert_eq!(unsafe { destroy_graph(graph) }, 0);
    // SAFETY: nothing knows the stream any more.
    assert_eq!(unsafe { destroy(handle) }, 0);
    assert!(session.violations().is_empty(), "{:?}", session.violations());
}

/// A second stream begins behind what the first has under way: the device orders them, the host goes on.
#[test]
fn a_second_stream_is_ordered_by_the_device_and_not_by_the_host() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let one = device.stream().expect("a stream");
    session.hold();
    let mut block = device.allocate(&one, 10 << 20).expect("a block");
    block.fill(0, 10 << 20, 1).expect("queued");
    drop(block);
    device.coalesce();
    let calls = || ["cuStreamWaitEvent", "cuEventSynchronize"].map(|name| session.calls(Some(name)));
    let before = calls();
    let two = device.stream().expect("another");
    let after = calls();
    assert_eq!([after[0] - before[0], after[1] - before[1]], [1, 0], "one order for the device, no wait of the host");
    let mut block = device.allocate(&two, 10 << 20).expect("the same memory");
    block.fill(0, 10 << 20, 2).expect("queued");
    session.release();
    two.synchronize().expect("done");
}

/// A graph's pool that is dropped goes back at once, or, where a stream has work that may be a launch, once that is done.
#[test]
fn a_dropped_graph_pool_goes_back_once_its_streams_are_done() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    graph_pools_go_back(&session, &device, &[&stream]);
    let other = device.stream().expect("another, so that frees wait for events");
    graph_pools_go_back(&session, &device, &[&stream, &other]);
}

fn graph_pools_go_back(session: &Session, device: &Device, streams: &[&Stream]) {
    let stream = streams[0];
    let mut work = device.allocate(stream, 1 << 20).expect("a block");
    let captured = || {
        let pool = device.graph_pool().expect("a pool");
        let capture = stream.capture(&pool).expect("routed");
        drop(device.allocate(stream, 5 << 20).expect("the pool's"));
        drop(capture);
        device.trim();
        streams.iter().for_each(|stream| stream.synchronize().expect("events are done"));
        pool
    };
    let kept = || {
        let graphs = device.stats().graphs;
        (graphs.reserved >= 5 << 20, graphs.reserved > 0, graphs.metadata > 0)
    };
    let idle = captured();
    assert_eq!(kept(), (true, true, true));
    drop(idle);
    assert_eq!(kept(), (false, false, false), "no stream has work");
    let launched = captured();
    session.hold();
    work.fill(0, 1 << 20, 1).expect("queued");
    drop(launched);
    drop(device.allocate(stream, 5 << 20).expect("other memory"));
    assert_eq!(kept(), (true, true, true), "what is queued may use it");
    session.release();
    stream.synchronize().expect("done");
    device.trim();
    assert_eq!(kept(), (false, false, false), "nothing is queued any more");
}
