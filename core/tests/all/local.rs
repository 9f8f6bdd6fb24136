//! Two levels: the local one takes no lock on a hit, keeps its caps, and detects stale handles.

use crate::model::{Regions, acts, drive};
use proptest::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use terrace_core::arena::{ArenaParts, ArenaSettings, ArenaStorage, PendingFree, PlainArena};
use terrace_core::layer::{Local, LocalCaps, LocalRecord, Locked};
use terrace_core::{
    Allocator, Arena, Bin, Block, Cause, Entry, FreeError, GoodFit, NoFence, Owner, Range, Request, Segment, Slot,
    Stats,
};

thread_local! {
    /// Number of locks by this test's thread: each test has a thread of its own.
    static LOCKS: Cell<u64> = const { Cell::new(0) };
}

/// A raw mutex that counts its locks, and panics on a deadlock with itself.
struct Counting(AtomicBool);

// SAFETY: `lock` returns only after this thread turned false into true, and only `unlock` turns it back, so one holder
// at a time; Acquire and Release order their critical sections.
unsafe impl lock_api::RawMutex for Counting {
    #[allow(clippy::declare_interior_mutable_const, reason = "the initial value, as the trait wants it")]
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        LOCKS.set(LOCKS.get() + 1);
        assert!(self.try_lock(), "the lock is held: this call would wait");
    }

    fn try_lock(&self) -> bool {
        !self.0.swap(true, Ordering::Acquire)
    }

    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

struct Vectors;

impl ArenaStorage for Vectors {
    type Slots = Vec<Slot>;
    type Index = GoodFit;
    type Bins = Vec<Bin>;
    type Entries = Vec<Entry<Block>>;
    type Segments = Vec<Segment>;
    type Pending = Vec<PendingFree>;
}

type Shared = Locked<Counting, PlainArena<Regions, Vectors>>;
type Level<'a> = Local<'a, Counting, PlainArena<Regions, Vectors>, Vec<Bin>, Vec<Entry<Block>>, Vec<LocalRecord>>;

/// An arena with a cache of its own (8 blocks of a size) over `capacity` bytes that lie `skew` off a page.
fn shared(capacity: u64, skew: u64) -> Shared {
    let parts = ArenaParts {
        slots: [vec![], vec![Slot::EMPTY; 400]],
        index: [GoodFit::new(), GoodFit::new()],
        bins: vec![Bin::EMPTY; 64],
        entries: vec![Entry::EMPTY; 64],
        segments: vec![Segment::EMPTY; 50],
        pending: [vec![], vec![]],
    };
    let settings = ArenaSettings { segment: 8192, grain: 4096, ..ArenaSettings::segments() };
    Locked::new(Arena::new(Regions::new(capacity, skew), NoFence, parts, settings).expect("valid"))
}

fn local(shared: &Shared, pooled_per_bucket: u32, bytes: u64, records: usize) -> Level<'_> {
    let caps = LocalCaps { granule: 64, pooled_per_bucket, bytes };
    let records = vec![LocalRecord::EMPTY; records];
    Local::new(shared, caps, vec![Bin::EMPTY; 64], vec![Entry::EMPTY; 64], records).expect("valid")
}

fn get(level: &mut Level<'_>, bytes: u64, owner: u32) -> Block {
    level.allocate(Request::new(bytes).owner(Owner(owner))).expect("there is room")
}

/// Bytes live in the shared level, including those that local levels have cached.
fn below(shared: &Shared) -> u64 {
    shared.with(|arena| arena.stats().in_use)
}

#[test]
fn a_local_hit_and_its_free_take_no_lock_even_while_another_holds_it() {
    let shared = shared(1 << 20, 0);
    let mut level = local(&shared, 4, 1 << 16, 8);
    let first = get(&mut level, 1000, 0);
    assert_eq!(LOCKS.get(), 1, "a miss asks once");
    shared.with(|_| {
        level.free(first, Owner(0)).expect("live");
        let again = get(&mut level, 1020, 0);
        assert_eq!(again.address, first.address, "1000 and 1020 bytes are both 16 granules");
        level.free(again, Owner(0)).expect("live");
    });
    assert_eq!(LOCKS.get(), 2, "the miss and `with`");
    let stats = level.stats();
    assert_eq!((stats.hits, stats.misses, stats.in_use, stats.pooled), (1, 1, 0, 1024));
    level.check().expect("every invariant holds");
}

