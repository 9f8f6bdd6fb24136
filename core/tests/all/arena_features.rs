//! The arena, promise by promise: each test is named for the row it holds to.

use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use terrace_core::arena::{ArenaParts, ArenaSettings, ArenaStorage, Coalesce, PendingFree, Transformer};
use terrace_core::pressure::CachePolicy;
use terrace_core::{
    Allocator, Arena, BestFit, Bin, Block, Branch, Cause, Entry, Fence, FenceState, Owner, Region, Request, Segment,
    Slot, Source, SourceError, SourceUsage,
};

/// Bytes of a page, and the grain of segments.
const PAGE: u64 = 4096;

/// The calls in order, recorded by source, fence and hook.
type Log = Rc<RefCell<Vec<&'static str>>>;

/// A source of either kind that records its calls and injects faults.
#[derive(Default)]
struct Memory {
    /// A growing source (pages), not a fixed one (segments).
    grows: bool,
    capacity: u64,
    out: Vec<Region>,
    /// Offsets of the pages that are mapped.
    mapped: BTreeSet<u64>,
    zeroed: Vec<(u64, u64)>,
    /// Live blocks: the arena must not unmap or return their memory.
    live: Vec<Block>,
    /// Bytes of a segment above those requested.
    extra: u64,
    /// Every n-th call fails; 0 for none.
    fail_every: u64,
    /// Calls with these names fail.
    fail_kinds: &'static [&'static str],
    asked: u64,
    usage: SourceUsage,
    next: u64,
    log: Log,
}

impl Memory {
    fn new(grows: bool, capacity: u64) -> Self {
        Self { grows, capacity, next: 1 << 30, ..Self::default() }
    }

    /// Records a call; returns the injected fault, if any.
    fn call(&mut self, what: &'static str) -> Result<(), SourceError> {
        self.log.borrow_mut().push(what);
        self.asked += 1;
        if self.fail_kinds.contains(&what) || self.fail_every != 0 && self.asked.is_multiple_of(self.fail_every) {
            return Err(SourceError::Failed { code: 5 });
        }
        self.usage.calls += u64::from(what != "zero");
        Ok(())
    }

    fn more(&mut self, bytes: u64) -> Result<(), SourceError> {
        let available = self.capacity - self.usage.reserved;
        if bytes > available {
            return Err(SourceError::OutOfMemory { available });
        }
        self.usage.reserved += bytes;
        self.usage.peak_reserved = self.usage.peak_reserved.max(self.usage.reserved);
        Ok(())
    }

    /// Asserts that no live block touches the range.
    fn unused(&self, from: u64, bytes: u64) {
        let touched = self.live.iter().find(|block| block.address < from + bytes && from < block.address + block.bytes);
        assert_eq!(touched, None, "{bytes} bytes at {from:#x} are in use");
    }
}

fn pages(offset: u64, bytes: u64) -> impl Iterator<Item = u64> {
    assert!(bytes > 0 && offset.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE), "whole pages");
    (offset..offset + bytes).step_by(PAGE as usize)
}

impl Source for Memory {
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError> {
        self.call("take")?;
        let bytes = bytes + self.extra;
        self.more(bytes)?;
        let region = Region { id: self.next, base: self.next, bytes };
        self.next = (self.next + bytes).next_multiple_of(PAGE) + PAGE;
        self.out.push(region);
        Ok(region)
    }

    fn give_back(&mut self, region: Region) -> Result<(), SourceError> {
        self.call("give_back")?;
        self.unused(region.base, region.bytes);
        let at = self.out.iter().position(|other| *other == region).expect("a region goes back once");
        self.out.swap_remove(at);
        self.usage.reserved -= region.bytes;
        Ok(())
    }

    fn page_bytes(&self) -> u64 {
        if self.grows { PAGE } else { 0 }
    }

    fn reserve(&mut self, bytes: u64) -> Result<Region, SourceError> {
        Ok(Region { id: 1, base: 1 << 40, bytes })
    }

    fn map(&mut self, _: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        self.call("map")?;
        self.more(bytes)?;
        pages(offset, bytes).for_each(|page| assert!(self.mapped.insert(page), "mapped once"));
        Ok(())
    }

    fn unmap(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        self.call("unmap")?;
        self.unused(region.base + offset, bytes);
        pages(offset, bytes).for_each(|page| assert!(self.mapped.remove(&page), "was mapped"));
        self.usage.reserved -= bytes;
        Ok(())
    }

    fn shift(&mut self, region: Region, from: u64, to: u64, bytes: u64) -> Result<(), SourceError> {
        self.call("shift")?;
        self.unused(region.base + from, bytes);
        pages(from, bytes).for_each(|page| assert!(self.mapped.remove(&page), "was mapped"));
        pages(to, bytes).for_each(|page| assert!(self.mapped.insert(page), "mapped once"));
        Ok(())
    }

    fn zero(&mut self, address: u64, bytes: u64) -> Result<(), SourceError> {
        self.call("zero")?;
        self.unused(address, bytes);
        self.zeroed.push((address, bytes));
        Ok(())
    }

    fn usage(&self) -> SourceUsage {
        SourceUsage { capacity: self.capacity, ..self.usage }
    }
}

/// Fences that the test makes ready, or that become ready when waited for.
#[derive(Default)]
struct Gates {
    last: u64,
    /// The last ready ticket of each owner with work in flight. Tickets of other owners are ready at once.
    done: BTreeMap<Owner, u64>,
    lost: BTreeSet<Owner>,
    /// So many polls find work in flight, whatever is ready.
    early: u32,
    log: Log,
}

impl Fence for Gates {
    fn record(&mut self, _: Owner) -> u64 {
        self.last += 1;
        self.last
    }

    fn poll(&mut self, owner: Owner, ticket: u64) -> FenceState {
        let state = match self.done.get(&owner) {
            _ if self.early > 0 => FenceState::Pending,
            Some(&done) if ticket > done => FenceState::Pending,
            _ if self.lost.contains(&owner) => FenceState::Failed,
            _ => FenceState::Ready,
        };
        self.early = self.early.saturating_sub(1);
        self.log.borrow_mut().push(if state == FenceState::Pending { "poll" } else { "done" });
        state
    }

