//! Transfers over the driver: faults of any call, work in flight, few calls, ends.

use super::{open, small};
use std::collections::BTreeMap;
use std::time::Duration;
use terrace_device::{
    Capabilities, Device, DeviceBuffer, DeviceError, FaultReason, Stream, TransferEngine, TransferOptions,
};
use terrace_tests::Random;
use terrace_tests::hung::in_child;
use terrace_tests::simcuda::{Session, Simulator};

pub const DISCRETE: &str = r#"{"profile": "discrete"}"#;

/// CUDA's "time ran out": may pass. And "launch out of resources", which does not.
pub const TRANSIENT: i32 = 909;
pub const PERMANENT: i32 = 701;

/// Small pieces, short waits.
pub fn options() -> TransferOptions {
    let backoff = Duration::from_micros(1);
    TransferOptions { chunk: (4 << 10, 32 << 10), backoff, backoff_most: backoff, ..TransferOptions::default() }
}

/// The driver, a device, a stream and an engine; in this order, so that the driver is looked at when the rest is gone.
pub fn ground(options: TransferOptions) -> (Session, Device, Stream, TransferEngine) {
    let session = Simulator::exclusive(DISCRETE);
    let device = open(0, small()).expect("the device opens");
    let stream = device.stream().expect("a stream");
    let engine = TransferEngine::with(&device, options).expect("an engine");
    (session, device, stream, engine)
}

pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.next() as u8).collect()
}

pub fn buffer(device: &Device, stream: &Stream, len: usize) -> DeviceBuffer<u8> {
    DeviceBuffer::new(device, stream, len).expect("there is room")
}

/// What a driver refused so often that no try was left.
pub fn is_driver(error: &DeviceError) -> bool {
    matches!(error, DeviceError::Driver { .. })
}

/// While copies are held, dropping, forgetting and cancelling free nothing early: the driver's own checks say so.
#[test]
fn what_is_in_flight_is_not_freed() {
    let mut session = Simulator::exclusive(DISCRETE);
    // What a forgotten future owns stays out.
    session.allow_leaks();
    let device = open(0, small()).expect("the device opens");
    let stream = device.stream().expect("a stream");
    let engine = TransferEngine::with(&device, options()).expect("an engine");
    session.hold();
    let mut forgotten = BTreeMap::new();
    for seed in 0..6u64 {
        let upload = engine.upload(bytes(seed, 60_000), buffer(&device, &stream, 60_000), 0);
        let down = engine.download(buffer(&device, &stream, 5_000), 0, vec![0u8; 5_000]);
        while session.calls(Some("cuMemcpyAsync")) <= seed.min(1) {
            std::thread::yield_now();
        }
        match seed % 3 {
            0 => drop((upload, down)),
            1 => {
                std::mem::forget(down);
                forgotten.insert(seed, upload);
            }
            _ => {
                let cancelled = std::thread::spawn(move || upload.cancel());
                drop(down);
                std::thread::sleep(Duration::from_millis(2));
                session.release();
                if let Err(undone) = cancelled.join().expect("no panic") {
                    assert_eq!(undone.error, DeviceError::Cancelled);
                    let (content, torn) = *undone.buffers.expect("the buffers come back");
                    assert_eq!(content, bytes(seed, 60_000));
                    let _ = torn.into_inner();
                }
                session.hold();
            }
        }
        // Memory that came free too early would be given out here, and written while it is read.
        let mut other = buffer(&device, &stream, 60_000);
        other.as_slice_mut().fill(9).expect("a fill");
    }
    session.release();
    for (seed, upload) in forgotten {
        let done = upload.wait().expect("it is done");
        assert_eq!(done.target.to_vec().expect("bytes"), bytes(seed, 60_000));
    }
}

