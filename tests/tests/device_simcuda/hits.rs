//! A hit of a stream's cache asks nothing of the driver.

use super::{open, small};
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