    fn wait(&mut self, owner: Owner, ticket: u64) -> FenceState {
        self.log.borrow_mut().push("wait");
        self.early = 0;
        self.done.entry(owner).and_modify(|done| *done = ticket.max(*done));
        self.poll(owner, ticket)
    }
}

struct Vectors;

impl ArenaStorage for Vectors {
    type Slots = Vec<Slot>;
    type Index = BestFit<Vec<Branch>>;
    type Bins = Vec<Bin>;
    type Entries = Vec<Entry<Block>>;
    type Segments = Vec<Segment>;
    type Pending = Vec<PendingFree>;
}

type World = Arena<Memory, Gates, Vectors>;

/// Segments of 64 KiB, whatever the peak; blocks up to 16 KiB are cached.
const SETTINGS: ArenaSettings =
    ArenaSettings { segment: 16 * PAGE, grain: PAGE, space: 1 << 24, slack: u32::MAX, ..ArenaSettings::growing() };

/// An arena with `slots` records in each area.
fn lent(grows: bool, capacity: u64, settings: ArenaSettings, slots: usize) -> World {
    let parts = ArenaParts {
        slots: [vec![Slot::EMPTY; slots], vec![Slot::EMPTY; slots]],
        index: [BestFit::new(vec![Branch::EMPTY; slots]), BestFit::new(vec![Branch::EMPTY; slots])],
        bins: vec![Bin::EMPTY; 64],
        entries: vec![Entry::EMPTY; 64],
        segments: vec![Segment::EMPTY; 32],
        pending: [vec![PendingFree::EMPTY; slots], vec![PendingFree::EMPTY; slots]],
    };
    let (source, fence) = (Memory::new(grows, capacity), Gates::default());
    let fence = Gates { log: source.log.clone(), ..fence };
    Arena::new(source, fence, parts, settings).expect("valid settings")
}

fn world(grows: bool, capacity: u64, settings: ArenaSettings) -> World {
    lent(grows, capacity, settings, 400)
}

fn get(world: &mut World, bytes: u64, owner: u32) -> Block {
    world.allocate(Request::new(bytes).owner(Owner(owner))).expect("there is room")
}

fn put(world: &mut World, block: Block, owner: u32) {
    world.free(block, Owner(owner)).expect("live");
}

fn calls(world: &World) -> u64 {
    world.source().usage().calls
}

/// Takes the calls recorded since the last time.
fn happened(world: &World) -> Vec<&'static str> {
    world.source().log.take()
}

/// Trims, and asserts that nothing is reserved.
fn finish(world: &mut World) {
    world.check().expect("every invariant holds");
    world.trim();
    world.check().expect("every invariant holds");
    assert_eq!((world.reserved(), world.stats().pooled, world.source().usage().reserved), (0, 0, 0));
    assert!(world.source().out.is_empty() && world.source().mapped.is_empty(), "everything is back");
}

// Segments.

#[test]
fn a3_segments_are_taken_split_merged_and_given_back() {
    let settings = ArenaSettings { coalesce: Coalesce::AtOnce, ..SETTINGS };
    let mut world = world(false, 1 << 20, settings);
    let blocks: Vec<Block> = (0..4).map(|_| get(&mut world, 4 * PAGE, 0)).collect();
    assert_eq!((calls(&world), world.reserved()), (1, 16 * PAGE), "one segment, split four ways");
    let other = get(&mut world, PAGE, 0);
    assert_eq!((calls(&world), world.reserved()), (2, 32 * PAGE), "the first is full");
    for block in blocks {
        put(&mut world, block, 0);
    }
    assert_eq!(world.stats().largest_free, 16 * PAGE, "neighbours are one again");
    assert_eq!(world.trim(), 16 * PAGE, "the empty one");
    assert_eq!((world.reserved(), world.stats().returns), (16 * PAGE, 1));
    put(&mut world, other, 0);
    finish(&mut world);
}

#[test]
fn a3_statistics_tell_live_from_cached_and_count_the_records_of_segments() {
    for grows in [false, true] {
        let mut world = world(grows, 1 << 20, SETTINGS);
        let empty = world.stats().metadata;
        let (live, cached) = (get(&mut world, 3 * PAGE, 0), get(&mut world, 2 * PAGE, 0));
        put(&mut world, cached, 0);
        assert_eq!((world.stats().in_use, world.stats().pooled), (3 * PAGE, 2 * PAGE));
        // No block waits for a fence. Each of a few blocks has a record; only a source without pages has segments.
        let (record, segment) = (size_of::<Slot>() + size_of::<Branch>(), size_of::<Segment>() * usize::from(!grows));
        let more = (world.stats().metadata - empty) as usize;
        println!("{grows} {more} {record} {segment}");
        assert!((2..=4).any(|records| more == records * record + segment), "{more} bytes for one segment");
        put(&mut world, live, 0);
        finish(&mut world);
    }
}

#[test]
fn a3_a_segment_may_be_larger_than_asked_and_end_inside_a_granule() {
    let mut world = world(false, 1 << 20, SETTINGS);
    world.source_mut().extra = PAGE + 5;
    let block = get(&mut world, 16 * PAGE, 0);
    let beside = get(&mut world, PAGE, 0);
    assert_eq!((calls(&world), world.reserved()), (1, 17 * PAGE + 5), "what is beyond is used too");
    put(&mut world, block, 0);
    put(&mut world, beside, 0);
    finish(&mut world);
}

#[test]
fn a3_two_records_are_enough_for_a_segment() {
    for (slots, served) in [(1, false), (2, true)] {
        let mut world = lent(false, 1 << 20, SETTINGS, slots);
        let block = world.allocate(Request::new(16 * PAGE));
        assert_eq!(block.is_ok(), served, "{slots}");
        block.into_iter().for_each(|block| put(&mut world, block, 0));
        finish(&mut world);
    }
}

