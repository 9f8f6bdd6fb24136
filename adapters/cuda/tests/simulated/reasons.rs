//! The driver's errors as the layers above see them; captures of other code, which must not be invalidated.

use crate::contexts::Kept;
use crate::handles::Simulated;
use crate::workout::surely;
use cudarc::driver::sys;
use std::ptr::null_mut;
use terrace_device::{Backend, Fault, FaultReason, MemoryKind, RawEvent, RawStream};
use terrace_tests::simcuda::{Session, Simulator};

const DISCRETE: &str = r#"{"profile":"discrete"}"#;

/// The fault that `call` returns when the driver answers `function` with a code.
fn refused<T: std::fmt::Debug>(
    session: &Session,
    function: &'static str,
    code: i32,
    call: impl FnOnce() -> Result<T, Fault>,
) -> FaultReason {
    session.fail(function, 1, code);
    let fault = call().expect_err("the driver refuses");
    assert_eq!((fault.call, fault.code), (function, code));
    fault.reason
}

#[test]
fn codes_have_reasons() {
    let session = Simulator::exclusive(DISCRETE);
    let cuda = Simulated::open(0);
    let expected = [
        (2, FaultReason::OutOfMemory),
        (800, FaultReason::Unsupported),
        (801, FaultReason::Unsupported),
        (400, FaultReason::BadHandle),
        (900, FaultReason::Capturing),
        (908, FaultReason::Capturing),
        (700, FaultReason::Lost),
        (719, FaultReason::Lost),
        (214, FaultReason::Lost),
        (709, FaultReason::Lost),
        (4, FaultReason::Lost),
        (3, FaultReason::Lost),
        (1, FaultReason::Other),
        (999, FaultReason::Other),
        (-7, FaultReason::Other),
        (123_456, FaultReason::Other),
    ];
    for (code, reason) in expected {
        assert_eq!(refused(&session, "cuMemAlloc_v2", code, || cuda.take(MemoryKind::Device, 64)), reason, "{code}");
        assert_eq!(refused(&session, "cuCtxGetCurrent", code, || cuda.take(MemoryKind::Device, 64)), reason, "{code}");
    }
}

#[test]
fn an_invalid_value_is_a_bad_handle_where_only_handles_are_passed() {
    let session = Simulator::exclusive(DISCRETE);
    let cuda = Simulated::open(0);
    let stream = cuda.create_stream().expect("a stream");
    let event = cuda.create_event().expect("an event");
    let bad = FaultReason::BadHandle;
    assert_eq!(refused(&session, "cuEventRecord", 1, || cuda.record(event, stream)), bad);
    assert_eq!(refused(&session, "cuEventQuery", 1, || cuda.query(event)), bad);
    assert_eq!(refused(&session, "cuEventSynchronize", 1, || cuda.wait(event)), bad);
    assert_eq!(refused(&session, "cuStreamWaitEvent", 1, || cuda.order(stream, event)), bad);
    assert_eq!(refused(&session, "cuStreamSynchronize", 1, || cuda.synchronize_stream(stream)), bad);
    assert_eq!(refused(&session, "cuStreamQuery", 1, || cuda.is_idle(stream)), bad);
    assert_eq!(refused(&session, "cuStreamGetId", 1, || cuda.stream_name(stream)), bad);
    assert_eq!(refused(&session, "cuEventDestroy_v2", 1, || cuda.destroy_event(event)), bad);
    assert_eq!(refused(&session, "cuStreamDestroy_v2", 1, || cuda.destroy_stream(stream)), bad);
    cuda.destroy_event(event).expect("a refused call changed nothing");
    cuda.destroy_stream(stream).expect("a refused call changed nothing");
}

#[test]
fn handles_that_are_gone_are_refused() {
    let mut session = Simulator::exclusive(DISCRETE);
    session.allow_violations();
    let cuda = Simulated::open(0);
    let (stream, event) = (cuda.create_stream().expect("a stream"), cuda.create_event().expect("an event"));
    cuda.destroy_stream(stream).expect("it is ours");
    cuda.destroy_event(event).expect("it is ours");
    let bad = |result: Result<(), Fault>| assert_eq!(result.expect_err("it is gone").reason, FaultReason::BadHandle);
    bad(cuda.destroy_stream(stream));
    bad(cuda.synchronize_stream(stream));
    bad(cuda.stream_name(stream).map(|_| ()));
    bad(cuda.destroy_event(event));
    bad(cuda.record(event, RawStream(0)));
    bad(cuda.query(event).map(|_| ()));
    bad(cuda.wait(RawEvent(12)));
    // SAFETY: the driver refuses an address that it did not allocate.
    bad(unsafe { cuda.give_back(MemoryKind::Device, 4096, 64) });
}

