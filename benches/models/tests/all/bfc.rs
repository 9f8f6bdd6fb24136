//! BFC's policy by hand: bins, regions, splits, merging, giving back.

use crate::common;

use common::MIB;
use terrace_core::{Allocator, Block, Cause, NoFence, Owner, Request};
use terrace_models::bfc::bin_of;
use terrace_models::{Bfc, BfcOptions, Segments};

fn alloc(pool: &mut impl Allocator, bytes: u64) -> Block {
    pool.allocate(Request::new(bytes)).unwrap_or_else(|error| panic!("{error}"))
}

fn free(pool: &mut impl Allocator, block: Block) {
    pool.free(block, Owner(0)).unwrap();
}

#[test]
fn bins_are_powers_of_two_of_256() {
    for (bytes, bin) in [(1, 0), (256, 0), (512, 1), (1023, 1), (1024, 2), (256 * MIB, 20), (u64::MAX, 20)] {
        assert_eq!(bin_of(bytes), bin, "{bytes}");
    }
}

#[test]
fn regions_double_from_two_mib() {
    let mut pool = Bfc::new(Segments::new(0));
    for reserved in [2, 6, 6, 14] {
        alloc(&mut pool, 2 * MIB);
        assert_eq!(pool.stats().reserved, reserved * MIB);
    }
    // 100 MiB: the next size, 16, doubles to 128 and stays there for the region after.
    alloc(&mut pool, 100 * MIB);
    assert_eq!(pool.stats().reserved, 142 * MIB);
    alloc(&mut pool, 120 * MIB);
    assert_eq!(pool.stats().reserved, 270 * MIB);
    pool.check().unwrap();
}

#[test]
fn a_chunk_is_split_when_half_would_be_wasted() {
    let mut pool = Bfc::new(Segments::new(0));
    let whole = alloc(&mut pool, MIB + 256);
    assert_eq!(whole.bytes, 2 * MIB, "less than twice: handed out whole");
    free(&mut pool, whole);
    let half = alloc(&mut pool, MIB);
    assert_eq!((half.bytes, pool.stats().largest_free), (MIB, MIB), "twice: split");
    pool.check().unwrap();
}

#[test]
fn a_chunk_is_split_when_128_mib_would_be_wasted() {
    let mut pool = Bfc::with(Segments::new(0), NoFence, BfcOptions { limit: 400 * MIB, ..Default::default() });
    let large = alloc(&mut pool, 300 * MIB);
    assert_eq!(large.bytes, 400 * MIB, "512 is more than the limit; 100 MiB are wasted");
    free(&mut pool, large);
    assert_eq!(alloc(&mut pool, 272 * MIB).bytes, 272 * MIB, "128 MiB are not");
}

#[test]
fn without_growth_the_limit_is_one_region() {
    let options = BfcOptions { allow_growth: false, ..Default::default() };
    let mut pool = Bfc::with(Segments::new(100 * MIB), NoFence, options);
    alloc(&mut pool, 1);
    assert_eq!((pool.stats().reserved, pool.stats().source_calls), (100 * MIB, 1));
}

#[test]
fn a_region_shrinks_by_tenths_until_the_source_agrees() {
    let mut pool = Bfc::new(Segments::new(0));
    alloc(&mut pool, 2 * MIB);
    pool.source_mut().fail_call(1);
    alloc(&mut pool, MIB);
    // Nine tenths of 4 MiB, 3,774,873.6 bytes, rounded up to 256.
    assert_eq!(pool.stats().reserved, 2 * MIB + 3_774_976);
    pool.check().unwrap();
}

#[test]
fn frees_merge_with_both_neighbours() {
    let mut pool = Bfc::new(Segments::new(0));
    let blocks: Vec<Block> = (0..4).map(|_| alloc(&mut pool, MIB / 2)).collect();
    for at in [0, 2, 1] {
        free(&mut pool, blocks[at]);
        pool.check().unwrap();
    }
    assert_eq!(pool.stats().largest_free, 3 * MIB / 2);
    assert_eq!(pool.trim(), 0, "the last quarter lives");
    free(&mut pool, blocks[3]);
    assert_eq!((pool.trim(), pool.stats().returns), (2 * MIB, 1));
    assert!(pool.source().outstanding().is_empty());
}

#[test]
fn best_fit_takes_the_smallest_then_the_lowest() {
    let mut pool = Bfc::new(Segments::new(0));
    let blocks: Vec<Block> = [4096, 256, 2048, 256, 2048, 256].map(|bytes| alloc(&mut pool, bytes)).to_vec();
    for at in [0, 4, 2] {
        free(&mut pool, blocks[at]);
    }
    assert_eq!(alloc(&mut pool, 1792).address, blocks[2].address);
    assert_eq!(alloc(&mut pool, 1792).address, blocks[4].address);
    assert_eq!(alloc(&mut pool, 2304).address, blocks[0].address);
}

/// 30 MiB held in regions of 2, 4, 8 and 16, of which the 16 are free; then 20 MiB under a limit of 40.
fn squeezed(garbage_collection: bool) -> (Bfc<Segments>, Result<Block, Cause>) {
    let options = BfcOptions { garbage_collection, ..Default::default() };
    let mut pool = Bfc::with(Segments::new(40 * MIB), NoFence, options);
    let blocks = [2, 4, 8, 16].map(|mib| alloc(&mut pool, mib * MIB));
    free(&mut pool, blocks[3]);
    let result = pool.allocate(Request::new(20 * MIB)).map_err(|error| error.cause);
    pool.check().unwrap();
    (pool, result)
}

#[test]
fn free_regions_are_given_back_before_it_fails() {
    let (pool, result) = squeezed(true);
    assert!(result.is_ok());
    assert_eq!((pool.stats().reserved, pool.stats().returns), (40 * MIB, 1));
    let (pool, result) = squeezed(false);
    assert_eq!((result, pool.stats().reserved), (Err(Cause::OutOfMemory), 30 * MIB));
}

#[test]
fn free_regions_stay_when_they_would_not_help() {
    let mut pool = Bfc::new(Segments::new(40 * MIB));
    let blocks = [2, 4, 8, 16].map(|mib| alloc(&mut pool, mib * MIB));
    free(&mut pool, blocks[3]);
    assert_eq!(pool.allocate(Request::new(27 * MIB)).unwrap_err().cause, Cause::OutOfMemory);
    assert_eq!((pool.stats().reserved, pool.stats().returns), (30 * MIB, 0));
}