#[test]
fn a3_fresh_memory_is_zeroed_when_asked() {
    for grows in [false, true] {
        let mut world = world(grows, 1 << 20, ArenaSettings { zero_fresh: true, ..SETTINGS });
        let block = get(&mut world, 3 * PAGE, 0);
        let fresh = world.source().zeroed.clone();
        assert_eq!(fresh.iter().map(|(_, bytes)| bytes).sum::<u64>(), world.reserved(), "all of it");
        let covers = |&(from, bytes): &(u64, u64)| from <= block.address && block.address + block.bytes <= from + bytes;
        assert!(fresh.iter().any(covers));
        put(&mut world, block, 0);
        let again = get(&mut world, 3 * PAGE, 0);
        assert_eq!(world.source().zeroed, fresh, "not what was used before");
        put(&mut world, again, 0);
        finish(&mut world);
    }
    let mut plain = world(true, 1 << 20, SETTINGS);
    let _ = get(&mut plain, PAGE, 0);
    assert_eq!(plain.source().zeroed, [], "only when asked");
}

#[test]
fn memory_that_is_neither_zeroed_nor_taken_back_is_nobodys_and_counted() {
    for grows in [false, true] {
        let mut world = world(grows, 64 * PAGE, ArenaSettings { zero_fresh: true, ..SETTINGS });
        world.source_mut().fail_kinds = &["zero", "give_back", "unmap"];
        let error = world.allocate(Request::new(PAGE)).expect_err("nothing can be zeroed");
        assert_eq!(error.cause, Cause::SourceFailed);
        world.check().expect("every invariant holds");
        let lost = world.stats().pooled;
        assert!(lost > 0 && lost == world.reserved(), "what was lost is counted");
        world.source_mut().fail_kinds = &[];
        let block = get(&mut world, PAGE, 0);
        assert!(world.source().zeroed.iter().any(|&(from, bytes)| (from..from + bytes).contains(&block.address)));
        put(&mut world, block, 0);
        world.trim();
        assert_eq!((world.reserved(), world.stats().pooled), (lost, lost), "all else went back");
    }
}

#[test]
fn memory_that_cannot_be_zeroed_goes_back() {
    for grows in [false, true] {
        let mut world = world(grows, 64 * PAGE, ArenaSettings { zero_fresh: true, ..SETTINGS });
        // After a live block, so that the block does not start where the address space does.
        let first = get(&mut world, 5 * PAGE, 0);
        let reserved = world.reserved();
        world.source_mut().fail_kinds = &["zero"];
        assert!(world.allocate(Request::new(20 * PAGE)).is_err(), "nothing can be zeroed");
        assert_eq!(world.reserved(), reserved, "what came for it went back");
        world.source_mut().fail_kinds = &[];
        put(&mut world, first, 0);
        finish(&mut world);
    }
}

// The cache.

#[test]
fn a8_warm_up_makes_the_first_step_hit() {
    for grows in [false, true] {
        let mut world = world(grows, 1 << 24, ArenaSettings { small_threshold: 1 << 20, space: 1 << 26, ..SETTINGS });
        let shape = Transformer { batch: 1, tokens: 64, hidden: 256, inner: 1024, key_value: 64, element: 2 };
        let bytes = world.warm_up(Owner(3), shape.pairs(), &mut [None; 16]).expect("16 MiB are enough");
        assert_eq!(bytes, 4 * 32768 + 2 * 8192 + 3 * 131_072);
        assert_eq!((world.cache_mut().count(), world.stats().pooled, world.stats().in_use), (9, bytes, 0));
        happened(&world);
        let misses = world.stats().misses;
        let step =
            shape.pairs().map(|(bytes, count)| (0..count).map(|_| get(&mut world, bytes, 3)).collect::<Vec<_>>());
        assert_eq!(happened(&world), [""; 0], "neither source nor fence was asked");
        assert_eq!((world.cache_mut().count(), world.stats().misses), (0, misses));
        step.into_iter().flatten().for_each(|block| put(&mut world, block, 3));
        finish(&mut world);
    }
}

#[test]
fn a9_small_and_large_take_different_paths_at_the_threshold() {
    for small in [1024, 8192] {
        let mut world = world(true, 1 << 20, ArenaSettings { small_threshold: small, ..SETTINGS });
        let (at, above) = (get(&mut world, small, 0), get(&mut world, small + 1, 0));
        assert!(at.address < (1 << 40) + SETTINGS.space, "the low half of the address space");
        assert!(above.address >= (1 << 40) + SETTINGS.space, "the high half");
        put(&mut world, above, 0);
        assert_eq!(world.cache_mut().count(), 0, "straight back to the range");
        put(&mut world, at, 0);
        assert_eq!(world.cache_mut().count(), 1);
        finish(&mut world);
    }
}

#[test]
fn a9_the_threshold_is_a_part_of_the_peak_where_the_slack_grows() {
    // Of 8 MiB it is 2 KiB while memory is ample, and 512 bytes when it is scarce.
    for (ample, threshold) in [(1000, 2048), (0, 512)] {
        let slack = ArenaSettings { small_threshold: 64, slack: 5, max_slack: 6, ..SETTINGS };
        let mut world = world(true, 1 << 24, ArenaSettings { ample, ..slack });
        let _ = get(&mut world, 8 << 20, 0);
        for (bytes, low) in [(threshold, true), (threshold + 64, false)] {
            let block = get(&mut world, bytes, 0);
            assert_eq!(block.address < (1 << 40) + SETTINGS.space, low, "{bytes}");
        }
    }
}

