//! Devices that are gone, and processes that forked.

use super::{open, small};
use std::sync::atomic::{AtomicU32, Ordering};
use terrace_device::{DeviceBuffer, DeviceError, FaultReason, PinnedBuffer, TransferEngine};
use terrace_tests::hung::in_child;
use terrace_tests::simcuda::Simulator;

/// CUDA's code for a kernel that touched memory it may not.
const ILLEGAL_ADDRESS: i32 = 700;

#[test]
fn a_lost_device_says_so_and_its_blocks_are_nobody_s() {
    let mut session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    session.allow_leaks(); // the driver takes nothing back from a lost context
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let mut block = device.allocate(&stream, 1 << 20).expect("a block");
    drop(device.allocate(&stream, 4096).expect("one that is cached"));
    session.lose(0, ILLEGAL_ADDRESS);
    let error = block.write(0, &[1]).expect_err("the device is lost");
    assert!(matches!(error, DeviceError::Lost { .. }), "{error:?}");
    assert!(error.to_string().contains("lost"), "{error}");
    for bytes in [4096, 1 << 20] {
        let error = device.allocate(&stream, bytes).expect_err("nothing is given out any more");
        assert!(matches!(error, DeviceError::Lost { fault, .. } if fault.reason == FaultReason::Lost), "{error:?}");
    }
    assert!(matches!(device.memory(), Err(DeviceError::Lost { .. })));
    assert!(matches!(device.stream(), Err(DeviceError::Lost { .. })));
    drop(block);
    device.trim();
    device.check().expect("the pool is whole");
    drop((stream, device));
}

#[test]
fn a_forked_child_gets_an_error_and_its_drops_do_nothing() {
    let _session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    let block = device.allocate(&stream, 1 << 20).expect("a block");
    drop(device.allocate(&stream, 4096).expect("one that is cached"));
    let (device, ..) = in_child((device, stream, block), |(device, stream, block)| {
        let cached = device.allocate(&stream, 4096);
        let fresh = device.allocate(&stream, 8 << 20);
        let all = [cached.map(drop), fresh.map(drop), device.stream().map(drop), device.memory().map(drop)];
        let forked = |result: &Result<(), DeviceError>| matches!(result, Err(DeviceError::Lost { fault, .. }) if fault.reason == FaultReason::Forked);
        assert!(all.iter().all(forked), "the child was told that it is one");
        drop((block, stream, device));
    });
    let stream = device.stream().expect("the parent's device works");
    drop(device.allocate(&stream, 1 << 20).expect("a block"));
}

/// Counts when it is dropped.
struct Counted;

static DROPPED: AtomicU32 = AtomicU32::new(0);

impl Drop for Counted {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// A child drops everything of a device, and with it the device: what others brought is the parent's, and no call waits.
#[test]
fn a_forked_child_that_drops_all_of_a_device_calls_and_drops_nothing_of_others() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let (stream, other) = (device.stream().expect("a stream"), device.stream().expect("another"));
    let (hook, keeper, release) = (Counted, Counted, Counted);
    device.on_out_of_memory(move |_| std::mem::size_of_val(&hook) > 0);
    let mut buffer = DeviceBuffer::<u8>::new(&device, &stream, 1 << 20).expect("memory");
    let pinned = PinnedBuffer::<u8>::new(&device, &stream, 1 << 20).expect("pinned memory");
    // SAFETY: a stream of the device's own, which goes after the one that is adopted.
    let kept = unsafe { device.adopt_kept_stream(other.raw(), keeper) }.expect("adopted");
    let release = Box::new(move |_, _| drop(release));
    // SAFETY: memory of the buffer, which is used by nobody meanwhile.
    let wrapped = unsafe { device.wrap(&kept, buffer.address(), 256, Some(release)) }.expect("wrapped");
    let engine = TransferEngine::new(&device).expect("an engine");
    let target = DeviceBuffer::<u8>::new(&device, &stream, 1 << 20).expect("memory");
    session.hold();
    let upload = engine.upload(vec![1; 1 << 20], target, 0);
    let copy = pinned.copy_to(&mut buffer).expect("on its way");
    // Held behind the copy's stream.
    wrapped.used_on(&stream).expect("the same device");
    drop(wrapped);
    assert_eq!((device.stats().held, DROPPED.load(Ordering::Relaxed)), (1, 0));
    let all = (upload, copy, engine, buffer, stream, kept, other, device);
    let all = in_child(all, |(upload, copy, engine, mut buffer, stream, kept, other, device)| {
        let refused = [buffer.block().used_on(&other), buffer.block().lend(&other), buffer.to_vec().map(drop)];
        let mut refused: Vec<_> = refused.into_iter().filter_map(Result::err).collect();
        refused.extend(engine.write(&mut buffer, 0, &[1]).err());
        refused.extend(device.graph_pool().err());
        device.forget_hook();
        device.trim();
        let said = format!("{buffer:?} {device:?}");
        drop((upload, copy, engine));
        drop((buffer, stream, kept, other));
        drop(device);
        assert!(refused.len() == 5 && refused.iter().all(is_forked) && !said.is_empty(), "the child was told");
        assert_eq!(DROPPED.load(Ordering::Relaxed), 0, "it left alone what is the parent's");
    });
    session.release();
    drop(all);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 3, "the parent's drops are its own");
}

fn is_forked(error: &DeviceError) -> bool {
    matches!(error, DeviceError::Lost { fault, .. } if fault.reason == FaultReason::Forked)
}
