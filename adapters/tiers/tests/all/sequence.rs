//! Announced uses, and passes over buffers in a given order.

use crate::patterns::pattern;
use std::time::Duration;
use terrace_tiers::ledger::PrefetchStats;
use terrace_tiers::policy::PolicyKind;
use terrace_tiers::{Buffer, Error, Manager};

const MIB: u64 = 1 << 20;

/// A manager with memory for four buffers of a MiB, over files; and `count` such buffers with their patterns.
fn layers(directory: &std::path::Path, policy: PolicyKind, count: u8) -> (Manager, Vec<Buffer>) {
    let builder = Manager::builder().memory(4 * MIB).directory_of(directory, 64 * MIB).chunk(256 << 10);
    let builder = builder.pinned_cap(4 * MIB);
    let manager = builder.policy(policy).maintenance_interval(Duration::ZERO).build().expect("it is built");
    let layer = |seed: u8| {
        let buffer = manager.allocate(MIB - 4096).expect("room");
        buffer.write(0, &pattern(seed, MIB - 4096)).expect("written");
        buffer
    };
    let layers = (0..count).map(layer).collect();
    (manager, layers)
}

#[test]
fn a_pass_meets_all_its_prefetches_under_every_policy_and_again() {
    for policy in [PolicyKind::Lru, PolicyKind::Sieve, PolicyKind::S3Fifo] {
        let directory = tempfile::tempdir().expect("a directory");
        let (manager, layers) = layers(directory.path(), policy, 12);
        let mut pass = manager.sequence(&layers, 2).expect("its own");
        for round in 0..3 {
            for seed in 0..12 {
                let lease = pass.lease_next().expect("one more").expect("room");
                assert!(lease[..] == pattern(seed, MIB - 4096)[..], "{policy:?}, layer {seed} of round {round}");
                // The work on the layer: the next ones arrive meanwhile.
                std::thread::sleep(Duration::from_millis(2));
            }
            assert!(pass.lease_next().is_none() && pass.lease_next().is_none());
            pass.rewind();
        }
        let PrefetchStats { wasted, unmet, met, late } = manager.prefetch_stats();
        assert_eq!((wasted, unmet), (0, 0), "{policy:?}");
        assert!(met + late >= 36, "{policy:?}: {met} met, {late} late");
        manager.check().expect("sound");
    }
}

#[test]
fn a_pass_goes_on_where_memory_has_no_room_to_look_ahead() {
    let directory = tempfile::tempdir().expect("a directory");
    let (manager, layers) = layers(directory.path(), PolicyKind::default(), 8);
    let mut pass = manager.sequence(&layers, usize::MAX).expect("its own");
    for seed in 0..8 {
        assert!(pass.lease_next().expect("one more").expect("room")[..] == pattern(seed, MIB - 4096)[..]);
    }
    drop(layers);
    pass.rewind();
    assert!(pass.lease_next().expect("it has its own handles").is_ok());
}

#[test]
fn a_prefetch_says_how_it_ended_and_is_taken_over_by_who_asks() {
    let directory = tempfile::tempdir().expect("a directory");
    let (manager, layers) = layers(directory.path(), PolicyKind::Lru, 8);
    let wait = |buffer| futures_lite::future::block_on(manager.prefetch_async(buffer));
    let held: Vec<_> = layers[4..].iter().map(|buffer| buffer.lease_best().expect("in memory")).collect();
    assert_eq!(wait(&layers[0]), Err(Error::NoRoom { tier: 0 }), "all others are leased");
    drop(held);
    assert_eq!((wait(&layers[0]), manager.prefetch_stats().unmet), (Ok(()), 1));
    assert!(layers[0].try_lease().expect("no other lease").is_some(), "it is there");
    let fetched = manager.prefetch_async(&layers[1]);
    assert!(layers[1].lease_best().expect("room")[..] == pattern(1, MIB - 4096)[..]);
    assert_eq!(futures_lite::future::block_on(fetched), Ok(()));
    let stats = manager.prefetch_stats();
    assert!(stats.late <= 1 && stats.wasted == 0, "{stats:?}");
    manager.check().expect("sound");
}

#[test]
fn a_pass_ends_in_just_the_memory_that_it_needs() {
    for (memory, ahead) in [(3 * MIB, 2), (2 * MIB, 1), (4 * MIB, 2)] {
        let directory = tempfile::tempdir().expect("a directory");
        // With ticks, by which room is made ahead of demand.
        let builder = Manager::builder().memory(memory).pinned_cap(memory).directory_of(directory.path(), 64 * MIB);
        let manager = builder.build().expect("it is built");
        let layers: Vec<Buffer> = (0..12)
            .map(|seed| {
                let buffer = manager.allocate(MIB).expect("room");
                buffer.write(0, &pattern(seed, MIB)).expect("written");
                buffer
            })
            .collect();
        let mut pass = manager.sequence(&layers, ahead).expect("its own");
        for _round in 0..2 {
            for seed in 0..12 {
                assert!(pass.lease_next().expect("one more").expect("room")[..] == pattern(seed, MIB)[..]);
            }
            assert!(pass.lease_next().is_none());
            pass.rewind();
        }
        let copies = manager.move_stats().up;
        assert!(copies <= 12 * 2 * 3, "{copies} copies for 24 leases");
    }
}
