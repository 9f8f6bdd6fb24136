//! How much memory there is, and where it comes from.

use super::{open, small};
use terrace_cuda::Cuda;
use terrace_device::{Capabilities, Device, DeviceError, DeviceOptions, FaultReason, PoolOrigin, meminfo};
use terrace_tests::simcuda::Simulator;

/// Devices that share the host's memory: the driver calls the page cache used. A file's worth of cache is made, and what we
/// say stays what the system calls available.
#[test]
fn shared_memory_is_what_the_system_calls_available() {
    let total = meminfo::total().expect("Linux says");
    let _session = Simulator::exclusive(&format!(r#"{{"profile": "orin", "total": {total}}}"#));
    let device = open(0, DeviceOptions { blocks: 1 << 10, ..DeviceOptions::default() }).expect("a device");
    assert!(device.description().capabilities.contains(Capabilities::INTEGRATED | Capabilities::FREE_IS_AVAILABLE));
    // A gigabyte in the page cache.
    let file = std::env::temp_dir().join(format!("terrace-page-cache-{}", std::process::id()));
    std::fs::write(&file, vec![1u8; 1 << 30]).expect("room for a gigabyte in the temporary folder");
    let said = device.memory().map(|memory| memory.free);
    let available = meminfo::available().expect("Linux says");
    std::fs::remove_file(&file).expect("it was there");
    let said = said.expect("the driver answers");
    let off = said.abs_diff(available) as f64 / available as f64;
    assert!(off < 0.02, "free is {said}, available {available}: {:.1} % off", off * 100.0);
}

#[test]
fn a_device_without_pages_takes_segments_and_says_why() {
    let session = Simulator::exclusive(r#"{"profile": "vgpu"}"#);
    let device = open(0, small()).expect("a device");
    let description = device.description().clone();
    assert!(!description.capabilities.contains(Capabilities::PAGES), "{description:?}");
    assert!(!description.notes.is_empty(), "a note says why there are no pages");
    let stream = device.stream().expect("a stream");
    drop(device.allocate(&stream, 1 << 20).expect("a block"));
    assert!(session.calls(Some("cuMemAlloc_v2")) > 0 && session.calls(Some("cuMemMap")) == 0);
    let refused = open(0, DeviceOptions { origin: PoolOrigin::Pages, ..small() }).map(drop);
    let unsupported = |error: &DeviceError| matches!(error, DeviceError::Driver { fault, .. } if fault.reason == FaultReason::Unsupported);
    assert!(refused.as_ref().is_err_and(unsupported), "pages were asked for: {refused:?}");
}

#[test]
fn address_space_that_is_refused_is_asked_for_in_halves() {
    let session = Simulator::exclusive(r#"{"profile": "orin"}"#);
    let device = open(0, small()).expect("a device");
    let asked = session.calls(Some("cuMemAddressReserve"));
    assert!(asked > 3, "{asked}: refused, tried by halves, and reserved for good");
    let stream = device.stream().expect("a stream");
    drop(device.allocate(&stream, 100 << 20).expect("a block"));
    assert!(device.stats().pool.reserved > 0);
    assert!(session.calls(Some("cuMemMap")) > 0, "in pages");
}

/// The pool halves a refused reservation down to the size of the device's memory, and then takes segments.
#[test]
fn a_device_without_address_space_takes_segments() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    (1..=64).for_each(|nth| session.fail("cuMemAddressReserve", nth, 2));
    let device = open(0, small()).expect("a device");
    let asked = session.calls(Some("cuMemAddressReserve"));
    assert!((1..=8).contains(&asked), "asked {asked} times");
    let stream = device.stream().expect("a stream");
    drop(device.allocate(&stream, 1 << 20).expect("a block"));
    assert!(session.calls(Some("cuMemAlloc_v2")) > 0 && session.calls(Some("cuMemMap")) == 0);
    session.fail("*", 0, 0);
}

#[test]
fn every_origin_asks_its_own_function() {
    for (origin, function) in [
        (PoolOrigin::Pages, "cuMemMap"),
        (PoolOrigin::Segments, "cuMemAlloc_v2"),
        (PoolOrigin::DriverPool, "cuMemAllocFromPoolAsync"),
        (PoolOrigin::Managed, "cuMemAllocManaged"),
    ] {
        let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
        let device = open(0, DeviceOptions { origin, ..small() }).expect("a device");
        let stream = device.stream().expect("a stream");
        let before = session.calls(Some(function));
        drop(device.allocate(&stream, 1 << 20).expect("a block"));
        assert!(session.calls(Some(function)) > before, "{origin:?} calls {function}");
        stream.synchronize().expect("done");
        let before = session.calls(Some("cuMemPoolTrimTo"));
        device.coalesce();
        assert_eq!(session.calls(Some("cuMemPoolTrimTo")), before, "what the streams cached stays with the device");
        device.trim();
        let trimmed = session.calls(Some("cuMemPoolTrimTo")) > before;
        assert!(trimmed || origin != PoolOrigin::DriverPool, "what the driver's pool keeps goes back");
    }
}

/// Pages that were asked for are not replaced by segments in silence; where anything will do, they are.
#[test]
fn pages_that_cannot_be_had_are_told_to_who_asked_for_them() {
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let refuse = || (1..=64).for_each(|nth| session.fail("cuMemAddressReserve", nth, 2));
    let cuda = || Cuda::open(0).expect("the simulated driver");
    let (asked, any) = (cuda(), cuda());
    refuse();
    let refused = Device::open(asked, DeviceOptions { origin: PoolOrigin::Pages, ..small() }).map(drop);
    assert!(
        matches!(refused, Err(DeviceError::Driver { fault, .. }) if fault.reason == FaultReason::OutOfMemory),
        "{refused:?}"
    );
    refuse();
    let device = Device::open(any, DeviceOptions { origin: PoolOrigin::Auto, ..small() }).expect("segments");
    let stream = device.stream().expect("a stream");
    drop(device.allocate(&stream, 1 << 20).expect("a block"));
    assert!(session.calls(Some("cuMemAlloc_v2")) > 0);
    session.fail("*", 0, 0);
}

/// Pages that moved and cannot leave their old place go back to it: nothing is mapped twice, in the end nothing is left.
#[test]
fn a_move_that_is_refused_half_way_is_undone() {
    const MIB: u64 = 1 << 20;
    let session = Simulator::exclusive(r#"{"profile": "discrete"}"#);
    let device = open(0, DeviceOptions { capacity: 16 * MIB, ..small() }).expect("a device");
    let stream = device.stream().expect("a stream");
    let [first, between, last] = [6, 2, 6].map(|size| device.allocate(&stream, size * MIB).expect("pages"));
    drop((first, last));
    // The pages of the first block move behind the last one's, where 12 MiB are free in a row then.
    let before = session.calls(Some("cuMemUnmap"));
    [1, 2].into_iter().for_each(|nth| session.fail("cuMemUnmap", nth, 999));
    let refused = device.allocate(&stream, 12 * MIB);
    assert!(session.calls(Some("cuMemUnmap")) >= before + 2, "both refusals were met");
    device.check().expect("every invariant holds");
    drop(refused);
    drop(device.allocate(&stream, 12 * MIB).expect("it can be had when nothing is refused"));
    drop(between);
}

/// Another program takes all memory between what the driver says is free and each call that takes some: an error with what there
/// is, nothing kept, and all of it again when the other has given it back.
#[test]
fn memory_that_others_take_between_two_calls_is_told_and_costs_nothing() {
    for (origin, function) in [(PoolOrigin::Pages, "cuMemCreate"), (PoolOrigin::Segments, "cuMemAlloc_v2")] {
        let session = Simulator::exclusive(r#"{"profile": "discrete", "total": 1073741824}"#);
        let device = open(0, DeviceOptions { origin, capacity: 0, ..small() }).expect("a device");
        let stream = device.stream().expect("a stream");
        let before = device.stats().pool.reserved;
        assert!(device.memory().expect("the driver answers").free > 600 << 20);
        // The third handle of 32 MiB, or the only segment.
        session.occupy(0, 1 << 30, function, if origin == PoolOrigin::Pages { 3 } else { 1 });
        let refused = device.allocate(&stream, 512 << 20).expect_err("the other was faster");
        let DeviceError::OutOfMemory(what) = &refused else { panic!("{refused:?}") };
        assert!(what.to_string().contains("others hold"), "{what}");
        assert_eq!(device.stats().pool.reserved, before, "{origin:?}: no part is kept");
        device.check().expect("every invariant holds");
        session.vacate(0);
        drop(device.allocate(&stream, 512 << 20).expect("it is there again"));
        device.check().expect("every invariant holds");
    }
}