#[test]
fn not_yet_is_an_answer() {
    let session = Simulator::exclusive(DISCRETE);
    let cuda = Simulated::open(0);
    let (stream, event) = (cuda.create_stream().expect("a stream"), cuda.create_event().expect("an event"));
    let address = cuda.take(MemoryKind::Device, 256).expect("memory");
    session.hold();
    // SAFETY: all of the region, which is freed after the stream is synchronized.
    unsafe { cuda.fill(address, 1, 256, stream) }.expect("it waits on the stream");
    cuda.record(event, stream).expect("behind it");
    assert_eq!(cuda.query(event), Ok(false));
    session.release();
    cuda.wait(event).expect("it happens");
    assert_eq!(cuda.query(event), Ok(true));
    cuda.synchronize().expect("it is idle");
    // SAFETY: allocated above; the stream is synchronized.
    unsafe { cuda.give_back(MemoryKind::Device, address, 256) }.expect("it is ours");
    cuda.destroy_event(event).expect("it is ours");
    cuda.destroy_stream(stream).expect("it is ours");
}

/// Another library of the process captures a graph in global mode, the strictest.
#[test]
fn a_capture_elsewhere_goes_on() {
    let _session = Simulator::exclusive(DISCRETE);
    let cuda = Simulated::open(0);
    let (captured, stream) = (cuda.create_stream().expect("a stream"), cuda.create_stream().expect("a stream"));
    let event = cuda.create_event().expect("an event");
    let address = cuda.take(MemoryKind::Device, 256).expect("memory");
    let handle = captured.0 as sys::CUstream;
    let _kept = Kept::current(0);
    let global = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: a live stream.
    unsafe { sys::cuStreamBeginCapture_v2(handle, global) }.result().expect("nothing is captured yet");
    // SAFETY: the memory outlives the capture; the operation is captured, and never executed.
    unsafe { cuda.fill(address, 1, 256, captured) }.expect("it is captured");

    std::thread::scope(|scope| {
        scope.spawn(|| disturb(&cuda, stream, event));
    });
    disturb(&cuda, stream, event);

    let mut graph = null_mut();
    // SAFETY: the stream is capturing; the out parameter lives through the call.
    unsafe { sys::cuStreamEndCapture(handle, &raw mut graph) }.result().expect("the capture was left alone");
    // SAFETY: the graph of this capture, destroyed once.
    unsafe { sys::cuGraphDestroy(graph) }.result().expect("it is ours");
    cuda.destroy_event(event).expect("it is ours");
    for stream in [captured, stream] {
        cuda.destroy_stream(stream).expect("it is ours");
    }
    // SAFETY: allocated above; the captured operation never executes.
    unsafe { cuda.give_back(MemoryKind::Device, address, 256) }.expect("it is ours");
}

/// Calls everything that an allocator calls while other code captures on another stream.
fn disturb(cuda: &Simulated, stream: RawStream, event: RawEvent) {
    for kind in crate::workout::kinds(cuda) {
        let address = cuda.take(kind, 4096).expect("allowed");
        // SAFETY: allocated above, and no stream uses it.
        unsafe { cuda.give_back(kind, address, 4096) }.expect("allowed");
    }
    cuda.record(event, stream).expect("allowed");
    cuda.wait(event).expect("allowed");
    assert_eq!(cuda.query(event), Ok(true));
    cuda.synchronize_stream(stream).expect("allowed");
    let page = cuda.create_handle(cuda.description().page_bytes).expect("allowed");
    surely(|| cuda.release_handle(page)).expect("allowed");
}

/// A call that a capture forbids on every thread is refused with `FaultReason::Capturing`.
#[test]
fn what_a_capture_forbids_is_told() {
    let mut session = Simulator::exclusive(DISCRETE);
    session.allow_violations();
    let cuda = Simulated::open(0);
    let stream = cuda.create_stream().expect("a stream");
    let handle = stream.0 as sys::CUstream;
    let _kept = Kept::current(0);
    let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: a live stream.
    unsafe { sys::cuStreamBeginCapture_v2(handle, mode) }.result().expect("nothing is captured yet");
    assert_eq!(cuda.synchronize_stream(stream).expect_err("it captures").reason, FaultReason::Capturing);
    let mut graph = null_mut();
    // SAFETY: the stream is capturing; the out parameter lives through the call. The capture is invalidated.
    let _ = unsafe { sys::cuStreamEndCapture(handle, &raw mut graph) };
    cuda.destroy_stream(stream).expect("it is ours");
}
