//! RMM's policy by hand: rounding, growth, best fit, merging.

use crate::common;

use common::MIB;
use terrace_core::{Allocator, Block, Cause, NoFence, Owner, Region, Request, Source, SourceError, SourceUsage};
use terrace_models::{Rmm, RmmOptions, Segments};

fn alloc(pool: &mut impl Allocator, bytes: u64) -> Block {
    pool.allocate(Request::new(bytes)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn sizes_are_multiples_of_256_and_split_exactly() {
    let options = RmmOptions { initial: MIB, maximum: 0 };
    let mut pool = Rmm::with(Segments::new(0), NoFence, options);
    let first = alloc(&mut pool, 1);
    let second = alloc(&mut pool, 257);
    assert_eq!((first.bytes, second.bytes, second.address), (256, 512, first.address + 256));
    assert_eq!((pool.stats().reserved, pool.stats().largest_free), (MIB, MIB - 768));
    assert_eq!((pool.stats().hits, pool.stats().misses), (1, 1));
    pool.check().unwrap();
}

#[test]
fn without_a_maximum_the_pool_doubles() {
    let mut pool = Rmm::new(Segments::new(0));
    for expected in [1, 2, 4, 4, 8, 8, 8, 8, 16] {
        alloc(&mut pool, MIB);
        assert_eq!(pool.stats().reserved, expected * MIB);
    }
    alloc(&mut pool, 100 * MIB);
    assert_eq!(pool.stats().reserved, 116 * MIB, "a larger request is taken as it is");
    pool.check().unwrap();
}

#[test]
fn with_a_maximum_it_takes_half_of_what_is_left() {
    let options = RmmOptions { initial: 0, maximum: 64 * MIB };
    let mut pool = Rmm::with(Segments::new(0), NoFence, options);
    alloc(&mut pool, 20 * MIB);
    assert_eq!(pool.stats().reserved, 32 * MIB);
    alloc(&mut pool, 14 * MIB);
    assert_eq!(pool.stats().reserved, 48 * MIB);
    assert_eq!(pool.allocate(Request::new(17 * MIB)).unwrap_err().cause, Cause::OutOfMemory);
    alloc(&mut pool, 16 * MIB);
    assert_eq!(pool.stats().reserved, 64 * MIB, "more than half of the rest: all that is needed");
}

#[test]
fn growth_is_halved_until_the_source_agrees() {
    let mut pool = Rmm::new(Segments::new(44 * MIB));
    alloc(&mut pool, 32 * MIB);
    alloc(&mut pool, 3 * MIB);
    assert_eq!(pool.stats().reserved, 40 * MIB, "32 and 16 are refused, 8 is given");
    assert_eq!(pool.allocate(Request::new(6 * MIB)).unwrap_err().largest_free, 5 * MIB);
    alloc(&mut pool, 5 * MIB);
}

#[test]
fn frees_merge_within_a_region_only() {
    let mut pool = Rmm::new(Segments::new(0));
    let a = alloc(&mut pool, MIB);
    let b = alloc(&mut pool, MIB);
    let c = pool.allocate(Request::new(MIB)).unwrap();
    assert_ne!(b.region, c.region);
    for block in [a, c, b] {
        pool.free(block, Owner(0)).unwrap();
        pool.check().unwrap();
    }
    assert_eq!(pool.stats().largest_free, 2 * MIB, "the third region has 2 MiB, the others one each");
    assert_eq!(pool.trim(), 4 * MIB);
    assert_eq!((pool.stats().returns, pool.source().outstanding().len()), (3, 0));
}

#[test]
fn best_fit_takes_the_smallest_then_the_lowest() {
    let options = RmmOptions { initial: MIB, maximum: 0 };
    let mut pool = Rmm::with(Segments::new(0), NoFence, options);
    let blocks: Vec<Block> = [1024, 256, 512, 256, 512, 256].map(|bytes| alloc(&mut pool, bytes)).to_vec();
    for at in [0, 4, 2] {
        pool.free(blocks[at], Owner(0)).unwrap();
    }
    assert_eq!(alloc(&mut pool, 300).address, blocks[2].address);
    assert_eq!(alloc(&mut pool, 300).address, blocks[4].address);
    assert_eq!(alloc(&mut pool, 300).address, blocks[0].address, "the larger piece is split");
}

#[test]
fn a_stream_takes_the_whole_list_it_finds_a_fit_in() {
    let (a, b) = (Owner(1), Owner(2));
    let mut pool = Rmm::with(Segments::new(0), NoFence, RmmOptions { initial: 4 * MIB, maximum: 0 });
    let first = pool.allocate(Request::new(MIB).owner(a)).unwrap();
    pool.free(first, a).unwrap();
    let second = pool.allocate(Request::new(MIB).owner(b)).unwrap();
    assert_eq!((second.address, pool.waits()), (first.address, 1));
    pool.allocate(Request::new(MIB).owner(b)).unwrap();
    assert_eq!(pool.waits(), 1, "the rest of the list is now its own");
    pool.check().unwrap();
}

#[test]
fn lists_are_merged_when_only_together_they_fit() {
    let owners = [Owner(1), Owner(2), Owner(3)];
    let mut pool = Rmm::with(Segments::new(3 * MIB), NoFence, RmmOptions { initial: 3 * MIB, maximum: 0 });
    let blocks = owners.map(|_| alloc(&mut pool, MIB));
    for (block, owner) in blocks.into_iter().zip(owners) {
        pool.free(block, owner).unwrap();
    }
    let whole = pool.allocate(Request::new(3 * MIB).owner(owners[0])).unwrap();
    assert_eq!((whole.address, pool.waits(), pool.stats().hits), (blocks[0].address, 2, 3));
    pool.check().unwrap();
}

/// A source whose regions touch, as a driver's may.
#[derive(Default)]
struct Touching(SourceUsage);

impl Source for Touching {
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError> {
        let region = Region { id: self.0.calls, base: MIB + self.0.reserved, bytes };
        self.0.reserved += bytes;
        self.0.peak_reserved += bytes;
        self.0.calls += 1;
        Ok(region)
    }

    fn give_back(&mut self, _: Region) -> Result<(), SourceError> {
        Err(SourceError::Unsupported)
    }

    fn usage(&self) -> SourceUsage {
        self.0
    }
}

#[test]
fn regions_that_touch_do_not_merge() {
    let mut pool = Rmm::new(Touching::default());
    let [a, b] = [0; 2].map(|_| alloc(&mut pool, MIB));
    assert_eq!(a.address + MIB, b.address);
    for block in [a, b] {
        pool.free(block, Owner(0)).unwrap();
    }
    assert_eq!(pool.stats().largest_free, MIB);
    assert_eq!(pool.trim(), 0, "the source takes nothing back");
    pool.check().unwrap();
}
