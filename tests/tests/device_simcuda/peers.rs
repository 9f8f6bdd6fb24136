//! Several devices: reached directly, or by way of the host.

use super::{open, small};
use terrace_device::{DeviceOptions, Path, PoolOrigin};
use terrace_tests::simcuda::Simulator;

fn copied(profile: &str, direct: bool, origin: PoolOrigin) {
    let _session = Simulator::exclusive(&format!(r#"{{"profile": "{profile}"}}"#));
    let options = DeviceOptions { origin, ..small() };
    let (first, second) = (open(0, options).expect("a device"), open(1, options).expect("another"));
    let (here, there) = (first.stream().expect("a stream"), second.stream().expect("a stream"));
    let bytes: Vec<u8> = (0..5 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut from = first.allocate(&here, 5 << 20).expect("a block");
    from.write(0, &bytes).expect("written");
    assert_eq!(second.can_reach(&first), direct);
    assert_eq!(second.reach(&first).is_ok(), direct, "reaching each other");
    let mut to = second.allocate(&there, 5 << 20).expect("a block");
    let way = to.copy_from(0, &from, 0, 5 << 20).expect("copied");
    assert_eq!(way, if direct { Path::Peer } else { Path::Staged });
    let mut back = vec![0; 5 << 20];
    to.read(0, &mut back).expect("read");
    assert!(back == bytes, "{profile}: copied bytes");
    // Pages that come later are open to the other device too.
    drop(first.allocate(&here, 40 << 20).expect("more pages"));
}

#[test]
fn peers_copy_directly() {
    copied("two-peers", true, PoolOrigin::Pages);
    copied("two-peers", true, PoolOrigin::Segments);
}

#[test]
fn strangers_copy_by_way_of_the_host() {
    copied("two-strangers", false, PoolOrigin::Auto);
}

#[test]
fn a_block_of_another_device_is_named() {
    let _session = Simulator::exclusive(r#"{"profile": "two-peers"}"#);
    let (first, second) = (open(0, small()).expect("a device"), open(1, small()).expect("another"));
    let there = second.stream().expect("a stream");
    let here = first.stream().expect("a stream");
    let block = first.allocate(&here, 100).expect("a block");
    let error = block.used_on(&there).expect_err("a stream of another device");
    assert!(matches!(error, terrace_device::DeviceError::OtherDevice { .. }), "{error:?}");
}

/// A driver that opens pages to no other device: memory comes in segments, which it opens whole; or not at all.
#[test]
fn where_pages_cannot_be_opened_memory_comes_in_segments() {
    let session = Simulator::exclusive(r#"{"profile": "two-peers"}"#);
    for (origin, segments) in [(PoolOrigin::Auto, true), (PoolOrigin::Pages, false)] {
        // The first page is the probe's, which opens it to its own device.
        session.fail("cuMemSetAccess", 2, 801);
        let device = open(0, DeviceOptions { origin, peer_access: true, ..small() });
        assert_eq!(device.is_ok(), segments, "{device:?}");
        let Ok(device) = device else { continue };
        let stream = device.stream().expect("a stream");
        let before = session.calls(Some("cuMemAlloc_v2"));
        drop(device.allocate(&stream, 1 << 20).expect("a block"));
        assert_eq!(session.calls(Some("cuMemAlloc_v2")), before + 1);
    }
}

/// Devices that cannot reach each other: a runtime's plain copy between them reaches segments only. Whoever asks for pages gets them.
#[test]
fn between_strangers_memory_comes_in_segments_for_those_who_cannot_say_where_they_copy() {
    let session = Simulator::exclusive(r#"{"profile": "two-strangers"}"#);
    let cases = [(PoolOrigin::Auto, true, 1), (PoolOrigin::Pages, true, 0), (PoolOrigin::Auto, false, 0)];
    for (origin, peers, segments) in cases {
        let device = open(0, DeviceOptions { origin, peer_access: peers, ..small() }).expect("a device");
        let stream = device.stream().expect("a stream");
        let before = session.calls(Some("cuMemAlloc_v2"));
        drop(device.allocate(&stream, 1 << 20).expect("a block"));
        assert_eq!(session.calls(Some("cuMemAlloc_v2")), before + segments, "{origin:?}, {peers}");
    }
}
