//! Statistics: each number changes by what one use adds to it, and by no other.
#![cfg(target_os = "linux")]

use std::time::Duration;
use tempfile::TempDir;
use terrace_tiers::ledger::{EvictionCause, PlacementHint};
use terrace_tiers::manager::{ManagerStats, TierUses};
use terrace_tiers::{Buffer, BufferOptions, Manager};

const MIB: u64 = 1 << 20;

fn manager(memory: u64) -> (TempDir, Manager) {
    let directory = tempfile::tempdir().expect("a directory");
    let builder = Manager::builder().memory(memory).directory_of(directory.path(), 256 * MIB);
    (directory, builder.maintenance_interval(Duration::ZERO).build().expect("it is built"))
}

/// Hits and misses by tier.
fn uses(stats: &ManagerStats) -> Vec<(u64, u64)> {
    stats.tiers.iter().map(|TierUses { hits, misses }| (*hits, *misses)).collect()
}

fn in_files(manager: &Manager, bytes: u64) -> Buffer {
    let hint = PlacementHint { tier: Some(1), keep: false };
    manager.allocate_with(bytes, BufferOptions { hint, ..BufferOptions::default() }).expect("room")
}

#[test]
fn each_use_is_counted_once_where_its_bytes_were() {
    let (_directory, manager) = manager(8 * MIB);
    let buffer = manager.allocate(MIB).expect("room");
    buffer.write(0, &[7; 1000]).expect("written");
    buffer.read(0, &mut [0; 300]).expect("read");
    drop(buffer.lease_best().expect("leased"));
    drop(buffer.lease_mut().expect("leased"));
    assert!(buffer.try_lease().expect("leased").is_some());
    let stats = manager.stats();
    assert_eq!((uses(&stats), stats.bytes_read, stats.bytes_written), (vec![(5, 0), (0, 0)], 300, 1000));
    assert_eq!((stats.leases.calls, stats.reads.calls, stats.writes.calls), (0, 0, 0), "nothing waited");

    let below = in_files(&manager, MIB);
    below.write(0, &[7; 100]).expect("written");
    below.read(10, &mut [0; 50]).expect("read");
    assert_eq!(below.read_async(0, 25).wait().map(|bytes| bytes.len()), Ok(25));
    let stats = manager.stats();
    assert_eq!((uses(&stats), stats.bytes_read, stats.bytes_written), (vec![(5, 3), (3, 0)], 375, 1100));
    assert_eq!((stats.reads.calls, stats.writes.calls), (2, 1), "files were asked");

    // The lease that fetches is a miss of memory, once; the next one is a hit.
    manager.demote(&buffer, 1).expect("moved");
    drop(buffer.lease_best().expect("leased"));
    assert_eq!((uses(&manager.stats()), manager.stats().leases.calls), (vec![(5, 4), (4, 0)], 1));
    drop(buffer.lease_best().expect("leased"));
    assert_eq!((uses(&manager.stats()), manager.stats().leases.calls), (vec![(6, 4), (4, 0)], 1));
    assert_eq!(manager.stats().allocations.calls, 2);
}

#[test]
fn waits_have_percentiles_in_order() {
    let (_directory, manager) = manager(2 * MIB);
    let below = in_files(&manager, MIB);
    below.write(0, &vec![7; MIB as usize]).expect("written");
    (0..50).for_each(|at| below.read(at * 4096, &mut [0; 4096]).expect("read"));
    let reads = manager.stats().reads;
    assert_eq!(reads.calls, 50 - manager.stats().tiers[0].hits, "a second touch promotes it");
    let ordered = [Duration::ZERO, reads.p50, reads.p90, reads.p99, reads.p999, reads.max];
    assert!(ordered.is_sorted() && reads.max < Duration::from_secs(600), "{reads:?}");
}