#[test]
fn a11_coalescing_at_once_lazily_past_a_threshold_and_by_force() {
    let pooled = |coalesce| {
        let mut world = world(false, 1 << 20, ArenaSettings { coalesce, ..SETTINGS });
        let blocks: Vec<Block> = (0..8).map(|_| get(&mut world, 8192, 0)).collect();
        let mut pooled = vec![];
        for block in blocks {
            put(&mut world, block, 0);
            pooled.push(world.stats().pooled / 8192);
            world.check().expect("every invariant holds");
        }
        let waits = world.stats().pooled > 0;
        assert_eq!(world.stats().largest_free == 16 * PAGE, !waits, "one gap once all is merged");
        assert_eq!(world.coalesce(), waits, "by force");
        assert_eq!((world.stats().largest_free, world.stats().pooled), (16 * PAGE, 0));
        finish(&mut world);
        pooled
    };
    assert_eq!(pooled(Coalesce::AtOnce), [0; 8]);
    assert_eq!(pooled(Coalesce::Lazy), [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(pooled(Coalesce::Threshold(20_000)), [1, 2, 2, 2, 2, 2, 2, 2]);
}

#[test]
fn a11_cache_cap_follows_pressure() {
    let mut world = world(false, 1 << 20, SETTINGS);
    let blocks: Vec<Block> = (0..6).map(|_| get(&mut world, 64, 0)).collect();
    blocks.into_iter().for_each(|block| put(&mut world, block, 0));
    let policy = CachePolicy::default();
    let cache = world.cache_mut();
    let mut step = |used| {
        cache.adapt(&policy, used, 1000);
        cache.cap()
    };
    assert_eq!([step(800), step(801), step(500)], [u64::MAX, 4, 4], "from the 6 granules that are held");
    assert_eq!([step(299), step(300), step(0)], [6, 6, 9]);
    world.cache_mut().set_cap(6);
    let block = get(&mut world, 128, 0);
    put(&mut world, block, 0);
    assert_eq!(world.cache_mut().held(), 6, "no room for 2 more");
    finish(&mut world);
    // An empty cache under pressure for a long time, then without pressure.
    world.cache_mut().set_cap(90);
    (0..20).for_each(|_| world.cache_mut().adapt(&policy, 900, 1000));
    (0..20).for_each(|_| world.cache_mut().adapt(&policy, 100, 1000));
    assert!(world.cache_mut().cap() >= 90, "a cap of {} comes back", world.cache_mut().cap());
}

#[test]
fn a8_a_cached_block_that_lies_badly_for_a_request_stays() {
    let mut world = world(false, 1 << 20, SETTINGS);
    let blocks = [get(&mut world, 1024, 0), get(&mut world, 1024, 0)];
    let [even, odd] = blocks;
    assert_eq!((even.address % 2048, odd.address % 2048), (0, 1024));
    put(&mut world, odd, 0);
    let aligned = world.allocate(Request::new(1024).align(2048).owner(Owner(0))).expect("room");
    assert_eq!((aligned.address % 2048, world.cache_mut().count()), (0, 1));
    assert_eq!((get(&mut world, 1024, 0).address, world.cache_mut().count()), (odd.address, 0), "it serves the next");
}

// The chain.

#[test]
fn a12_out_of_memory_chain_in_order() {
    let mut world = world(false, 32 * PAGE, SETTINGS);
    // A pending block is freed once its fence is ready.
    world.fence_mut().done.insert(Owner(1), 0);
    let (block, rest) = (get(&mut world, 8 * PAGE, 1), get(&mut world, 8 * PAGE, 2));
    put(&mut world, block, 1);
    world.fence_mut().done.clear();
    happened(&world);
    assert_eq!(get(&mut world, 8 * PAGE, 2).address, block.address);
    assert!(happened(&world).iter().all(|&what| what == "done"), "the source was not asked");
    // Caches are emptied.
    let small: Vec<Block> = (0..4).map(|_| get(&mut world, 4 * PAGE, 2)).collect();
    small.into_iter().for_each(|block| put(&mut world, block, 2));
    assert_eq!(world.cache_mut().count(), 4);
    happened(&world);
    let whole = get(&mut world, 16 * PAGE, 5);
    assert!(happened(&world).iter().all(|&what| what == "done"), "nor now");
    // Vacant segments are released; here that is not enough.
    put(&mut world, whole, 5);
    put(&mut world, rest, 2);
    assert_eq!(world.reserved(), 32 * PAGE);
    let error = world.allocate(Request::new(24 * PAGE)).expect_err("half a segment is live");
    assert_eq!((error.cause, error.asked), (Cause::OutOfMemory, 24 * PAGE));
    assert!(happened(&world).contains(&"give_back"), "what could be released was");
    world.check().expect("every invariant holds");
}

#[test]
fn a12_vacant_segments_make_room_for_a_larger_one() {
    let mut world = world(false, 32 * PAGE, SETTINGS);
    let blocks = [get(&mut world, 16 * PAGE, 0), get(&mut world, 16 * PAGE, 0)];
    blocks.into_iter().for_each(|block| put(&mut world, block, 0));
    happened(&world);
    let whole = get(&mut world, 32 * PAGE, 0);
    let source = happened(&world).into_iter().filter(|what| *what != "done").collect::<Vec<_>>();
    assert_eq!(source, ["take", "give_back", "give_back", "take"]);
    let stats = world.stats();
    assert_eq!((stats.misses, stats.hits, stats.allocations), (3, 0, 3), "each asked the source");
    put(&mut world, whole, 0);
    finish(&mut world);
}

#[test]
fn a12_where_a_whole_segment_cannot_be_had_what_was_asked_for_is() {
    let mut world = world(false, 4 * PAGE, SETTINGS);
    let block = get(&mut world, 3 * PAGE, 0);
    assert_eq!(world.reserved(), 3 * PAGE, "a segment would have 16 pages");
    put(&mut world, block, 0);
    finish(&mut world);
}

#[test]
fn a11_one_ticket_covers_all_that_an_owner_cached() {
    let mut world = world(false, 1 << 20, SETTINGS);
    let blocks: Vec<(Block, u32)> = [1, 1, 1, 2, 2].map(|owner| (get(&mut world, PAGE, owner), owner)).to_vec();
    blocks.into_iter().for_each(|(block, owner)| put(&mut world, block, owner));
    assert_eq!(world.cache_mut().count(), 5);
    let before = world.fence_mut().last;
    assert!(world.coalesce());
    assert_eq!((world.fence_mut().last - before, world.cache_mut().count()), (2, 0));
    finish(&mut world);
}

#[test]
fn a12_the_hook_is_called_last_and_the_request_retried() {
    for grows in [false, true] {
        let mut world = world(grows, 16 * PAGE, SETTINGS);
        let mut held: Vec<Block> = (0..4).map(|_| get(&mut world, 4 * PAGE, 0)).collect();
        let mut told = vec![];
        let got = world.allocate_or(Request::new(4 * PAGE), |world, bytes| {
            told.push(bytes);
            held.pop().is_some_and(|block| world.free(block, Owner(0)).is_ok())
        });
        assert!(got.is_ok());
        assert_eq!((told.as_slice(), held.len()), ([4 * PAGE].as_slice(), 3), "once, with the bytes asked for");
        put(&mut world, held.remove(1), 0);
        let error = world.allocate_or(Request::new(6 * PAGE), |_, _| false).expect_err("a true failure");
        assert_eq!((error.cause, error.asked, error.largest_free), (Cause::OutOfMemory, 6 * PAGE, 4 * PAGE));
        world.check().expect("every invariant holds");
    }
}

#[test]
fn a12_no_spurious_failure_after_waiting_fences() {
    for grows in [false, true] {
        let mut world = world(grows, 16 * PAGE, SETTINGS);
        world.fence_mut().done.insert(Owner(1), 0);
        let (large, stays) = (get(&mut world, 12 * PAGE, 1), get(&mut world, 4 * PAGE, 2));
        put(&mut world, large, 1);
        happened(&world);
        // The source is exhausted and the segment not vacant: only a search after the wait finds a gap.
        let again = get(&mut world, 12 * PAGE, 2);
        assert_eq!(again.address, large.address);
        assert!(happened(&world).contains(&"wait"));
        put(&mut world, again, 2);
        put(&mut world, stays, 2);
        finish(&mut world);
    }
}

// Fences.

#[test]
fn a_freed_block_is_its_owners_at_once_and_everyones_when_the_fence_is_ready() {
    for bytes in [PAGE, 8 * PAGE] {
        let mut world = world(false, 1 << 20, SETTINGS);
        world.fence_mut().done.insert(Owner(1), 0);
        let block = get(&mut world, bytes, 1);
        put(&mut world, block, 1);
        let other = get(&mut world, bytes, 2);
        assert_ne!(other.address, block.address, "owner 1 may still use it");
        if bytes <= SETTINGS.small_threshold {
            assert_eq!(get(&mut world, bytes, 1).address, block.address, "its own at once");
            continue;
        }
        assert!(!world.poll_fences());
        world.fence_mut().done.clear();
        assert!(world.poll_fences());
        assert_eq!(get(&mut world, bytes, 2).address, block.address);
        world.check().expect("every invariant holds");
    }
}

#[test]
fn a_block_that_waits_costs_a_record() {
    let mut world = world(false, 1 << 20, SETTINGS);
    let blocks: Vec<Block> = (0..3).map(|_| get(&mut world, 8 * PAGE, 1)).collect();
    world.fence_mut().done.insert(Owner(1), 0);
    let before = world.stats().metadata;
    blocks.into_iter().for_each(|block| put(&mut world, block, 1));
    // Records up to the highest slot that was ever pending: there are at most as many free slots between these.
    let record = size_of::<PendingFree>() as u64;
    let more = world.stats().metadata - before;
    assert!(more.is_multiple_of(record) && (3..=6).contains(&(more / record)), "{more} bytes for three blocks");
}

#[test]
fn a_failed_fence_quarantines() {
    for grows in [false, true] {
        let mut world = world(grows, 32 * PAGE, SETTINGS);
        world.fence_mut().done.insert(Owner(1), 0);
        world.fence_mut().lost.insert(Owner(1));
        let (large, small) = (get(&mut world, 8 * PAGE, 1), get(&mut world, PAGE, 1));
        put(&mut world, large, 1);
        put(&mut world, small, 1);
        world.trim();
        world.check().expect("every invariant holds");
        assert_eq!((world.stats().in_use, world.stats().pooled), (0, 9 * PAGE), "nobody's any more");
        let free = std::iter::from_fn(|| world.allocate(Request::new(PAGE)).ok()).collect::<Vec<_>>();
        assert_eq!(free.len(), 32 - 9);
        let lost = [large, small];
        let apart = |a: &Block, b: &Block| a.address + a.bytes <= b.address || b.address + b.bytes <= a.address;
        assert!(free.iter().all(|block| lost.iter().all(|lost| apart(block, lost))));
        world.check().expect("every invariant holds");
    }
}

/// Owner 1 has work in flight and has freed three of eight blocks: two adjacent ones, and one after a block that was free
/// for all before.
fn three_waiting(grows: bool) -> (World, Vec<Block>) {
    let mut world = world(grows, 32 * PAGE, ArenaSettings { small_threshold: 64, ..SETTINGS });
    let blocks: Vec<Block> = (0..8).map(|_| get(&mut world, 2 * PAGE, 1)).collect();
    put(&mut world, blocks[4], 1);
    world.fence_mut().done.insert(Owner(1), 0);
    [2, 3, 5].into_iter().for_each(|at| put(&mut world, blocks[at], 1));
    world.check().expect("every invariant holds");
    happened(&world);
    (world, blocks)
}

#[test]
fn what_an_owner_freed_is_its_own_in_every_size_and_nobody_elses() {
    for grows in [false, true] {
        let (mut world, blocks) = three_waiting(grows);
        let lowest = blocks[2..6].iter().map(|block| block.address).min().expect("four");
        let inside = |block: &Block| block.address >= lowest && block.address + block.bytes <= lowest + 8 * PAGE;
        // Larger than any single block, and than the memory that is free for all owners.
        let large = get(&mut world, 5 * PAGE, 1);
        assert!(inside(&large) && !happened(&world).contains(&"take"));
        assert_eq!(world.stats().pooled, 2 * PAGE, "what it did not touch waits on, and what was free is free");
        world.check().expect("every invariant holds");
        let small = get(&mut world, 2 * PAGE, 1);
        assert!(inside(&small), "for its owner");
        assert_eq!(world.stats().pooled, PAGE, "what is left of it again");
        let last = world.fence_mut().last;
        world.fence_mut().done.insert(Owner(1), last - 1);
        assert!(!world.poll_fences(), "for the youngest ticket of all that it was made of");
        let other = get(&mut world, PAGE, 2);
        assert!(!inside(&other), "the rest is not for others");
        let stays = [0, 1, 6, 7].map(|at| blocks[at]);
        for block in [large, small].into_iter().chain(stays).chain([other]) {
            put(&mut world, block, 1);
            world.check().expect("every invariant holds");
        }
        finish(&mut world);
    }
}

#[test]
fn adjacent_blocks_that_wait_are_one_record() {
    // Records: the segment, four blocks, and one to come: too few to reuse a part of four that wait, enough for a part of one.
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3]] {
        let mut world = lent(false, 1 << 20, ArenaSettings { small_threshold: 64, ..SETTINGS }, 6);
        world.fence_mut().done.insert(Owner(1), 0);
        let blocks: Vec<Block> = (0..4).map(|_| get(&mut world, 4 * PAGE, 1)).collect();
        order.into_iter().for_each(|at| put(&mut world, blocks[at], 1));
        world.check().expect("every invariant holds");
        happened(&world);
        let part = get(&mut world, 6 * PAGE, 1);
        assert_eq!((part.address, world.reserved()), (blocks[0].address, 16 * PAGE));
        assert_eq!(happened(&world), [""; 0], "nobody waited, and nothing was taken");
        world.check().expect("every invariant holds");
    }
}