#[test]
fn each_level_keeps_its_own_caps() {
    let shared = shared(1 << 20, 0);
    let mut level = local(&shared, 2, 400, 16);
    let blocks: Vec<Block> = (0..3).map(|_| get(&mut level, 64, 0)).collect();
    for block in blocks {
        level.free(block, Owner(0)).expect("live");
    }
    assert_eq!((level.pooled(), below(&shared)), (128, 128), "two of a size; the third went down");
    assert_eq!(level.stats().pooled, 192, "where it was cached");
    let (large, other) = (get(&mut level, 256, 0), get(&mut level, 64, 7));
    level.free(large, Owner(0)).expect("live");
    assert_eq!(level.pooled(), 384, "of 400 bytes");
    level.free(other, Owner(7)).expect("live");
    assert_eq!(level.pooled(), 384, "64 more would pass the cap");
    level.set_caps(0, u64::MAX);
    let block = get(&mut level, 512, 0);
    level.free(block, Owner(0)).expect("live");
    assert_eq!(level.pooled(), 384, "no block of a size is kept at a cap of 0");
    assert!(level.trim() > 0);
    assert_eq!((level.stats().pooled, level.stats().reserved), (0, 0));
    level.check().expect("every invariant holds");
}

#[test]
fn a_name_is_dead_while_its_block_is_cached_and_after() {
    let shared = shared(1 << 20, 0);
    let mut level = local(&shared, 4, 1 << 16, 8);
    let old = get(&mut level, 100, 0);
    level.free(old, Owner(0)).expect("live");
    let stale = Err(FreeError::Stale { address: old.address });
    assert_eq!(level.free(old, Owner(0)), stale, "cached");
    assert_eq!(level.resize(old, 64).expect_err("cached").cause, Cause::NotLive);
    let new = get(&mut level, 100, 0);
    assert_eq!((new.address, new.slot), (old.address, old.slot), "the same block in the same record");
    assert_eq!(level.free(old, Owner(0)), stale, "handed out again");
    level.hand_over(new).expect("live");
    assert_eq!(level.free(new, Owner(0)), Err(FreeError::Stale { address: new.address }), "handed over");
}

#[test]
fn a_block_of_another_level_is_foreign_or_stale_and_can_be_handed_over() {
    let shared = shared(1 << 20, 0);
    let (mut one, mut two) = (local(&shared, 4, 1 << 16, 8), local(&shared, 4, 1 << 16, 8));
    let (mine, theirs) = (get(&mut one, 100, 1), get(&mut two, 100, 2));
    assert_eq!((mine.slot, mine.ticket), (theirs.slot, theirs.ticket), "each counts for itself");
    assert!(one.free(theirs, Owner(1)).is_err() && two.free(mine, Owner(2)).is_err());
    let name = one.hand_over(mine).expect("live");
    assert!(one.free(mine, Owner(1)).is_err(), "no longer this level's");
    shared.with(|arena| arena.free(name, Owner(2))).expect("live in the shared level");
    two.free(theirs, Owner(2)).expect("live");
    one.check().and(two.check()).expect("every invariant holds");
}

#[test]
fn owners_do_not_share_what_is_cached_and_dropping_gives_it_back() {
    let shared = shared(1 << 20, 0);
    let mut level = local(&shared, 4, 1 << 16, 8);
    let first = get(&mut level, 100, 1);
    level.free(first, Owner(1)).expect("live");
    let second = get(&mut level, 100, 2);
    assert_ne!(second.address, first.address, "owner 1's");
    assert_eq!(get(&mut level, 100, 1).address, first.address);
    level.free(second, Owner(2)).expect("live");
    assert_eq!(below(&shared), 256);
    drop(level);
    assert_eq!(below(&shared), 128, "the cached one is back, the live one stays");
    shared.with(|arena| arena.check()).expect("every invariant holds");
}

#[test]
fn what_is_cached_is_given_down_before_a_request_fails() {
    let shared = shared(8192, 0);
    let mut level = local(&shared, 64, 1 << 16, 64);
    let blocks: Vec<Block> = (0..32).map(|_| get(&mut level, 256, 0)).collect();
    for block in &blocks {
        level.free(*block, Owner(0)).expect("live");
    }
    assert_eq!(level.pooled(), 8192, "everything");
    let whole = get(&mut level, 8192, 0);
    let error = level.allocate(Request::new(65)).expect_err("nothing is left");
    assert_eq!((error.cause, error.asked), (Cause::OutOfMemory, 65));
    level.free(whole, Owner(0)).expect("live");
    level.check().expect("every invariant holds");
}

