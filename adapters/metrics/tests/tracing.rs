//! Spans and events: one for each move, eviction, missed prefetch, growth of a pool and step before a failure, with its fields.
//!
//! A program of its own: managers work on threads of their own, which only a subscriber of the whole process sees.
#![cfg(target_os = "linux")]

use std::sync::OnceLock;
use terrace::device::{DeviceError, DeviceOptions, HostBackend};
use terrace::tiers::ledger::PlacementHint;
use terrace::tiers::{BufferOptions, Manager};
use terrace_tests::trace::{TraceRecord, Traced};

/// All that this process traced.
fn traced() -> &'static Traced {
    static TRACED: OnceLock<Traced> = OnceLock::new();
    TRACED.get_or_init(|| {
        let traced = Traced::default();
        tracing::subscriber::set_global_default(traced.subscriber()).expect("the first");
        traced
    })
}

/// What was traced under a name with this value of a field: tests tell theirs by sizes that no other test uses.
fn of(name: &str, field: &str, value: u64) -> Vec<TraceRecord> {
    let mut found = traced().named(name);
    found.retain(|record| record.field(field) == value.to_string());
    found
}

fn fields<'a>(record: &'a TraceRecord, names: &[&str]) -> Vec<&'a str> {
    names.iter().map(|name| record.field(name)).collect()
}

#[test]
fn moves_are_spans_and_evictions_events() {
    const BYTES: u64 = (1 << 20) - 4096;
    traced();
    let directory = tempfile::tempdir().expect("a directory");
    let builder = Manager::builder().memory(2 << 20).directory_of(directory.path(), 64 << 20);
    let manager = builder.maintenance_interval(std::time::Duration::ZERO).build().expect("it is built");
    let first = manager.allocate(BYTES).expect("room");
    first.write(0, &[7; 4096]).expect("written");
    let second = manager.allocate(2 << 20).expect("room is made");
    let [evicted] = &of("evicted", "bytes", BYTES)[..] else { panic!("{:?}", traced()) };
    assert_eq!(fields(evicted, &["from", "to", "cause"]), ["0", "1", "allocation"]);
    assert!(
        evicted.field("buffer").starts_with("buffer ") && evicted.target.starts_with("terrace_tiers"),
        "{evicted:?}"
    );
    drop(second);
    manager.promote(&first, 0).expect("there is room");
    drop((first, manager));
    let moves = of("move", "bytes", BYTES);
    let moved: Vec<_> = moves.iter().map(|record| fields(record, &["from", "to", "outcome"])).collect();
    assert_eq!(moved, [["0", "1", "Done"], ["1", "0", "Done"]], "{moves:?}");
    assert_eq!(moves[0].field("buffer"), evicted.field("buffer"));
}

#[test]
fn a_prefetch_that_is_not_met_is_an_event() {
    traced();
    let directory = tempfile::tempdir().expect("a directory");
    let manager = Manager::builder().memory(4 << 20).directory_of(directory.path(), 64 << 20).build().expect("built");
    let all = manager.allocate(3 << 20).expect("room");
    let lease = all.lease_best().expect("in memory");
    let hint = PlacementHint { tier: Some(1), keep: false };
    let below = manager.allocate_with(2 << 20, BufferOptions { hint, ..BufferOptions::default() }).expect("room");
    let before = traced().named("prefetch not met").len();
    manager.prefetch_async(&below).wait().expect_err("all memory is leased");
    let unmet = traced().named("prefetch not met");
    assert_eq!(unmet.len(), before + 1, "{unmet:?}");
    assert!(unmet[before].field("buffer").starts_with("buffer "), "{unmet:?}");
    drop(lease);
}

#[test]
fn a_suspension_and_the_failed_move_are_traced() {
    const BYTES: u64 = (2 << 20) + 8192;
    traced();
    let options = DeviceOptions { capacity: 4 << 20, ..DeviceOptions::default() };
    let device = terrace::device::Device::open(HostBackend::new(), options).expect("valid options");
    let manager = Manager::builder().device_of(&device, 4 << 20).memory(8 << 20).build().expect("it is built");
    let hint = PlacementHint { tier: Some(1), keep: false };
    let buffer = manager.allocate_with(BYTES, BufferOptions { hint, ..BufferOptions::default() }).expect("room");
    buffer.write(0, &[7; 4096]).expect("written");
    let stream = device.stream().expect("a stream");
    let taken = device.allocate(&stream, 3 << 20).expect("the manager holds nothing there yet");
    manager.promote(&buffer, 0).expect_err("the device is full");
    drop((buffer, manager, taken));
    let failed: Vec<_> = of("move", "bytes", BYTES);
    assert_eq!(fields(&failed[0], &["from", "to", "outcome"]), ["1", "0", "Full"], "{failed:?}");
    let suspended = of("tier suspended", "tier", 0);
    assert_eq!(fields(&suspended[0], &["pause_ms"]), ["1000"], "{suspended:?}");
}

#[test]
fn a_pool_traces_its_growth_its_fallbacks_and_its_failures() {
    traced();
    // Each request has a size of its own, by which its events are told.
    let options = DeviceOptions { capacity: 8 << 20, fallback: true, ..DeviceOptions::default() };
    let device = terrace::device::Device::open(HostBackend::new(), options).expect("valid options");
    let stream = device.stream().expect("a stream");
    let first = device.allocate(&stream, 6 << 20).expect("room");
    let reserved = device.stats().pool.reserved;
    let [grew] = &of("pool grew", "reserved", reserved)[..] else { panic!("{:?}", traced()) };
    assert_eq!(fields(grew, &["device", "bytes"]), [device.name(), &reserved.to_string()]);

    let asked = (5 << 20) + 4096;
    let second = device.allocate(&stream, asked).expect("the fallback has room");
    let [fell] = &of("fell back to pinned memory", "asked", asked)[..] else { panic!("{:?}", traced()) };
    assert_eq!(fell.field("device"), device.name());
    device.set_fallback(false);
    let asked = asked + 4096;
    device.on_out_of_memory(|_| false);
    assert!(matches!(device.allocate(&stream, asked), Err(DeviceError::OutOfMemory(_))));
    let [hook] = &of("hook called", "asked", asked)[..] else { panic!("{:?}", traced()) };
    assert_eq!(hook.field("freed"), "false");
    assert_eq!(of("out of memory", "asked", asked).len(), 1);

    // A block in a stream's cache is what the first step frees.
    drop((first, second));
    drop(device.allocate(&stream, 4096).expect("room"));
    let asked = (7 << 20) + 512 * 1024;
    drop(device.allocate(&stream, asked));
    assert_eq!(of("caches emptied", "asked", asked).len(), 1, "{:?}", traced());
    device.trim();
    assert!(!traced().named("pool shrank").is_empty(), "{:?}", traced());
}