/// Each waits for the work up to its own free: what came before a neighbour's is not kept back by it.
#[test]
fn a_neighbour_whose_work_is_done_is_free_at_once() {
    for [first, second] in [[0, 1], [1, 0]] {
        let mut world = world(false, 1 << 20, SETTINGS);
        world.fence_mut().done.insert(Owner(1), 0);
        let blocks = [get(&mut world, 8 * PAGE, 1), get(&mut world, 8 * PAGE, 1)];
        put(&mut world, blocks[first], 1);
        let last = world.fence_mut().last;
        world.fence_mut().done.insert(Owner(1), last);
        put(&mut world, blocks[second], 1);
        world.check().expect("every invariant holds");
        let stats = world.stats();
        assert_eq!((stats.largest_free, stats.pooled), (8 * PAGE, 8 * PAGE), "one is free, one waits");
        assert_eq!(get(&mut world, 8 * PAGE, 2).address, blocks[first].address);
    }
}

#[test]
fn what_waits_for_its_owner_is_chosen_where_it_fits_better_than_a_gap() {
    let mut world = world(false, 1 << 20, SETTINGS);
    let [gap, _between, waits, _end] = [8, 1, 5, 2].map(|pages| get(&mut world, pages * PAGE, 1));
    put(&mut world, gap, 1);
    world.fence_mut().done.insert(Owner(1), 0);
    put(&mut world, waits, 1);
    assert_eq!(get(&mut world, 5 * PAGE, 2).address, gap.address, "for others it is not there");
    let mine = get(&mut world, 5 * PAGE, 1);
    assert_eq!((mine.address, world.reserved()), (waits.address, 16 * PAGE));
    put(&mut world, mine, 1);
    assert_eq!(get(&mut world, 3 * PAGE, 1).address, gap.address + 5 * PAGE, "the gap fits better now");
    world.check().expect("every invariant holds");
}