#[test]
fn evictions_have_their_causes() {
    let (_directory, manager) = manager(4 * MIB);
    let of = |cause| manager.stats().evictions.of(cause);
    let filled: Vec<_> = (0..3).map(|_| manager.allocate(MIB).expect("room")).collect();
    filled.iter().for_each(|buffer| buffer.write(0, &[1; 100]).expect("written"));
    let fourth = manager.allocate(2 * MIB).expect("room is made");
    fourth.write(0, &[1; 100]).expect("written");
    assert_eq!(of(EvictionCause::Allocation), (1, MIB));
    manager.promote(&filled[0], 0).expect("room is made");
    assert_eq!(of(EvictionCause::Promotion).0, 1);
    let below = in_files(&manager, MIB);
    below.write(0, &[1; 100]).expect("written");
    manager.prefetch_async(&below).wait().expect("room is made");
    assert_eq!(of(EvictionCause::Prefetch).0, 1);
    manager.resize(0, MIB).expect("it shrinks");
    assert!(of(EvictionCause::Resize).0 >= 1);
    let before = of(EvictionCause::Maintenance);
    manager.resize(0, 4 * MIB).expect("it grows");
    let again: Vec<_> = (0..4).map(|_| manager.allocate(MIB).map(|buffer| (buffer.write(0, &[1]), buffer).1)).collect();
    (0..4).for_each(|now| manager.tick(now));
    assert!(of(EvictionCause::Maintenance) > before, "{:?}", manager.stats().evictions);
    drop(again);
    let sum: u64 = EvictionCause::ALL.iter().map(|cause| of(*cause).0).sum();
    let moves = manager.stats().moves;
    assert!(sum >= 4 && moves.down + moves.dropped >= 4, "{moves:?}");
    assert_eq!(manager.move_stats(), moves);
    assert_eq!(manager.prefetch_stats(), manager.stats().prefetches);
}

#[test]
fn rates_are_of_the_time_between_two_looks() {
    let (_directory, manager) = manager(2 * MIB);
    let (before, buffer) = (manager.stats(), manager.allocate(MIB).expect("room"));
    buffer.write(0, &vec![1; MIB as usize]).expect("written");
    std::thread::sleep(Duration::from_millis(20));
    let now = manager.stats();
    let rate = now.rate_since(&before, |stats| stats.bytes_written);
    assert!(rate > 0.0 && rate <= MIB as f64 / 0.02, "{rate}");
    assert_eq!(before.rate_since(&now, |stats| stats.bytes_written), 0.0);
}

#[test]
fn statistics_are_json_and_read_again() {
    let (_directory, manager) = manager(4 * MIB);
    let filled: Vec<_> = (0..4).map(|_| manager.allocate(MIB).expect("room")).collect();
    filled.iter().for_each(|buffer| buffer.write(0, &[1; 100]).expect("written"));
    drop(manager.allocate(2 * MIB).expect("room is made"));
    let stats = manager.stats();
    let json = serde_json::to_value(&stats).expect("numbers and words");
    assert_eq!((json["bytes_written"].as_u64(), json["tiers"][0]["hits"].as_u64()), (Some(400), Some(4)));
    let (evictions, bytes) = stats.evictions.of(EvictionCause::Allocation);
    assert!(evictions > 0, "{stats:?}");
    assert_eq!(json["evictions"]["allocation"], serde_json::json!({"evictions": evictions, "bytes": bytes}));
    let read: ManagerStats = serde_json::from_value(json).expect("it was written so");
    assert_eq!(format!("{read:?}"), format!("{stats:?}"));

    let tiers = manager.tiers();
    let json = serde_json::to_value(&tiers).expect("numbers and words");
    assert_eq!(
        (json[0]["view"]["medium"].as_str(), json[1]["view"]["medium"].as_str()),
        (Some("memory"), Some("file"))
    );
    assert_eq!(json[1]["files"]["cap"].as_u64(), tiers[1].files.map(|files| files.cap));
    let read: Vec<terrace_tiers::manager::TierInfo> = serde_json::from_value(json).expect("it was written so");
    assert_eq!(format!("{read:?}"), format!("{tiers:?}"));
}