/// A transfer comes after what was put on its buffer's stream before.
#[test]
fn transfers_come_after_the_stream_s_work() {
    let (session, device, stream, engine) = ground(options());
    let mut there = buffer(&device, &stream, 100_000);
    for value in 0..5 {
        session.hold();
        there.as_slice_mut().fill(value).expect("a fill");
        let down = engine.download(there, 0, vec![255; 100_000]);
        std::thread::sleep(Duration::from_millis(1));
        session.release();
        let done = down.wait().expect("it is done");
        assert!(done.target.iter().all(|&byte| byte == value));
        there = done.source;
    }
}

/// Many small copies are few calls: on a driver that takes batches, and into one buffer on any.
#[test]
fn many_small_copies_are_few_calls() {
    for (batches, scattered_most) in [(true, 100), (false, 5_100)] {
        let session = Simulator::exclusive(DISCRETE);
        if !batches {
            // The probe's one; a driver before 12.8 has none at all.
            session.fail("cuMemcpyBatchAsync", 1, 801);
        }
        let device = open(0, small()).expect("the device opens");
        assert_eq!(device.description().capabilities.contains(Capabilities::BATCHES), batches);
        let stream = device.stream().expect("a stream");
        let engine = TransferEngine::new(&device).expect("an engine");
        let content = bytes(1, 4096);
        let copies =
            |session: &Session| session.calls(Some("cuMemcpyAsync")) + session.calls(Some("cuMemcpyBatchAsync"));
        let mut there = buffer(&device, &stream, 10_000 * 4096);
        let parts: Vec<(usize, &[u8])> = (0..10_000).map(|i| (i * 4096, content.as_slice())).collect();
        let before = copies(&session);
        engine.write_many(&mut there, &parts).expect("it is done");
        let together = copies(&session) - before;
        assert!(together <= 200, "batches {batches}: {together} copies of what lies side by side");
        // Every second page: nothing lies side by side.
        let parts: Vec<(usize, &[u8])> = (0..5_000).map(|i| (i * 8192, content.as_slice())).collect();
        let before = copies(&session);
        engine.write_many(&mut there, &parts).expect("it is done");
        let scattered = copies(&session) - before;
        assert!(scattered <= scattered_most, "batches {batches}: {scattered} copies of scattered pages");
        let mut back = vec![0; 4096];
        engine.read(&there, 4999 * 8192, &mut back).expect("it is done");
        assert_eq!(back, content);
    }
}

/// A child of a fork: typed errors, no wait for threads that are not there.
#[test]
fn a_forked_child_gets_errors() {
    let _session = Simulator::exclusive(DISCRETE);
    let device = open(0, small()).expect("the device opens");
    let stream = device.stream().expect("a stream");
    let engine = TransferEngine::new(&device).expect("an engine");
    let (one, two) = (buffer(&device, &stream, 10), buffer(&device, &stream, 10));
    let before = engine.upload(vec![1; 10], one, 0);
    let (engine, two, before) = in_child((engine, two, before), |(engine, two, before)| {
        let forked = |error: &DeviceError| matches!(error, DeviceError::Lost { fault, .. } if fault.reason == FaultReason::Forked);
        let early = before.wait();
        let late = engine.upload(vec![1; 10], two, 0).wait();
        drop(engine);
        assert!(early.is_err_and(|undone| forked(&undone.error)) && late.is_err_and(|undone| forked(&undone.error)));
    });
    drop(before.wait().expect("it is done here"));
    drop(engine.upload(vec![1; 10], two, 0).wait().expect("and so is this"));
}

/// A copy on the device comes after what was put on either buffer's stream.
#[test]
fn copies_come_after_both_streams() {
    let session = Simulator::exclusive(DISCRETE);
    let device = open(0, small()).expect("the device opens");
    let (one, two) = (device.stream().expect("a stream"), device.stream().expect("a stream"));
    let engine = TransferEngine::with(&device, options()).expect("an engine");
    let (mut from, mut to) = (buffer(&device, &one, 50_000), buffer(&device, &two, 50_000));
    session.hold();
    from.as_slice_mut().fill(5).expect("a fill");
    to.as_slice_mut().fill(6).expect("a fill");
    let copy = engine.copy(from, to);
    std::thread::sleep(Duration::from_millis(2));
    session.release();
    let done = copy.wait().expect("it is done");
    assert!(done.target.to_vec().expect("bytes").iter().all(|&byte| byte == 5));
}

