//! What growth costs: calls of the driver, counted by it.

use super::open;
use terrace_device::{DeviceOptions, PoolOrigin};
use terrace_tests::simcuda::Simulator;

const MIB: u64 = 1 << 20;

/// A block of 8 GiB by pages: handles of 32 MiB, made and mapped one by one, opened together. PyTorch's expandable segments
/// make 410 handles of 20 MiB, in 821 calls.
#[test]
fn eight_gibibytes_take_513_calls() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, DeviceOptions { origin: PoolOrigin::Pages, ..DeviceOptions::default() }).expect("a device");
    let stream = device.stream().expect("a stream");
    let (all, counted) = (session.calls(None), device.stats().pool.source_calls);
    let block = device.allocate(&stream, 8 << 30).expect("room");
    let calls = ["cuMemCreate", "cuMemMap", "cuMemSetAccess"].map(|name| session.calls(Some(name)));
    assert_eq!(session.calls(None) - all, 513, "no context is set and no capture relaxed for it");
    assert_eq!(device.stats().pool.source_calls - counted, 513, "the device counts the same");
    println!("8 GiB: created, mapped, opened {calls:?}");
    drop(block);
}

/// Functions that unmap memory or wait.
const STALLS: [&str; 4] = ["cuMemUnmap", "cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize"];

/// A cache of keys and values that grows by a copy, with memory to spare: nothing is unmapped, and no call waits.
#[test]
fn a_growing_cache_moves_no_pages_while_memory_is_free() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, DeviceOptions { origin: PoolOrigin::Pages, ..DeviceOptions::default() }).expect("a device");
    let stream = device.stream().expect("a stream");
    let before = STALLS.map(|name| session.calls(Some(name)));
    let mut cache = device.allocate(&stream, MIB).expect("room");
    for size in 2..300 {
        let mut longer = device.allocate(&stream, size * MIB).expect("room");
        longer.copy_from(0, &cache, 0, 64).expect("two live blocks");
        cache = longer;
    }
    assert_eq!(STALLS.map(|name| session.calls(Some(name))), before);
    stream.synchronize().expect("work is done");
    drop(cache);
}
