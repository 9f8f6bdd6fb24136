//! Copies on their way: who may touch the memory, what happens to buffers that are dropped or forgotten, and what a buffer on
//! two sides asks of the driver.

use super::{open, small};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use terrace_device::{BufferSide, Capabilities, Device, DeviceBuffer, DeviceOptions, FallbackBuffer, PinnedBuffer};
use terrace_tests::Random;
use terrace_tests::device::fallback::{choose, step};
use terrace_tests::simcuda::{Simulator, swept};

const DISCRETE: &str = r#"{"profile": "discrete"}"#;

/// CUDA's codes: out of memory, not supported, unknown.
const CODES: [i32; 3] = [2, 801, 999];

#[test]
fn a_resident_side_asks_nothing_of_the_driver() {
    let session = Simulator::exclusive(DISCRETE);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let mut buffer = FallbackBuffer::<u32>::new(&device, &stream, 10_000).expect("a buffer");
    buffer.on_device().expect("a copy");
    assert_eq!(buffer.host_mut(5..6).expect("waits for the copy")[0], 0);
    let before = session.calls(None);
    for i in 0..1_000 {
        assert_eq!(buffer.host().expect("resident")[5], i);
        buffer.host_mut(5..6).expect("resident")[0] += 1;
        assert_eq!(buffer.host_mut(5..6).expect("resident")[0], i + 1);
    }
    assert_eq!(session.calls(None), before, "calls of the driver for 3,000 accesses of the host");
    let copies = session.calls(Some("cuMemcpyAsync"));
    buffer.on_device_mut().expect("one copy");
    assert_eq!(session.calls(Some("cuMemcpyAsync")), copies + 1, "the one range goes over");
    let before = session.calls(None);
    (0..1_000).for_each(|_| assert_eq!(buffer.on_device_mut().expect("resident").len(), 10_000));
    assert_eq!(session.calls(None), before, "calls of the driver for 1,000 accesses of the device");
    assert!(buffer.stats().hits >= 4_000 && buffer.side() == BufferSide::DeviceDirty);
}

/// The host's memory is being read by a copy that has not begun: whoever would write it waits.
#[test]
fn the_host_does_not_write_what_is_being_copied() {
    let session = Simulator::exclusive(DISCRETE);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let mut buffer = FallbackBuffer::from_slice(&device, &stream, &[1u32; 10_000]).expect("a buffer");
    let mut seen = DeviceBuffer::<u32>::new(&device, &stream, 10_000).expect("a buffer");
    session.hold();
    let slice = buffer.on_device().expect("nobody waits");
    seen.as_slice_mut().copy_from(&slice).expect("nobody waits");
    assert_eq!(buffer.host().expect("reading beside a reader needs no wait")[0], 1);
    let written = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            buffer.host_mut(..).expect("after the copy").fill(2);
            written.store(true, Ordering::SeqCst);
        });
        // Time for a thread that does not wait to do its damage.
        std::thread::sleep(Duration::from_millis(50));
        assert!(!written.load(Ordering::SeqCst), "written while a copy was to read it");
        session.release();
    });
    assert_eq!(seen.to_vec().expect("there"), vec![1; 10_000], "what the device was to see");
    assert_eq!(buffer.on_device().expect("a copy").to_vec().expect("there"), vec![2; 10_000]);
}

/// On a full device, work on the host's memory is waited for like any other.
#[test]
fn the_host_does_not_read_what_a_full_device_writes() {
    let session = Simulator::exclusive(DISCRETE);
    let device = open(0, terrace_device::DeviceOptions { capacity: 4 << 20, ..small() }).expect("a device");
    let stream = device.stream().expect("a stream");
    let all = device.allocate(&stream, 4 << 20).expect("all there is");
    let mut buffer = FallbackBuffer::<u8>::new(&device, &stream, 1 << 20).expect("a buffer");
    session.hold();
    buffer.on_device_mut().expect("the host's memory").fill(7).expect("put on the stream");
    assert!(buffer.is_fallback());
    drop(all);
    // The device has room again: what was put on the stream comes first, then the copy.
    (0..3).for_each(|_| _ = buffer.on_device().expect("in order"));
    assert_eq!(buffer.side(), BufferSide::Both);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| buffer.host().expect("after the work").iter().all(|&byte| byte == 7));
        std::thread::sleep(Duration::from_millis(50));
        session.release();
        assert!(reader.join().expect("no panic"), "read before it was written");
    });
    assert_eq!(buffer.on_device().expect("there").to_vec().expect("there"), vec![7; 1 << 20]);
}

#[test]
fn memory_of_a_dropped_buffer_is_nobody_s_while_copies_use_it() {
    let session = Simulator::exclusive(DISCRETE);
    let device = open(0, small()).expect("a device");
    let (one, two) = (device.stream().expect("a stream"), device.stream().expect("another"));
    let mut target = DeviceBuffer::<u32>::new(&device, &one, 10_000).expect("a buffer");
    let staging = PinnedBuffer::<u32>::new(&device, &one, 10_000).expect("pinned memory");
    let mut buffer = FallbackBuffer::from_slice(&device, &one, &[3u32; 10_000]).expect("a buffer");
    let pinned = staging.address();
    session.hold();
    drop(staging.copy_to(&mut target).expect("on its way"));
    let on_device = buffer.on_device().expect("on its way").address();
    target.as_slice_mut().copy_from(&buffer.on_device().expect("there")).expect("on its way");
    drop(buffer);
    let other = PinnedBuffer::<u32>::new(&device, &one, 10_000).expect("other memory");
    assert_ne!(other.address(), pinned, "pinned memory that a copy reads is nobody's");
    let blocks: Vec<_> = (0..8).map(|_| device.allocate(&two, 40_000).expect("other memory")).collect();
    assert!(blocks.iter().all(|block| block.address() != on_device), "another stream's memory is its own till then");
    session.release();
    assert_eq!(target.to_vec().expect("there"), vec![3; 10_000]);
}