#[test]
fn bad_requests_and_a_lack_of_records_change_nothing() {
    let shared = shared(1 << 20, 0);
    let caps = LocalCaps { granule: 48, pooled_per_bucket: 1, bytes: 0 };
    let refused = Local::new(&shared, caps, vec![], vec![], Vec::<LocalRecord>::new());
    assert_eq!(refused.err().map(|error| error.cause), Some(Cause::BadRequest), "no power of two");
    let mut level = local(&shared, 4, 1 << 16, 1);
    for request in [Request::new(0), Request::new(8).align(3), Request::new(u64::MAX)] {
        level.allocate(request).expect_err("cannot be met");
    }
    let only = get(&mut level, 256, 0);
    assert_eq!(level.allocate(Request::new(64)).expect_err("one record").cause, Cause::OutOfSlots);
    assert_eq!(level.resize(only, 0).expect_err("0 bytes").cause, Cause::BadRequest);
    assert_eq!((below(&shared), level.stats().failed), (256, 4));
    let less = level.resize(only, 100).expect("a block can always shrink");
    assert_eq!((less.address, less.bytes), (only.address, 128));
    assert!(level.free(only, Owner(0)).is_err(), "the old name");
    level.free(less, Owner(0)).expect("live");
    assert_eq!(level.pooled(), 128, "cached under its new size");
    let aligned = level.allocate(Request::new(256).align(4096)).expect("room");
    assert_eq!(aligned.address % 4096, 0);
    level.check().expect("every invariant holds");
}

proptest! {
    #[test]
    fn two_levels_keep_the_contract(
        acts in acts(1000, 200), pooled_per_bucket in 0u32..5, cap in 0u64..5000, skew in 0u64..100, records in 1usize..80,
    ) {
        let shared = shared(1 << 18, skew * 64);
        let mut level = local(&shared, pooled_per_bucket, cap, records);
        drive(&mut level, &acts);
        prop_assert!(level.pooled() <= cap);
        drop(level);
        prop_assert_eq!(below(&shared), 0);
    }
}

#[test]
fn cumulative_bytes_are_of_all_blocks_and_of_what_resizes_added() {
    // The bytes of a level are those of its callers: what a hit hands out again counts again, below it does not.
    let shared = shared(1 << 20, 0);
    let mut level = local(&shared, 4, 1 << 16, 8);
    let moved = |stats: Stats| (stats.allocated_bytes, stats.freed_bytes);
    let first = get(&mut level, 1024, 0);
    level.free(first, Owner(0)).expect("live");
    let again = get(&mut level, 1024, 0);
    assert_eq!(moved(level.stats()), (2048, 1024));
    assert_eq!(moved(shared.with(|arena| arena.stats())), (1024, 0), "the second was a hit");
    let smaller = level.resize(again, 256).expect("blocks shrink");
    assert_eq!(moved(level.stats()), (2048, 1792));
    let larger = level.resize(smaller, 512).expect("the gap after it is free");
    assert_eq!(moved(level.stats()), (2304, 1792));
    assert_eq!(moved(shared.with(|arena| arena.stats())), (1280, 768));
    level.free(larger, Owner(0)).expect("live");
    assert_eq!(moved(level.stats()), (2304, 2304));
    level.trim();
    assert_eq!(moved(shared.with(|arena| arena.stats())), (1280, 1280));

    let mut slots = [Slot::EMPTY; 8];
    let mut range = Range::new(&mut slots[..], 64, GoodFit::new()).expect("valid");
    range.add_region(1 << 20, 1 << 16).expect("room");
    let block = range.allocate(Request::new(4000)).expect("room");
    let block = range.resize(block, 100).expect("blocks shrink");
    let block = range.resize(block, 1000).expect("there was more");
    assert_eq!(moved(range.stats()), (4928, 3904), "63 granules and 14, of which 16 are left");
    range.free(block, Owner(0)).expect("live");
    assert_eq!(moved(range.stats()), (4928, 4928));
}
