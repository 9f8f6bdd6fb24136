//! One wrong answer of the driver, to any call: memory still goes to those only who come after its last user.

use super::{open, small};
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_device::{Device, DeviceBlock, DeviceOptions, Stream};
use terrace_tests::Random;
use terrace_tests::simcuda::{Simulator, swept};

/// CUDA's codes: invalid value, out of memory, invalid handle, not ready, not supported, a capture in the way, unknown.
const CODES: [i32; 7] = [1, 2, 400, 600, 801, 900, 999];

/// What a driver says of a stream that it does not know.
const INVALID_HANDLE: i32 = 400;

/// A function fails at its first, second, ... call: what comes later meets states that these have met.
const FIRST: u64 = 6;

/// Blocks that come and go on three streams. Each is written to, so that the simulator sees who came before whom.
fn program(device: &Device, streams: &[Stream]) {
    let mut random = Random::new(7);
    let mut live: [Option<DeviceBlock>; 12] = [const { None }; 12];
    for step in 0..160 {
        let slot = &mut live[random.below(12) as usize];
        *slot = None;
        let stream = &streams[random.below(3) as usize];
        // What a fault refuses is missing, and no more.
        *slot = device.allocate(stream, (1 + random.below(12)) << 20).ok();
        if let Some(block) = slot {
            let _ = block.fill(0, 1000, step as u8);
        }
        if step % 50 == 49 {
            device.trim();
        }
    }
}

/// The calls of each function that the program makes, if nothing fails.
fn calls() -> Vec<(String, u64)> {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let streams = [(); 3].map(|()| device.stream().expect("a stream"));
    let count = |name: &str| session.calls(Some(name));
    let before: Vec<_> = session.names().into_iter().map(|(name, _)| (count(&name), name)).collect();
    program(&device, &streams);
    before
        .into_iter()
        .map(|(made, name)| (count(&name) - made, name))
        .filter(|(made, _)| *made > 0)
        .map(|(made, name)| (name, made))
        .collect()
}

#[test]
fn one_refused_call_lets_no_memory_be_used_without_order() {
    let calls = calls();
    assert!(calls.iter().any(|(name, made)| name == "cuEventRecord" && *made >= FIRST), "{calls:?}");
    let mut wrong = Vec::new();
    let mut faults = 0;
    for (name, made) in &calls {
        for (nth, code) in swept(FIRST.min(*made), &CODES) {
            let mut session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
            session.allow_leaks().allow_violations();
            let device = open(0, small()).expect("a device");
            let streams = [(); 3].map(|()| device.stream().expect("a stream"));
            session.fail(name, nth, code);
            program(&device, &streams);
            session.fail("*", 0, 0);
            faults += 1;
            wrong.extend(session.violations().first().map(|said| format!("{name}, call {nth}, code {code}: {said}")));
        }
    }
    assert!(wrong.is_empty(), "{} of {faults} single faults:\n{}", wrong.len(), wrong.join("\n"));
}

/// Memory for one block only, which two streams take in turns; each writes to it.
fn in_turns(device: &Device, streams: &[Stream; 2], turns: usize) {
    for stream in streams.iter().cycle().take(turns) {
        let mut block = device.allocate(stream, 40 << 20).expect("what the other stream freed");
        block.fill(0, 40 << 20, 1).expect("queued");
    }
}

fn narrow() -> DeviceOptions {
    DeviceOptions { capacity: 64 << 20, ..small() }
}

/// The driver denies a stream that lives by two calls: from then on what it frees waits for the device.
#[test]
fn a_stream_that_is_denied_and_lives_is_waited_for() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, narrow()).expect("a device");
    let streams = [(); 2].map(|()| device.stream().expect("a stream"));
    in_turns(&device, &streams, 1);
    session.fail("cuEventRecord", 1, INVALID_HANDLE);
    // Whether it is idle is asked before, and whether it lives after.
    session.fail("cuStreamQuery", 1, INVALID_HANDLE);
    session.fail("cuStreamQuery", 2, INVALID_HANDLE);
    in_turns(&device, &[streams[1].clone(), streams[0].clone()], 7);
    assert!(session.calls(Some("cuCtxSynchronize")) >= 3, "once for each of its blocks that the other takes");
    assert_eq!(session.violations(), [""; 0]);
}

/// One wrong answer costs no wait for the device, then or later: the stream is asked again.
#[test]
fn a_living_stream_s_event_is_asked_for_again() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, narrow()).expect("a device");
    let streams = [(); 2].map(|()| device.stream().expect("a stream"));
    in_turns(&device, &streams, 1);
    session.fail("cuStreamQuery", 1, INVALID_HANDLE);
    session.fail("cuEventRecord", 1, INVALID_HANDLE);
    in_turns(&device, &[streams[1].clone(), streams[0].clone()], 7);
    assert_eq!(session.calls(Some("cuCtxSynchronize")), 0);
    assert_eq!(session.violations(), [""; 0]);
}

/// The last event of a stream that is closed was refused while an older one was pending, which does not cover its end: the next
/// stream comes after all of it.
#[test]
fn a_stream_that_is_closed_without_its_last_event_is_waited_for() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let first = device.stream().expect("a stream");
    session.hold();
    let mut pinned = device.allocate_pinned(&first, 1 << 20, 4096).expect("pinned memory");
    pinned.fill(0, 1 << 20, 1).expect("queued");
    drop(pinned);
    let mut block = device.allocate(&first, 10 << 20).expect("a block");
    block.fill(0, 10 << 20, 2).expect("queued");
    let address = block.address();
    drop(block);
    session.fail("cuEventRecord", 1, INVALID_HANDLE);
    drop(first);
    let before = session.calls(Some("cuCtxSynchronize"));
    let opened = AtomicBool::new(false);
    let second = std::thread::scope(|scope| {
        scope.spawn(|| {
            while session.calls(Some("cuCtxSynchronize")) == before && !opened.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            session.release();
        });
        let second = device.stream().expect("another");
        let mut block = device.allocate(&second, 10 << 20).expect("the same memory");
        assert_eq!(block.address(), address);
        block.fill(0, 10 << 20, 3).expect("queued");
        opened.store(true, Ordering::Relaxed);
        second
    });
    second.synchronize().expect("done");
    assert_eq!(session.violations(), [""; 0]);
}