/// Given up when all of it was on its way already: it is done. And a transfer is counted once.
#[test]
fn a_transfer_ends_once() {
    let (session, device, stream, engine) = ground(options());
    session.hold();
    let upload = engine.upload(bytes(4, 500), buffer(&device, &stream, 500), 0);
    while session.calls(Some("cuEventSynchronize")) == 0 {
        std::thread::yield_now();
    }
    let cancelled = std::thread::spawn(move || upload.cancel().is_ok());
    std::thread::sleep(Duration::from_millis(2));
    session.release();
    assert!(cancelled.join().expect("no panic"), "nothing was left to give up");
    let dropped = engine.upload(bytes(5, 500), buffer(&device, &stream, 500), 0);
    engine.upload(bytes(6, 500), buffer(&device, &stream, 500), 0).wait().expect("it is done");
    drop(dropped);
    // What was dropped may be on its way still.
    let ended = || engine.stats().up.transfers + engine.stats().up.cancelled;
    while ended() < 3 {
        std::thread::yield_now();
    }
    std::thread::sleep(Duration::from_millis(2));
    let stats = engine.stats();
    assert_eq!((stats.up.transfers + stats.up.cancelled, stats.up.failed), (3, 0), "{stats:?}");
    assert!(stats.up.efficiency() <= 1.5, "{stats:?}");
}

/// A stream that another library captures is left alone, and so are transfers that have nothing to do with it.
#[test]
fn a_capture_by_others_is_left_alone() {
    let session = Simulator::exclusive(DISCRETE);
    let device = open(0, small()).expect("the device opens");
    let (captured, free) = (device.stream().expect("a stream"), device.stream().expect("a stream"));
    let options = TransferOptions { attempts: 2, ..options() };
    let engine = TransferEngine::with(&device, options).expect("an engine");
    let (one, two) = (buffer(&device, &captured, 500), buffer(&device, &free, 500));
    capture(&session, captured.raw().0, |session| {
        let first = engine.upload(bytes(1, 500), one, 0);
        let second = engine.upload(bytes(2, 500), two, 0);
        let undone = first.wait().expect_err("its stream is captured");
        let reason = |error: &DeviceError| matches!(error, DeviceError::Driver { fault, .. } if fault.reason == FaultReason::Capturing);
        assert!(reason(&undone.error), "{undone}");
        assert!(undone.buffers.is_some(), "they come back");
        second.wait().expect("it has nothing to do with the capture");
        assert!(session.violations().is_empty());
    });
}

/// Captures a stream around some work, as another library does; the capture must end well.
fn capture(session: &Session, stream: u64, work: impl FnOnce(&Session)) {
    assert_eq!(captured(session, stream, work), 0, "the capture is whole");
}

/// The same. Gives what the end of the capture came to.
pub fn captured(session: &Session, stream: u64, work: impl FnOnce(&Session)) -> i32 {
    use super::streams::{enter, raw};
    let _context = enter();
    let begin: unsafe extern "C" fn(u64, i32) -> i32 = raw("cuStreamBeginCapture_v2");
    let end: unsafe extern "C" fn(u64, *mut u64) -> i32 = raw("cuStreamEndCapture");
    let destroy: unsafe extern "C" fn(u64) -> i32 = raw("cuGraphDestroy");
    // SAFETY: a live stream; relaxed.
    assert_eq!(unsafe { begin(stream, 2) }, 0);
    work(session);
    let mut graph = 0;
    // SAFETY: the stream captured above; the driver writes one handle.
    let ended = unsafe { end(stream, &mut graph) };
    if ended == 0 {
        // SAFETY: the graph just made.
        assert_eq!(unsafe { destroy(graph) }, 0);
    }
    ended
}
