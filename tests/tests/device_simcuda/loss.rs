//! Devices that are gone, and processes that forked.

use super::{open, small};
use terrace_device::{DeviceError, Reason};
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
        assert!(matches!(error, DeviceError::Lost { fault, .. } if fault.reason == Reason::Lost), "{error:?}");
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
    let ended = super::streams::in_child(|| {
        let cached = device.allocate(&stream, 4096);
        let fresh = device.allocate(&stream, 8 << 20);
        let all = [cached.map(drop), fresh.map(drop), device.stream().map(drop), device.memory().map(drop)];
        let forked = |result: &Result<(), DeviceError>| matches!(result, Err(DeviceError::Lost { fault, .. }) if fault.reason == Reason::Forked);
        let refused = all.iter().all(forked);
        drop(block);
        drop((stream.clone(), device.clone()));
        refused
    });
    assert!(ended, "the child was told that it is one");
    // The parent goes on.
    let stream = device.stream().expect("the parent's device works");
    drop(device.allocate(&stream, 1 << 20).expect("a block"));
}
