//! The contract suite on every allocator of the core and the library, and on every source of the project.
//!
//! A new allocator is one more test of three lines. Sizes are chosen so that programs fill the allocator up: requests of
//! up to 64 KiB (the suite's default) against one to four MiB.

use lock_api::Mutex;
use terrace::engine::layer::{Limit, Locked, PageOwners, TenantShare, Tenants};
use terrace::engine::pool::{BlockRecord, BucketArena, Buckets, SegmentRecord, SizeClasses};
use terrace::engine::shared::{OwnedBlock, SharedPool};
use terrace::engine::sync::AtomicUsize;
use terrace::engine::{
    AllocError, Allocator, AnyFit, BestFit, Block, Branch, FirstFit, Fit, FreeError, GoodFit, Index, LentSlots, Owner,
    Range, Request, Slot, Stats, Violation, WorstFit,
};
use terrace_models::{Growing, Segments};
use terrace_tests::{Contract, SourceContract, contract, source_contract};

/// Slots of a range: fewer than the longest programs can have live, so that they run out of slots too.
const SLOTS: usize = 64;

fn branches() -> Vec<Branch> {
    vec![Branch::EMPTY; SLOTS]
}

/// Two regions of 512 KiB, not adjacent.
fn range<I: Index>(index: I) -> Range<Vec<Slot>, I> {
    let mut range = Range::new(vec![Slot::EMPTY; SLOTS], 64, index).expect("64 is a power of two");
    range.add_region(1 << 20, 512 << 10).expect("room for a region");
    range.add_region(4 << 20, 512 << 10).expect("room for a region");
    range
}

#[test]
fn range_good_fit() {
    contract(|| range(GoodFit::new())).unwrap();
}

#[test]
fn range_best_fit() {
    contract(|| range(BestFit::new(branches()))).unwrap();
}

#[test]
fn range_first_fit() {
    contract(|| range(FirstFit::new(branches()))).unwrap();
}

#[test]
fn range_worst_fit() {
    contract(|| range(WorstFit::new(branches()))).unwrap();
}

#[test]
fn range_any_fit() {
    for fit in [Fit::Good, Fit::Best, Fit::First, Fit::Worst] {
        contract(|| range(AnyFit::new(fit, branches()))).unwrap();
    }
}

#[test]
fn range_with_a_granule_of_a_byte() {
    let make = || {
        let mut range = Range::new(vec![Slot::EMPTY; SLOTS], 1, GoodFit::new()).expect("1 is a power of two");
        range.add_region(3, 100_001).expect("room for a region");
        range
    };
    Contract::new().largest(6000).check(make).unwrap();
}

#[test]
fn range_over_slots_lent_in_slices() {
    let slots = |count: usize| vec![Slot::EMPTY; count].leak();
    let make = || {
        let mut lent = LentSlots::new(slots(8)).expect("a power of two");
        lent.lend(slots(8)).expect("as many again");
        lent.lend(slots(16)).expect("as many again");
        let mut range = Range::new(lent, 64, GoodFit::new()).expect("64 is a power of two");
        range.add_region(0, 1 << 20).expect("room for a region");
        range
    };
    Contract::new().programs(32, 150).check(make).unwrap();
}

/// Words that live as long as the test: `Buckets` borrows them.
fn words(count: usize) -> &'static [AtomicUsize] {
    (0..count).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>().leak()
}

/// 64 B to 1 KiB in powers of two.
const COUNTS: [u32; 5] = [9, 8, 8, 7, 6];

fn buckets(base: u64) -> Buckets<'static, 5> {
    let steps = SizeClasses::new(64, 1).expect("64 is a power of two");
    Buckets::new(steps, COUNTS, base, words(Buckets::words(&COUNTS))).expect("enough words")
}

#[test]
fn pool_buckets() {
    Contract::new().largest(1200).check(|| buckets(1 << 20)).unwrap();
    Contract::new().largest(1200).check(|| buckets(1 << 20).with_spill()).unwrap();
}

