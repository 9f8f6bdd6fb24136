//! Durable buffers, and the caps of the next start.
#![cfg(target_os = "linux")]

use crate::patterns;

use patterns::{holds, pattern};
use std::path::Path;
use terrace_core::pressure::Level;
use terrace_file::StoreError;
use terrace_tiers::ledger::{PlacementHint, Refusal, RefusalReason, TenantQuota};
use terrace_tiers::manager::ManagerBuilder;
use terrace_tiers::{BufferOptions, Error, Manager};

const MIB: u64 = 1 << 20;

fn builder(path: &Path) -> ManagerBuilder {
    Manager::builder().memory(4 * MIB).directory_of(path, 64 * MIB).chunk(256 << 10)
}

#[test]
fn what_is_durable_is_found_also_where_it_is_more_than_a_tier_would_take_in() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = builder(directory.path()).build().expect("it is built");
    for seed in 0..14u8 {
        let buffer = first.allocate_named(&format!("{seed}"), MIB).expect("room");
        buffer.write(0, &pattern(seed, MIB)).expect("written");
        first.sync(&buffer).expect("durable");
    }
    drop(first);
    let with = |cap| Manager::builder().memory(MIB).directory_of(directory.path(), cap).chunk(256 << 10).build();
    // 14 of 15 slabs, of which buffers get seven eighths.
    let second = with(16 * MIB).expect("it is all there");
    let found = || (0..14).map(|seed| second.open(&format!("{seed}")).expect("it is there"));
    found().zip(0..).for_each(|(buffer, seed)| holds(&buffer, seed));
    let (file, hint) = (second.tiers()[1].view, PlacementHint { tier: Some(1), keep: false });
    assert!(file.used > file.capacity && file.level == Level::Critical, "{file:?}");
    let more =
        || second.allocate_with(MIB / 2, BufferOptions { name: Some("more".into()), hint, ..BufferOptions::default() });
    assert_eq!(second.move_stats().down, 0);
    assert!(matches!(second.sync(&more().expect("memory")), Err(Error::NoRoom { tier: 1 })));
    (0..3).for_each(|seed| second.remove(&format!("{seed}")).expect("removed"));
    second.sync(&second.open("more").expect("it is there")).expect("there is room again");
    drop(second);
    let Err(Error::Store(StoreError::CapTooSmall { needs, cap })) = with(8 * MIB) else { panic!("11 are durable") };
    assert!(cap == 8 * MIB && needs > cap);
    let third = with(needs).expect("as it said");
    (3..14).for_each(|seed| holds(&third.open(&format!("{seed}")).expect("it is there"), seed));
}

#[test]
fn all_that_a_tier_of_small_chunks_takes_can_be_made_durable() {
    let directory = tempfile::tempdir().expect("a directory");
    // Some 14,000 chunks, each of which takes 470 bytes of memory.
    let manager = builder(directory.path()).memory(16 * MIB).chunk(4096).build().expect("it is built");
    let hint = PlacementHint { tier: Some(1), keep: false };
    let options = BufferOptions { name: Some("all".into()), hint, ..BufferOptions::default() };
    let all = manager.allocate_with(manager.tiers()[1].view.capacity, options).expect("room");
    let block = pattern(1, MIB);
    (0..all.bytes() / MIB).for_each(|at| all.write(at * MIB, &block).expect("written"));
    manager.sync(&all).expect("a log has room for every chunk");
}

#[test]
fn a_buffer_that_is_larger_than_its_tier_may_take_in_is_written_and_synced_all_the_same() {
    let directory = tempfile::tempdir().expect("a directory");
    let built = |cap| Manager::builder().memory(16 * MIB).directory_of(directory.path(), cap).chunk(256 << 10);
    let bytes = 15 * MIB / 2;
    let first = built(64 * MIB).build().expect("it is built");
    first.sync(&first.allocate_named("large", bytes).expect("room")).expect("durable");
    let large = first.open("large").expect("it is there");
    large.write(0, &pattern(1, bytes)).expect("written");
    first.sync(&large).expect("durable");
    drop((large, first));
    let second = built(9 * MIB).build().expect("it is all there");
    assert!(second.tiers()[1].view.capacity < bytes);
    let large = second.open("large").expect("it is there");
    second.promote(&large, 0).expect("memory");
    large.write(0, &[9; 5]).expect("written");
    second.sync(&large).expect("a chunk has room");
    drop((large, second));
    let mut found = [0; 6];
    built(9 * MIB)
        .build()
        .expect("it is all there")
        .open("large")
        .expect("it is there")
        .read(0, &mut found)
        .expect("read");
    assert_eq!(found, [9, 9, 9, 9, 9, pattern(1, 6)[5]]);
}

#[test]
fn a_durable_buffer_stays_its_tenants() {
    let directory = tempfile::tempdir().expect("a directory");
    let capped = |cap| {
        builder(directory.path()).tenant(TenantQuota::UNLIMITED).tenant(TenantQuota { cap, ..TenantQuota::UNLIMITED })
    };
    let first = capped(2 * MIB).build().expect("it is built");
    let options = |name: &str| BufferOptions { name: Some(name.into()), tenant: 1, ..BufferOptions::default() };
    first.sync(&first.allocate_with(MIB, options("a")).expect("room")).expect("durable");
    drop(first);
    let refused = |built: &Manager, most| match built.allocate_with(2 * MIB, options("b")) {
        Err(Error::Refused(Refusal { reason: RefusalReason::OverCap, largest, .. })) => assert_eq!(largest, most),
        other => panic!("{other:?}"),
    };
    refused(&capped(2 * MIB).build().expect("it is built"), MIB);
    // Even above its cap, and where there are fewer tenants now.
    let second = capped(2 * MIB - 1).build().expect("it is built");
    refused(&second, 2 * MIB - 1);
    drop(second);
    let third = builder(directory.path()).build().expect("it is built");
    assert_eq!(third.open("a").expect("it is there").bytes(), MIB);
}

#[test]
fn chunks_that_are_too_large_to_be_read_are_told_at_the_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let with = |chunk, cap| Manager::builder().memory(8 * MIB).directory_of(directory.path(), cap).chunk(chunk).build();
    let first = with(2 << 20, 1 << 30).expect("it is built");
    let buffer = first.allocate_named("large", 4 * MIB).expect("room");
    buffer.write(0, &pattern(1, 4 * MIB)).expect("written");
    first.sync(&buffer).expect("durable");
    drop((buffer, first));
    // Too large for staging memory; for a slab.
    for (chunk, cap) in [(4096, 1 << 30), (64 << 10, 64 * MIB)] {
        assert_eq!(with(chunk, cap).map(drop), Err(Error::Chunks { name: "large".into(), bytes: 2 << 20 }));
    }
    // A thirty-second is enough.
    holds(&with(64 << 10, 1 << 30).expect("nothing is lost").open("large").expect("it is there"), 1);
}