#[test]
fn what_others_freed_is_asked_for_once_memory_is_scarce() {
    // A segment of 16 pages is a 16th of the first capacity, and half of the second.
    for (capacity, asked) in [(256 * PAGE, false), (32 * PAGE, true)] {
        let mut world = world(false, capacity, ArenaSettings { small_threshold: 64, ..SETTINGS });
        let block = get(&mut world, 4 * PAGE, 1);
        let others: Vec<Block> = (0..8).map(|_| get(&mut world, PAGE, 2)).collect();
        let _end = get(&mut world, 4 * PAGE, 1);
        world.fence_mut().done.extend([(Owner(1), 0), (Owner(2), 0)]);
        put(&mut world, block, 1);
        happened(&world);
        get(&mut world, 2 * PAGE, 1);
        assert_eq!(happened(&world), [""; 0], "nothing of others waits");
        others.into_iter().for_each(|block| put(&mut world, block, 2));
        happened(&world);
        get(&mut world, PAGE, 1);
        assert_eq!(happened(&world).contains(&"poll"), asked);
        get(&mut world, PAGE, 1);
        assert_eq!(happened(&world), [""; 0], "not again so soon");
        world.check().expect("every invariant holds");
    }
}

/// Work ends while a request is on its way through all that the arena tries: what it then finds free is found.
#[test]
fn what_becomes_ready_meanwhile_is_not_missed() {
    for grows in [false, true] {
        for early in 0..16 {
            let mut world = world(grows, 16 * PAGE, ArenaSettings { small_threshold: 64, ..SETTINGS });
            let blocks: Vec<Block> = (0..16).map(|_| get(&mut world, PAGE, 1)).collect();
            world.fence_mut().done.insert(Owner(1), 0);
            blocks.iter().skip(1).step_by(2).for_each(|block| put(&mut world, *block, 1));
            world.fence_mut().done.clear();
            world.fence_mut().early = early;
            let other = get(&mut world, PAGE, 2);
            assert!(blocks.iter().skip(1).step_by(2).any(|block| block.address == other.address), "{early}");
            world.check().expect("every invariant holds");
        }
    }
}