type Arena = BucketArena<Segments, Vec<BlockRecord>, Vec<SegmentRecord>>;

/// Buckets that grow, over at most `capacity` bytes.
fn bucket_arena(capacity: u64) -> Arena {
    let (blocks, segments) = (vec![BlockRecord::default(); 200], vec![SegmentRecord::default(); 60]);
    BucketArena::new(Segments::new(capacity), SizeClasses::new(16, 4).expect("valid"), 64 << 10, blocks, segments)
}

#[test]
fn pool_bucket_arena() {
    contract(|| bucket_arena(1 << 20)).unwrap();
}

#[test]
fn pool_bucket_arena_on_a_growing_source() {
    let make = || {
        let (blocks, segments) = (vec![BlockRecord::default(); 200], vec![SegmentRecord::default(); 60]);
        BucketArena::new(Growing::new(24 << 20), SizeClasses::new(512, 8).expect("valid"), 2 << 20, blocks, segments)
    };
    Contract::new().largest(3 << 20).check(make).unwrap();
}

#[test]
fn layer_limit() {
    contract(|| Limit::new(range(BestFit::new(branches())), 300_000)).unwrap();
    contract(|| Limit::new(bucket_arena(1 << 20), 300_001)).unwrap();
}

#[test]
fn layer_locked() {
    contract(|| Locked::<parking_lot::RawMutex, _>::new(range(GoodFit::new()))).unwrap();
    let share = |locked: &'static Locked<parking_lot::RawMutex, Range<Vec<Slot>>>| locked;
    contract(|| share(Box::leak(Box::new(Locked::new(range(GoodFit::new())))))).unwrap();
}

#[test]
fn layer_tenants() {
    let make = || {
        let shares = [(0, 400_000, 100_000), (1, 300_000, 0), (2, 600_000, 200_000)];
        let shares = shares.map(|(owner, cap, guaranteed)| TenantShare::new(Owner(owner), cap, guaranteed));
        let pages = PageOwners::new(1 << 20, 4096, vec![0; 1024].leak());
        let shares = Box::leak(Box::new(shares));
        Tenants::new(range(GoodFit::new()), |_, _| Ok(()), 1 << 20, shares, pages).expect("fair shares")
    };
    // A tenant cannot free another's block; the fourth owner has no share, and is always refused.
    Contract::new().owners(4).own_blocks_only().check(make).unwrap();
}

/// A pool that threads share, seen through the common face: it keeps the owned blocks that it hands out names for.
struct Shared {
    pool: SharedPool<Arena>,
    owned: Mutex<parking_lot::RawMutex, Vec<OwnedBlock<SharedPool<Arena>>>>,
}

impl Allocator for Shared {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        let owned = self.pool.request(request)?;
        let block = *owned.block();
        self.owned.get_mut().push(owned);
        Ok(block)
    }

    fn free(&mut self, block: Block, _: Owner) -> Result<(), FreeError> {
        let owned = self.owned.get_mut();
        let at = owned.iter().position(|owned| *owned.block() == block);
        owned.swap_remove(at.ok_or(FreeError::Stale { address: block.address })?);
        Ok(())
    }

    fn trim(&mut self) -> u64 {
        self.pool.trim()
    }

    fn stats(&self) -> Stats {
        self.pool.stats()
    }

    fn check(&self) -> Result<(), Violation> {
        self.pool.check()
    }
}

#[test]
fn shared_pool() {
    contract(|| Shared { pool: SharedPool::new(bucket_arena(1 << 20)), owned: Mutex::default() }).unwrap();
}

#[test]
fn sources_for_simulation() {
    source_contract(|| Segments::new(4 << 20)).unwrap();
    source_contract(|| Segments::new(0)).unwrap();
    SourceContract::new().largest(16 << 20).check(|| Growing::new(64 << 20)).unwrap();
    SourceContract::new().largest(16 << 20).check(|| Growing::new(0)).unwrap();
}
