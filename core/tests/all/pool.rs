//! Pools and buckets beside simple models: sizes, bitmap, fixed buckets, growing buckets.

use crate::model::{Regions, acts, drive};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize as Counter, Ordering};
use terrace_core::pool::{BlockRecord, BucketArena, Buckets, Pool, SegmentRecord, SizeClasses};
use terrace_core::sync::AtomicUsize;
use terrace_core::{AllocError, Allocator, Block, Cause, FreeError, Owner, Request, SourceError};

fn words(count: usize) -> Vec<AtomicUsize> {
    (0..count).map(|_| AtomicUsize::new(0)).collect()
}

fn cause<T>(result: Result<T, AllocError>) -> Option<Cause> {
    result.err().map(|error| error.cause)
}

// Sizes.

#[test]
fn sizes_are_tight_both_ways() {
    for (min, per_octave) in [(1, 1), (2, 2), (4, 4), (8, 8), (512, 1), (16, 4)] {
        let steps = SizeClasses::new(min, per_octave).expect("valid");
        let edges = (0..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1u64 << bits) + 1, 3u64 << bits >> 1]);
        for bytes in (1..5000).chain(edges.filter(|bytes| *bytes != 0)).chain([u64::MAX]) {
            if let Some(class) = steps.ceil(bytes) {
                let size = steps.size(class).expect("a class has a size");
                assert!(size >= bytes, "{bytes} in {size}");
                assert!(class == 0 || steps.size(class - 1).expect("smaller") < bytes, "{bytes}: {size} is tightest");
                let waste_bound = if bytes > min { (size - bytes) as u128 * (u128::from(per_octave) + 1) } else { 0 };
                assert!(waste_bound <= u128::from(size), "{bytes} wastes at most 1/(s+1) of {size}");
            } else {
                assert!(bytes > 1 << 63, "{bytes} has a class");
            }
            match steps.floor(bytes) {
                None => assert!(bytes < min),
                Some(class) => {
                    assert!(steps.size(class).expect("a class has a size") <= bytes);
                    assert!(steps.size(class + 1).is_none_or(|next| next > bytes), "{bytes}: the next is too large");
                }
            }
        }
    }
}

#[test]
fn sizes_refuse_bad_tables_and_end_at_the_last_class() {
    for (min, per_octave) in [(0, 1), (24, 1), (16, 3), (16, 16), (4, 8), (16, 0)] {
        assert_eq!(cause(SizeClasses::new(min, per_octave)), Some(Cause::BadRequest), "{min} in {per_octave}");
    }
    let steps = SizeClasses::new(16, 4).expect("valid");
    let last = (0..).take_while(|class| steps.size(*class).is_some()).last().expect("some");
    assert_eq!(steps.size(last), Some((1 << 63) / 4 * 7));
    assert_eq!(steps.ceil((1 << 63) / 4 * 7), Some(last));
    assert_eq!(steps.ceil((1 << 63) / 4 * 7 + 1), None);
}

#[test]
fn an_aligned_class_is_the_first_that_fits() {
    let steps = SizeClasses::new(16, 4).expect("valid");
    for align in (0..8).map(|bits| 1u64 << bits) {
        for bytes in 1..2000 {
            let class = steps.aligned(bytes, align).expect("there is one");
            let fits = |class: &u32| steps.size(*class).is_some_and(|size| size >= bytes && size % align == 0);
            let first = (0..200).find(fits);
            assert_eq!(Some(class), first, "{bytes} at {align}");
        }
    }
    assert_eq!(steps.aligned(1, 1 << 63).and_then(|class| steps.size(class)), Some(1 << 63));
}

// The bitmap.

#[test]
fn a_pool_hands_out_each_block_once_and_then_none() {
    for blocks in [1, 2, 63, 64, 65, 127, 128, 130] {
        let words = words(Pool::words(blocks));
        let pool = Pool::new(&words, blocks).expect("enough words");
        let taken: BTreeSet<_> = std::iter::from_fn(|| pool.acquire()).collect();
        assert_eq!(taken, (0..blocks).collect(), "every index once");
        assert_eq!((pool.in_use(), pool.acquire()), (blocks, None));
        pool.release(blocks / 2).expect("it is out");
        assert_eq!(pool.acquire(), Some(blocks / 2));
        pool.check().expect("no stray bit");
    }
}