#[test]
fn two_slots_are_enough_to_reuse_a_part_of_what_waits() {
    // Records: the segment, the block, and two to come.
    let mut world = lent(false, 1 << 20, SETTINGS, 4);
    world.fence_mut().done.insert(Owner(1), 0);
    let whole = get(&mut world, 16 * PAGE, 1);
    put(&mut world, whole, 1);
    let part = get(&mut world, 8 * PAGE, 1);
    assert_eq!((part.address, world.reserved()), (whole.address, 16 * PAGE));
    world.check().expect("every invariant holds");
}

#[test]
fn a_fence_that_may_pend_needs_a_record_for_each_slot() {
    let arena = |waiting: usize| {
        let parts = ArenaParts::<Vectors> {
            slots: [vec![], vec![Slot::EMPTY; 8]],
            index: [vec![], vec![Branch::EMPTY; 8]].map(BestFit::new),
            bins: vec![],
            entries: vec![],
            segments: vec![Segment::EMPTY; 2],
            pending: [vec![], vec![PendingFree::EMPTY; waiting]],
        };
        Arena::new(Memory::new(false, 1 << 20), Gates::default(), parts, SETTINGS).map(|_| ()).map_err(|e| e.cause)
    };
    assert_eq!((arena(7), arena(8)), (Err(Cause::OutOfSlots), Ok(())));
}

// Faults and exhaustion.

/// Runs random allocations and frees; the source knows the live blocks, and panics if a call touches one.
fn run(world: &mut World, acts: &[(u64, usize)]) {
    let mut live: Vec<(Block, Owner)> = vec![];
    for &(bytes, at) in acts {
        let owner = Owner(at as u32 % 3);
        if bytes == 0 {
            world.trim();
        } else if at % 5 < 3 || live.is_empty() {
            live.extend(world.allocate(Request::new(bytes).owner(owner)).map(|block| (block, owner)));
        } else {
            let (block, owner) = live.swap_remove(at % live.len());
            // Before the call: the freeing owner does not use the block any more.
            world.source_mut().live = live.iter().map(|(block, _)| *block).collect();
            world.free(block, owner).expect("live");
        }
        world.source_mut().live = live.iter().map(|(block, _)| *block).collect();
        world.check().expect("every invariant holds");
        let (reserved, capacity) = (world.reserved(), world.source().capacity);
        assert!(reserved <= capacity && world.stats().in_use <= reserved);
    }
    world.source_mut().live.clear();
    live.into_iter().for_each(|(block, owner)| world.free(block, owner).expect("live"));
}

fn some_acts() -> impl Strategy<Value = Vec<(u64, usize)>> {
    let bytes = prop_oneof![10 => 1..=6 * PAGE, 5 => 1..=40 * PAGE, 1 => Just(0)];
    prop::collection::vec((bytes, any::<usize>()), 1..120)
}

proptest! {
    #[test]
    fn every_nth_call_of_the_source_fails_and_nothing_leaks(
        acts in some_acts(), grows: bool, fail_every in 1u64..9, zero_fresh: bool, slack in 0u32..300,
    ) {
        let mut world = world(grows, 100 * PAGE, ArenaSettings { slack, zero_fresh, ..SETTINGS });
        world.source_mut().fail_every = fail_every;
        run(&mut world, &acts);
        world.source_mut().fail_every = 0;
        let whole = get(&mut world, 40 * PAGE, 0);
        put(&mut world, whole, 0);
        finish(&mut world);
    }

    #[test]
    fn pages_are_never_taken_from_live_blocks_and_all_come_back(
        acts in some_acts(), grows: bool, capacity in 8u64..200, slack in 0u32..100, pending: bool,
    ) {
        let mut world = lent(grows, capacity * PAGE, ArenaSettings { slack, ..SETTINGS }, 400);
        if pending {
            world.fence_mut().done.insert(Owner(1), 0);
        }
        run(&mut world, &acts);
        finish(&mut world);
    }

    #[test]
    fn a_lack_of_slots_is_said_and_changes_nothing(acts in some_acts(), grows: bool, slots in 3usize..12) {
        let mut world = lent(grows, 1000 * PAGE, SETTINGS, slots);
        run(&mut world, &acts);
        let mut held = vec![];
        let error = loop {
            match world.allocate(Request::new(64)) {
                Ok(block) => held.push(block),
                Err(error) => break error,
            }
        };
        prop_assert_eq!(error.cause, Cause::OutOfSlots);
        prop_assert!(held.len() <= slots);
        world.check().expect("every invariant holds");
        held.into_iter().for_each(|block| put(&mut world, block, 0));
        finish(&mut world);
    }
}

#[test]
fn moved_pages_serve_when_the_capacity_is_spent() {
    let mut world = world(true, 16 * PAGE, SETTINGS);
    let blocks: Vec<Block> = (0..8).map(|_| get(&mut world, 2 * PAGE, 0)).collect();
    for block in blocks.iter().step_by(2) {
        put(&mut world, *block, 0);
    }
    world.source_mut().live = blocks.iter().skip(1).step_by(2).copied().collect();
    happened(&world);
    let _ = get(&mut world, 8 * PAGE, 0);
    let happened = happened(&world);
    assert!(happened.contains(&"shift"), "from four gaps of two pages");
    assert_eq!(world.reserved(), 16 * PAGE);
    world.check().expect("every invariant holds");
}

/// A tenth of the peak, whether or not calls could raise it: ten calls are too few.
#[test]
fn pages_are_mapped_as_far_as_the_slack_reaches_and_moved_beyond() {
    for max_slack in [100, 200] {
        let mut world = world(true, 2000 * PAGE, ArenaSettings { slack: 100, max_slack, ..SETTINGS });
        let blocks: Vec<Block> = (0..10).map(|_| get(&mut world, 100 * PAGE, 0)).collect();
        assert_eq!((calls(&world), world.reserved()), (10, 1000 * PAGE));
        blocks.iter().step_by(2).for_each(|block| put(&mut world, *block, 0));
        world.source_mut().live = blocks.iter().skip(1).step_by(2).copied().collect();
        happened(&world);
        let _ = get(&mut world, 150 * PAGE, 0);
        let source: Vec<_> = happened(&world).into_iter().filter(|what| *what != "done").collect();
        assert_eq!((source, world.reserved()), (vec!["shift", "map"], 1100 * PAGE), "up to {max_slack} permille");
        world.check().expect("every invariant holds");
    }
}