#[test]
fn a_forgotten_copy_keeps_its_memory_for_ever() {
    let mut session = Simulator::exclusive(DISCRETE);
    session.allow_leaks(); // what is forgotten is never given back
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let mut target = DeviceBuffer::<u32>::new(&device, &stream, 10_000).expect("a buffer");
    for round in 0..5 {
        let mut staging = PinnedBuffer::<u32>::new(&device, &stream, 10_000).expect("pinned memory");
        staging.fill(round);
        session.hold();
        std::mem::forget(staging.copy_to(&mut target).expect("on its way"));
        let mut other = PinnedBuffer::<u32>::new(&device, &stream, 10_000).expect("other memory");
        other.fill(99);
        session.release();
        assert_eq!(target.to_vec().expect("there"), vec![round; 10_000], "round {round}");
    }
    assert_eq!(device.stats().pinned.live_blocks, 5);
    device.trim();
    device.check().expect("the pool is whole");
}

/// A random program; a step that fails is taken again. At the end every byte is right and nothing is left.
fn program(len: usize) -> Result<u64, String> {
    let device = open_or_say()?;
    let say = |error: terrace_device::DeviceError| error.to_string();
    let stream = device.stream().or_else(|_| device.stream()).map_err(say)?;
    let mut again = 0;
    let made = FallbackBuffer::<u32>::new(&device, &stream, len).inspect_err(|_| again += 1);
    let mut buffer = made.or_else(|_| FallbackBuffer::new(&device, &stream, len)).map_err(say)?;
    let (mut random, mut model) = (Random::new(7), vec![0; len]);
    for at in 0..60 {
        let chosen = choose(&mut random, len);
        let right = step(&mut buffer, &mut model, chosen).or_else(|_| {
            again += 1;
            step(&mut buffer, &mut model, chosen)
        });
        if !right.map_err(|error| format!("step {at} failed twice: {error}"))? {
            return Err(format!("step {at}, {chosen:?}: wrong bytes"));
        }
    }
    let host = buffer.host().inspect_err(|_| again += 1).map(|elements| *elements == model);
    if !host.or_else(|_| buffer.host().map(|elements| *elements == model)).map_err(say)? {
        return Err("wrong bytes in the end".into());
    }
    device.check().map_err(|violation| violation.to_string())?;
    Ok(again)
}

fn open_or_say() -> Result<Device, String> {
    let open = || terrace_cuda::Cuda::open(0).map_err(|error| format!("refused: {error}"));
    let cuda = open().or_else(|_| open())?;
    let device = Device::open(cuda, terrace_device::DeviceOptions { capacity: 64 << 20, ..small() });
    let device = device.map_err(|error| format!("refused: {error}"))?;
    let pinned = device.description().capabilities.contains(Capabilities::PINNED);
    if pinned { Ok(device) } else { Err("refused: it was found out that there is no pinned memory".into()) }
}

#[test]
fn every_call_fails_once_and_no_byte_is_wrong() {
    const LEN: usize = 4_000;
    let calls = {
        let session = Simulator::exclusive(DISCRETE);
        assert_eq!(program(LEN), Ok(0), "nothing fails");
        session.calls(None)
    };
    let (mut failed, all) = (0, swept(calls, &CODES).len() as u64);
    for (nth, code) in swept(calls, &CODES) {
        let session = Simulator::exclusive(DISCRETE);
        session.fail("*", nth, code);
        match program(LEN) {
            Ok(again) => failed += again,
            Err(said) if said.starts_with("refused") => {}
            Err(said) => panic!("call {nth} of {calls}: {said}"),
        }
        session.fail("*", 0, 0);
    }
    assert!(failed * 16 > all, "of {all} faults only {failed} reached a buffer");
}

/// More than the device has in all is no request that it can ever meet: the host's memory serves, as where the device is full.
#[test]
fn what_is_larger_than_the_device_stays_on_the_host() {
    const LEN: usize = 10 << 20;
    let _session = Simulator::exclusive(r#"{"profile": "discrete", "total": 33554432}"#);
    let device = open(0, DeviceOptions { capacity: 16 << 20, ..small() }).expect("a device");
    let stream = device.stream().expect("a stream");
    let mut buffer = FallbackBuffer::<u32>::new(&device, &stream, LEN).expect("a buffer of 40 MiB");
    buffer.host_mut(LEN - 1..).expect("the host's")[0] = 7;
    let slice = buffer.on_device().expect("what the device reads").slice(LEN - 1..).expect("the last element");
    assert_eq!(slice.to_vec(), Ok(vec![7]));
    assert!(buffer.is_fallback());
    assert_eq!(device.stats().pool.failed, 0, "the device was not asked");
}