#[test]
fn a_pool_refuses_double_and_foreign_releases_and_short_words() {
    let memory = words(Pool::words(70));
    let pool = Pool::new(&memory, 70).expect("enough words");
    let block = pool.acquire().expect("free");
    assert_eq!(pool.release(block), Ok(()));
    assert_eq!(pool.release(block), Err(FreeError::Stale { address: u64::from(block) }));
    for foreign in [70, 71, 127, 128, 1000, u32::MAX] {
        assert_eq!(pool.release(foreign), Err(FreeError::Foreign { address: u64::from(foreign) }));
        assert!(!pool.is_out(foreign));
    }
    assert_eq!(pool.in_use(), 0);
    assert_eq!(cause(Pool::new(&memory[1..], 70)), Some(Cause::OutOfSlots));
    assert_eq!(cause(Pool::new(&memory, 0)), Some(Cause::BadRequest));
}

#[test]
fn a_pool_guard_releases_when_dropped_and_survives_a_hand_release() {
    let words = words(Pool::words(2));
    let pool = Pool::new(&words, 2).expect("enough words");
    let guard = pool.acquire_guard().expect("free");
    assert!(pool.is_out(guard.index()));
    drop(guard);
    assert_eq!(pool.in_use(), 0);
    let guard = pool.acquire_guard().expect("free");
    pool.release(guard.index()).expect("by hand");
    drop(guard);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn a_check_sees_a_bit_past_the_last_block() {
    let words = words(Pool::words(3));
    let pool = Pool::new(&words, 3).expect("enough words");
    pool.check().expect("nothing wrong yet");
    words[0].store(1 << 3, Ordering::Relaxed);
    assert!(pool.check().is_err());
}

proptest! {
    #[test]
    fn a_pool_agrees_with_a_set(blocks in 1u32..200, acts in prop::collection::vec((0..3u8, any::<u32>()), 1..300)) {
        let words = words(Pool::words(blocks));
        let pool = Pool::new(&words, blocks).expect("enough words");
        let mut out = BTreeSet::new();
        for (act, index) in acts {
            if act > 0 {
                match pool.acquire() {
                    Some(block) => prop_assert!(block < blocks && out.insert(block)),
                    None => prop_assert_eq!(out.len(), blocks as usize),
                }
            } else {
                prop_assert_eq!(pool.release(index % blocks).is_ok(), out.remove(&(index % blocks)));
            }
            prop_assert_eq!(pool.in_use() as usize, out.len());
            pool.check().expect("no stray bit");
        }
    }
}

#[test]
fn threads_never_hold_one_block_twice() {
    const BLOCKS: u32 = 70;
    let words = words(Pool::words(BLOCKS));
    let held: Vec<_> = (0..BLOCKS).map(|_| AtomicBool::new(false)).collect();
    let turns = Counter::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let pool = Pool::new(&words, BLOCKS).expect("enough words");
                for turn in 0..if cfg!(miri) { 12 } else { 20_000 } {
                    let mine: Vec<_> = (0..turn % 30).filter_map(|_| pool.acquire()).collect();
                    for block in &mine {
                        assert!(!held[*block as usize].swap(true, Ordering::Relaxed), "{block} is held twice");
                    }
                    for block in mine {
                        held[block as usize].store(false, Ordering::Relaxed);
                        pool.release(block).expect("it is ours");
                        turns.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(turns.into_inner() > 0);
    assert_eq!(Pool::new(&words, BLOCKS).expect("enough words").in_use(), 0);
}

// Fixed buckets.

const COUNTS: [u32; 5] = [40, 3, 20, 1, 7];

#[test]
fn buckets_lie_apart_and_keep_their_alignment() {
    let words = words(Buckets::words(&COUNTS));
    let mut buckets =
        Buckets::new(SizeClasses::new(64, 2).expect("valid"), COUNTS, 1000, &words).expect("enough words");
    for (bytes, count) in [64, 96, 128, 192, 256].into_iter().zip(COUNTS) {
        for _ in 0..count {
            let block = buckets.allocate(Request::new(bytes)).expect("room");
            assert_eq!((block.bytes, block.address % (1 << bytes.trailing_zeros())), (bytes, 0));
            assert!(block.address >= 1000 && block.address + block.bytes <= buckets.end());
        }
        assert_eq!(cause(buckets.allocate(Request::new(bytes))), Some(Cause::OutOfMemory), "{bytes} without spill");
    }
    buckets.check().expect("all out");
    assert_eq!(buckets.stats().in_use, buckets.stats().capacity);
    assert_eq!(cause(buckets.allocate(Request::new(257))), Some(Cause::TooLarge));
    assert_eq!(cause(buckets.allocate(Request::new(64).align(512))), Some(Cause::TooLarge));
    assert_eq!(cause(buckets.allocate(Request::new(0))), Some(Cause::BadRequest));
    assert_eq!(buckets.stats().failed, 8);
}

#[test]
fn a_full_bucket_spills_into_a_larger_one_only_when_told() {
    let words = words(Buckets::words(&[1, 1]));
    let make = || Buckets::new(SizeClasses::new(64, 1).expect("valid"), [1, 1], 0, &words).expect("enough words");
    let strict = make();
    let first = strict.acquire(Request::new(64)).expect("room");
    let refused = strict.acquire(Request::new(64)).expect_err("full");
    assert_eq!((refused.cause, refused.largest_free), (Cause::OutOfMemory, 128));
    strict.release(first).expect("live");
    let spilling = make().with_spill();
    let _first = spilling.acquire(Request::new(64)).expect("room");
    assert_eq!(spilling.acquire(Request::new(64)).expect("from the larger").bytes, 128);
    assert!(spilling.acquire(Request::new(64)).is_err());
}

#[test]
fn an_aligned_request_spills_into_classes_that_keep_its_alignment_only() {
    let words = words(Buckets::words(&[1; 5]));
    let buckets = Buckets::new(SizeClasses::new(64, 2).expect("valid"), [1; 5], 0, &words).expect("enough words");
    let buckets = buckets.with_spill();
    let sizes = std::iter::from_fn(|| buckets.acquire(Request::new(64).align(64)).ok()).map(|block| block.bytes);
    assert_eq!(sizes.collect::<Vec<_>>(), [64, 128, 192, 256]);
    assert_eq!(buckets.acquire(Request::new(64)).map(|block| block.bytes), Ok(96), "free all the while");
}

#[test]
fn a_stale_bucket_name_is_known_after_reuse_and_forgeries_are_foreign() {
    let words = words(Buckets::words(&[1, 2]));
    let buckets = Buckets::new(SizeClasses::new(64, 1).expect("valid"), [1, 2], 4096, &words).expect("enough words");
    let old = buckets.acquire(Request::new(64)).expect("room");
    buckets.release(old).expect("live");
    let new = buckets.acquire(Request::new(64)).expect("room");
    assert_eq!((new.address, new.slot), (old.address, old.slot), "the same record");
    assert_eq!(buckets.release(old), Err(FreeError::Stale { address: old.address }));
    let forgeries = [
        Block { address: new.address + 1, ..new },
        Block { bytes: 128, ..new },
        Block { slot: 1, ..new },
        Block { slot: 99, ..new },
        Block { region: 1, ..new },
        Block { region: 7, ..new },
        Block { ticket: new.ticket ^ 1, ..new },
    ];
    for forged in forgeries {
        assert_eq!(buckets.release(forged), Err(FreeError::Foreign { address: forged.address }), "{forged:?}");
    }
    buckets.release(new).expect("still live");
}

#[test]
fn of_two_threads_freeing_one_block_one_succeeds() {
    let words = words(Buckets::words(&[4]));
    let buckets = Buckets::new(SizeClasses::new(64, 1).expect("valid"), [4], 0, &words).expect("enough words");
    for _ in 0..if cfg!(miri) { 5 } else { 2000 } {
        let block = buckets.acquire(Request::new(1)).expect("room");
        let freed = std::thread::scope(|scope| {
            let other = scope.spawn(|| buckets.release(block).is_ok());
            usize::from(buckets.release(block).is_ok()) + usize::from(other.join().expect("no panic"))
        });
        assert_eq!(freed, 1);
    }
    buckets.check().expect("at rest");
    assert_eq!(buckets.stats().live_blocks, 0);
}

#[test]
fn a_bucket_guard_releases_when_dropped() {
    let words = words(Buckets::words(&[1]));
    let buckets = Buckets::new(SizeClasses::new(64, 1).expect("valid"), [1], 0, &words).expect("enough words");
    let guard = buckets.acquire_guard(10).expect("room");
    assert!(buckets.acquire_guard(10).is_err());
    drop(guard);
    assert!(buckets.acquire_guard(10).is_ok());
}

#[test]
fn buckets_refuse_what_they_cannot_describe() {
    let memory = words(Buckets::words(&[8, 8]));
    let steps = SizeClasses::new(64, 1).expect("valid");
    assert_eq!(cause(Buckets::new(steps, [8, 8], 0, &memory[1..])), Some(Cause::OutOfSlots));
    assert_eq!(cause(Buckets::new(steps, [8, 8], u64::MAX - 5, &memory)), Some(Cause::TooLarge));
    assert_eq!(cause(Buckets::new(steps, [8, 0], 0, &memory)), Some(Cause::BadRequest));
    assert_eq!(cause(Buckets::new(steps, [], 0, &memory)), Some(Cause::BadRequest));
}

proptest! {
    #[test]
    fn buckets_keep_the_contract(acts in acts(300, 200), spill: bool, base in 0u64..5000) {
        let words = words(Buckets::words(&COUNTS));
        let buckets = Buckets::new(SizeClasses::new(64, 2).expect("valid"), COUNTS, base, &words).expect("enough words");
        drive(&mut if spill { buckets.with_spill() } else { buckets }, &acts);
    }
}

// Buckets that grow.

type Arena = BucketArena<Regions, Vec<BlockRecord>, Vec<SegmentRecord>>;

fn arena(source: Regions, per_octave: u64, segment: u64, blocks: usize, segments: usize) -> Arena {
    let steps = SizeClasses::new(16, per_octave).expect("valid");
    BucketArena::new(
        source,
        steps,
        segment,
        vec![BlockRecord::default(); blocks],
        vec![SegmentRecord::default(); segments],
    )
}

proptest! {
    #[test]
    fn growing_buckets_keep_the_contract(
        acts in acts(100_000, 200),
        steps in 0u32..4,
        segment in prop_oneof![Just(0u64), Just(4096), Just(65536)],
        capacity in prop_oneof![Just(200_000u64), Just(1 << 30)],
        skew in prop_oneof![Just(0u64), 0u64..600],
        blocks in prop_oneof![Just(500usize), 1usize..20],
        segments in prop_oneof![Just(100usize), 1usize..8],
    ) {
        let mut arena = arena(Regions::new(capacity, skew), 1 << steps, segment, blocks, segments);
        drive(&mut arena, &acts);
        prop_assert_eq!(arena.stats().reserved, 0);
        prop_assert!(arena.source().out.is_empty(), "every region went back");
        prop_assert_eq!(arena.stats().source_calls, arena.source().calls);
    }

    #[test]
    fn a_fresh_arena_never_refuses_what_fits(bytes in 1u64..100_000, align in 0u32..17, skew in 0u64..5000) {
        let mut arena = arena(Regions::new(1 << 22, skew), 4, 4096, 4, 4);
        let block = arena.allocate(Request::new(bytes).align(1 << align)).expect("plenty of room");
        prop_assert_eq!(block.address % (1 << align), 0);
        arena.check().expect("every invariant holds");
    }
}

#[test]
fn a_segment_is_shared_by_its_class_and_goes_back_when_trimmed() {
    let mut arena = arena(Regions::new(1 << 30, 0), 1, 4096, 100, 10);
    let blocks: Vec<_> = (0..4).map(|_| arena.allocate(Request::new(1000)).expect("room")).collect();
    assert_eq!((arena.source().calls, arena.stats().misses, arena.stats().hits), (1, 1, 3));
    assert_eq!((arena.stats().allocated_bytes, arena.stats().freed_bytes), (arena.stats().in_use, 0));
    let fifth = arena.allocate(Request::new(1000)).expect("room");
    assert_eq!((arena.source().calls, arena.stats().reserved), (2, 8192));
    assert_eq!(arena.trim(), 0, "nothing is empty");
    arena.free(fifth, Owner(0)).expect("live");
    assert_eq!(arena.stats().largest_free, 1024);
    assert_eq!((arena.trim(), arena.stats().returns, arena.stats().largest_free), (4096, 1, 0));
    for block in blocks {
        arena.free(block, Owner(0)).expect("live");
    }
    assert_eq!((arena.trim(), arena.stats().reserved), (4096, 0));
}

#[test]
fn the_largest_free_block_may_be_of_any_class() {
    for bytes in [16, 5000, 1 << 20, 1 << 28] {
        let mut arena = arena(Regions::new(1 << 30, 0), 4, 4096, 1000, 10);
        let block = arena.allocate(Request::new(bytes)).expect("room");
        arena.free(block, Owner(0)).expect("live");
        assert_eq!(arena.stats().largest_free, block.bytes);
    }
}

#[test]
fn before_it_fails_an_arena_gives_empty_segments_back_then_asks_for_less_then_looks_higher() {
    let mut arena = arena(Regions::new(8192, 0), 1, 8192, 100, 10);
    let small = arena.allocate(Request::new(16)).expect("room");
    arena.free(small, Owner(0)).expect("live");
    let large = arena.allocate(Request::new(4096)).expect("after the segment of 16 went back");
    assert_eq!(arena.source().used(), 8192);
    let high = arena.allocate(Request::new(16)).expect("the 4096 that is left serves 16");
    assert_eq!(high.bytes, 4096);
    let refused = arena.allocate(Request::new(16)).expect_err("now it is full");
    assert_eq!((refused.cause, refused.asked, refused.largest_free), (Cause::OutOfMemory, 16, 0));
    arena.free(large, Owner(0)).expect("live");
    arena.free(high, Owner(0)).expect("live");
    assert!(arena.allocate(Request::new(16)).is_ok());
    // A capacity below the usual segment size: the pool takes a segment of one block.
    let mut tight = self::arena(Regions::new(1024, 0), 1, 8192, 10, 10);
    assert!(tight.allocate(Request::new(1000)).is_ok());
}

#[test]
fn an_arena_says_which_records_are_missing() {
    let mut few_blocks = arena(Regions::new(1 << 20, 0), 1, 4096, 2, 10);
    let first = few_blocks.allocate(Request::new(16)).expect("room");
    few_blocks.allocate(Request::new(16)).expect("room");
    assert_eq!(cause(few_blocks.allocate(Request::new(16))), Some(Cause::OutOfSlots));
    few_blocks.free(first, Owner(0)).expect("live");
    assert_eq!(cause(few_blocks.allocate(Request::new(512))), Some(Cause::OutOfSlots), "the record stays with 16");
    few_blocks.records_mut().0.push(BlockRecord::default());
    few_blocks.allocate(Request::new(512)).expect("a record was lent");
    few_blocks.check().expect("every invariant holds");
    let mut few_segments = arena(Regions::new(1 << 20, 0), 1, 4096, 10, 1);
    few_segments.allocate(Request::new(16)).expect("room");
    assert_eq!(cause(few_segments.allocate(Request::new(512))), Some(Cause::OutOfSlots));
    assert_eq!(few_segments.source().out.len(), 1, "nothing was taken in vain");
}

#[test]
fn a_failing_source_is_reported_and_keeps_nothing() {
    let mut source = Regions::new(1 << 20, 0);
    source.fail = Some(SourceError::Failed { code: 5 });
    let mut arena = arena(source, 1, 4096, 10, 4);
    assert_eq!(cause(arena.allocate(Request::new(16))), Some(Cause::SourceFailed));
    assert_eq!((arena.stats().failed, arena.stats().reserved), (1, 0));
    arena.check().expect("every invariant holds");
}

#[test]
fn a_stale_arena_name_is_known_and_forgeries_are_foreign() {
    let mut arena = arena(Regions::new(1 << 20, 0), 1, 4096, 10, 4);
    let old = arena.allocate(Request::new(100)).expect("room");
    arena.free(old, Owner(0)).expect("live");
    let new = arena.allocate(Request::new(100)).expect("room");
    assert_eq!((new.slot, new.address), (old.slot, old.address));
    assert_eq!(arena.free(old, Owner(0)), Err(FreeError::Stale { address: old.address }));
    let forgeries = [
        Block { address: new.address + 16, ..new },
        Block { bytes: 256, ..new },
        Block { slot: 9, ..new },
        Block { slot: u32::MAX, ..new },
        Block { region: 3, ..new },
        Block { ticket: 0, ..new },
        Block { ticket: 1000, ..new },
    ];
    for forged in forgeries {
        assert!(matches!(arena.free(forged, Owner(0)), Err(FreeError::Foreign { .. })), "{forged:?}");
    }
    assert_eq!(cause(arena.resize(old, 10)), Some(Cause::NotLive));
    assert_eq!(cause(arena.resize(new, 129)), Some(Cause::NoRoom));
    let resized = arena.resize(new, 128).expect("the block holds 128");
    assert!(arena.free(new, Owner(0)).is_err(), "the old name is dead");
    arena.free(resized, Owner(0)).expect("live");
}

#[test]
fn absurd_requests_are_refused_without_asking_the_source() {
    let mut arena = arena(Regions::new(1 << 20, 0), 8, 4096, 10, 4);
    for request in [
        Request::new(u64::MAX),
        Request::new(1 << 41),
        Request::new(1).align(1 << 41),
        Request::new(u64::MAX).align(1 << 63),
    ] {
        assert_eq!(cause(arena.allocate(request)), Some(Cause::TooLarge), "{request:?}");
    }
    assert_eq!(cause(arena.allocate(Request::new(1).align(3))), Some(Cause::BadRequest));
    assert_eq!(arena.source().calls, 0);
}