#[test]
fn only_a_slack_that_grows_maps_pages_ahead() {
    for (max_slack, mapped) in [(500, 5), (501, 14)] {
        let mut world = world(true, 1000 * PAGE, ArenaSettings { slack: 500, max_slack, ..SETTINGS });
        let _ = get(&mut world, 100 * PAGE, 0);
        // The budget is half of the 105 in use and those in use, less the 100: 57 pages. A quarter is mapped.
        let _ = get(&mut world, 5 * PAGE, 0);
        assert_eq!(world.reserved(), (100 + mapped) * PAGE, "up to {max_slack} permille");
    }
}

#[test]
fn pages_are_mapped_up_to_a_multiple_as_far_as_slack_and_source_reach() {
    let reserved = |slack, requests: &[u64]| -> Vec<u64> {
        let mut world =
            world(true, 20 * PAGE, ArenaSettings { slack, map_multiple: 8 * PAGE, small_threshold: 0, ..SETTINGS });
        let mut reserved = |pages: &u64| {
            let _ = get(&mut world, pages * PAGE, 0);
            world.check().expect("every invariant holds");
            world.reserved() / PAGE
        };
        requests.iter().map(&mut reserved).collect()
    };
    // The source has no 24 pages: it maps what the request needs.
    assert_eq!(reserved(u32::MAX, &[3, 5, 9, 3]), [8, 8, 17, 20]);
    // Half of what is in use is less than what is left up to the multiple, but for 6 pages.
    assert_eq!(reserved(500, &[3, 5, 1]), [3, 8, 9]);
    assert_eq!(reserved(500, &[6, 2, 1]), [8, 8, 9]);
}

/// As far as a tenth of the peak, by the settings for segments.
#[test]
fn what_segments_have_beyond_the_slack_goes_back() {
    for (vacant, kept) in [(10, true), (12, false)] {
        let settings = ArenaSettings { segment: PAGE, grain: PAGE, small_threshold: 0, ..ArenaSettings::segments() };
        let mut world = world(false, 1000 * PAGE, settings);
        let _ = get(&mut world, (100 - vacant) * PAGE, 0);
        let block = get(&mut world, vacant * PAGE, 0);
        put(&mut world, block, 0);
        let _ = get(&mut world, (vacant + 1) * PAGE, 0);
        let reserved = if kept { 101 + vacant } else { 101 };
        assert_eq!(world.reserved(), reserved * PAGE, "{vacant}");
    }
}

#[test]
fn a_vacant_segment_within_the_slack_stays() {
    let mut world = world(false, 1 << 20, SETTINGS);
    let block = get(&mut world, 16 * PAGE, 0);
    put(&mut world, block, 0);
    happened(&world);
    let larger = get(&mut world, 17 * PAGE, 0);
    let source: Vec<_> = happened(&world).into_iter().filter(|what| *what != "done").collect();
    assert_eq!((source, world.reserved()), (vec!["take"], 33 * PAGE));
    put(&mut world, larger, 0);
    finish(&mut world);
}

#[test]
fn a_request_that_fails_halfway_keeps_no_pages() {
    let settings = ArenaSettings { coalesce: Coalesce::AtOnce, small_threshold: 0, ..SETTINGS };
    let mut world = world(true, 6 * PAGE, settings);
    let [low, middle, high, last] = [2, 1, 2, 1].map(|pages| get(&mut world, pages * PAGE, 0));
    put(&mut world, low, 0);
    put(&mut world, high, 0);
    assert_eq!(world.trim(), 4 * PAGE);
    put(&mut world, middle, 0);
    happened(&world);
    // A hole of two pages, a gap of one, a hole of two: the source has no memory for the second hole.
    world.source_mut().capacity = 4 * PAGE;
    let refused = world.allocate(Request::new(5 * PAGE)).expect_err("five pages beside one of four");
    assert_eq!(refused.cause, Cause::OutOfMemory);
    assert!(happened(&world).contains(&"map"), "the first hole was mapped");
    assert_eq!(world.reserved(), 2 * PAGE, "as before");
    world.check().expect("every invariant holds");
    put(&mut world, last, 0);
    finish(&mut world);
}

#[test]
fn a_cached_block_that_a_lower_cap_refuses_is_free() {
    let mut world = world(false, 1 << 20, SETTINGS);
    // The second block lies 512 bytes behind a multiple of 1024.
    let [first, second] = [(); 2].map(|()| get(&mut world, 512, 0));
    put(&mut world, second, 0);
    world.cache_mut().set_cap(0);
    let aligned = world.allocate(Request::new(512).align(1024)).expect("there is room");
    world.check().expect("no block is lost");
    [first, aligned].into_iter().for_each(|block| put(&mut world, block, 0));
    finish(&mut world);
}

#[test]
fn cached_blocks_give_their_slots_up_before_a_request_fails() {
    let mut world = lent(false, 1 << 20, SETTINGS, 8);
    let blocks: Vec<Block> = (0..6).map(|_| get(&mut world, 64, 0)).collect();
    let last = get(&mut world, 64, 0);
    blocks.into_iter().for_each(|block| put(&mut world, block, 0));
    let other = get(&mut world, 128, 0);
    put(&mut world, other, 0);
    put(&mut world, last, 0);
    finish(&mut world);
}

#[test]
fn a_forged_size_in_a_name_does_not_reach_the_counters() {
    let mut world = world(false, 32 * PAGE, SETTINGS);
    let block = get(&mut world, 3 * PAGE, 0);
    let forged = Block { bytes: u64::MAX / 2, ..block };
    let resized = world.resize(forged, 2 * PAGE).expect("it shrinks");
    assert_eq!((resized.bytes, world.stats().in_use), (2 * PAGE, 2 * PAGE));
    put(&mut world, Block { bytes: 1, ..resized }, 0);
    finish(&mut world);
}
