//! A hit of a stream's cache asks nothing of the driver.

use super::{open, small};
use terrace_device::DeviceOptions;
use terrace_tests::simcuda::Simulator;

#[test]
fn a_hit_makes_no_driver_call_and_no_event() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let streams = [device.stream().expect("a stream"), device.stream().expect("a second one")];
    for stream in &streams {
        drop(device.allocate(stream, 4096).expect("a block"));
    }
    let before = session.calls(None);
    for i in 0..10_000 {
        drop(device.allocate(&streams[i % 2], 4096).expect("a hit"));
    }
    assert_eq!(session.calls(None), before, "calls of the driver for 10,000 hits");
    assert_eq!(device.stats().cache_hits, 10_000);
}

#[test]
fn a_stream_alone_needs_no_events_whatever_the_size() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    drop(device.allocate(&stream, 20 << 20).expect("a block"));
    let before = session.calls(None);
    for i in 0..1000u64 {
        drop(device.allocate(&stream, 100_000 + i * 10_000).expect("from what was freed"));
    }
    assert_eq!(session.calls(None), before, "calls of the driver for blocks that fit into what was freed");
}

/// Sizes beyond the cache's stacks: what the arena would give again is the stream's at once. A stream alone may free several
/// blocks in any order and take them again in the order that it took them in; among others, one.
#[test]
fn a_larger_size_that_was_freed_last_is_a_hit() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    for streams in [1, 2] {
        let device = open(0, small()).expect("a device");
        let streams: Vec<_> = (0..streams).map(|_| device.stream().expect("a stream")).collect();
        let several = 4 - 3 * (streams.len() - 1);
        for bytes in [17 << 10, 64 << 10, 300_000, 1 << 20, 50 << 20] {
            for stream in &streams {
                let step = || drop((0..several).map(|_| device.allocate(stream, bytes)).collect::<Vec<_>>());
                // The first takes them from the arena.
                step();
                let (calls, hits) = (session.calls(None), device.stats().cache_hits);
                (0..1000).for_each(|_| step());
                let now = (session.calls(None), device.stats().cache_hits);
                assert_eq!(now, (calls, hits + 1000 * several as u64), "{bytes} bytes, {} streams", streams.len());
            }
        }
        device.check().expect("every invariant holds");
    }
}

/// What a stream keeps so serves whoever asks the device: its own larger requests, and other streams'.
#[test]
fn what_is_kept_for_a_moment_hides_no_memory() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    // So little that pages are mapped one by one.
    let device = open(0, DeviceOptions { capacity: 16 << 20, ..small() }).expect("a device");
    let one = device.stream().expect("a stream");
    drop([(); 8].map(|()| device.allocate(&one, 1 << 20).expect("a block")));
    let reserved = device.stats().pool.reserved;
    assert_eq!(reserved, 8 << 20);
    assert_eq!(device.stats().pool.pooled, 8 << 20, "all of it is kept");
    drop(device.allocate(&one, 5 << 20).expect("of what is kept"));
    assert_eq!(device.stats().pool.reserved, reserved);
    let two = device.stream().expect("another");
    drop(device.allocate(&one, 6 << 20).expect("the last block alone"));
    assert_eq!(device.stats().pool.pooled, 6 << 20);
    one.synchronize().expect("what it did is done");
    drop(device.allocate(&two, 8 << 20).expect("of what the first keeps"));
    assert_eq!(device.stats().pool.reserved, reserved, "nothing more is taken");
    assert_eq!(session.violations(), [""; 0]);
}

/// Blocks of the cache lie at multiples of a granule, not of more.
#[test]
fn a_request_for_more_alignment_than_the_cache_has_is_no_hit() {
    let _session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, small()).expect("a device");
    let stream = device.stream().expect("a stream");
    drop([(); 8].map(|()| device.allocate(&stream, 4096).expect("a block")));
    let hits = device.stats().cache_hits;
    let aligned = [(); 8].map(|()| device.allocate_aligned(&stream, 4096, 1 << 16).expect("room"));
    assert!(aligned.iter().all(|block| block.address().is_multiple_of(1 << 16)), "{aligned:?}");
    assert_eq!(device.stats().cache_hits, hits);
}
