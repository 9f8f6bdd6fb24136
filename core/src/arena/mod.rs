//! The arena: an allocator that joins a range, a cache and a source, grows, and returns memory.
//!
//! Promises upward: an allocation fails only if no reclaimable memory fits and the source has no more; an owner can at
//! once reuse a block that it freed, other owners after the fence; after all blocks are freed and the arena is trimmed,
//! all memory has been returned to the source.
//! Asks from below: a [`Source`], a [`Fence`], and storage ([`ArenaStorage`]).
//!
//! ```text
//! allocate ---> cache of (owner, exact size) ----hit----> block        no search, no source
//!                 | miss
//!                 v
//!               range: the strategy's gap ------found---> block        no source
//!                 | none
//!                 v
//!               chain: search exactly, then what the owner itself freed, fence or not;
//!                      poll fences, empty caches, search again,
//!                      grow (map, move or take; see pages, segments),
//!                      wait for fences, ask the user's hook ---------> block, or an error that says what was asked
//! ```

mod defragment;
mod growth;
mod pages;
mod pending;
mod reclaim;
mod release;
mod reuse;
mod segments;
mod settings;
mod storage;
mod warm_up;

pub use defragment::Defragmentation;
pub use growth::Growth;
pub use pending::PendingFree;
pub use settings::{ArenaSettings, Coalesce};
pub use storage::{ArenaParts, ArenaStorage, LentStorage, Segment};
pub use warm_up::Transformer;

use crate::allocator::{Allocator, Block, Owner, Request};
use crate::cache::Cache;
use crate::error::{AllocError, Cause, FreeError, Violation, ensure};
use crate::fence::{Fence, NoFence};
use crate::index::Slots;
use crate::range::{Range, RegionId};
use crate::source::{Region, Source};
use crate::stats::Stats;
use growth::LaterRanges;
use pending::PendingQueue;

/// An allocator that grows from a source.
///
/// # Example
/// ```
/// use terrace_core::arena::{LentStorage, ArenaParts, ArenaSettings};
/// use terrace_core::{Allocator, Arena, Bin, BestFit, Branch, Entry, FixedSource, NoFence, Owner, Request, Segment, Slot};
///
/// let mut memory = [0u64; 8192];
/// let (mut slots, mut branches) = ([Slot::EMPTY; 64], [Branch::EMPTY; 64]); // a fixed source has one area
/// let (mut bins, mut entries) = ([Bin::EMPTY; 16], [Entry::EMPTY; 16]);
/// let mut segments = [Segment::EMPTY; 4];
/// let parts = ArenaParts::<LentStorage<'_, _>> {
///     slots: [&mut [], &mut slots], index: [BestFit::new(&mut [][..]), BestFit::new(&mut branches[..])], bins: &mut bins, entries: &mut entries,
///     segments: &mut segments, pending: [&mut [], &mut []],
/// };
/// let settings = ArenaSettings { segment: 32768, grain: 4096, ..ArenaSettings::segments() };
/// let mut arena = Arena::new(FixedSource::new(&mut memory), NoFence, parts, settings)?;
/// let block = arena.allocate(Request::new(1000))?;
/// arena.free(block, Owner(0))?;
/// arena.trim();
/// assert_eq!(arena.stats().reserved, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Arena<S, F, M: ArenaStorage> {
    source: S,
    fence: F,
    /// The ranges [`SMALL`] and [`LARGE`]: separate, so that small blocks with a long life do not keep pages between
    /// large blocks mapped. The segments of a fixed source are all in [`LARGE`].
    ranges: [Range<M::Slots, M::Index>; 2],
    /// Freed blocks that are not merged: the range counts them as live, under handles that no caller has.
    cache: Cache<M::Bins, M::Entries>,
    /// Records of segments: the first `segment_count` are in use, sorted by `start` (fixed sources only).
    segments: M::Segments,
    segment_count: usize,
    /// The maximum of `segment_count` so far.
    peak_segments: usize,
    /// Freed blocks whose fence is pending: the range counts them as live, like cached blocks.
    pending: [PendingQueue<M::Pending>; 2],
    /// The address space of a growing source, in halves: the low half is the small area, the high half the large one.
    space: Option<(Region, [RegionId; 2])>,
    settings: ArenaSettings,
    counters: ArenaCounters,
    /// What the allocation under way lets its caller map, see [`Arena::allocate_later`].
    later: Option<LaterRanges>,
}

/// Index of the range for blocks up to the small threshold (growing sources only).
const SMALL: usize = 0;
/// Index of the range for all other blocks.
const LARGE: usize = 1;
/// If the slack grows, the threshold for small blocks is at least 2^-12 of the peak in use while memory is ample, 2 MiB of 8 GiB; when
/// it is scarce, 2^-14, 512 KiB, or twice the setting. Without a capacity memory counts as scarce. Blocks so much smaller than their
/// large neighbours would leave gaps that can be used only by moving pages; but a range of their own takes pages too.
const SMALL_LOG2: [u32; 2] = [12, 14];

/// The arena's own counters, in bytes where not stated otherwise.
#[derive(Clone, Copy, Debug, Default)]
struct ArenaCounters {
    /// Bytes that callers hold: live blocks of the ranges, without cached, pending and quarantined ones.
    in_use: u64,
    peak_in_use: u64,
    /// The peak since the last trim: what the arena takes from the source is judged by it, so that after a trim it grows as a new one.
    recent_peak: u64,
    /// The peak since [`Arena::begin_window`].
    window_peak: u64,
    /// Calls to the source until the last trim.
    past_calls: u64,
    /// Bytes of blocks whose fence failed, which are never reused.
    quarantined: u64,
    /// Bytes of growths that have not ended.
    growing: u64,
    /// Bytes of segments that the caller is taking: reserved, and in no range yet.
    taking: u64,
    live_blocks: u64,
    peak_live_blocks: u64,
    allocations: u64,
    /// Bytes of all blocks so far, and by which resizes made them larger.
    allocated_bytes: u64,
    misses: u64,
    failed: u64,
    returns: u64,
}

impl ArenaCounters {
    fn count_peaks(&mut self) {
        self.recent_peak = self.recent_peak.max(self.in_use);
        self.window_peak = self.window_peak.max(self.in_use);
        self.peak_in_use = self.peak_in_use.max(self.recent_peak);
    }
}

/// An arena without fences.
pub type PlainArena<S, M> = Arena<S, NoFence, M>;

impl<S: Source, F: Fence, M: ArenaStorage> Arena<S, F, M> {
    /// An arena over a source. Reserves a growing source's address space; maps and takes nothing else.
    ///
    /// # Errors
    /// [`Cause::BadRequest`] when a setting is not a power of two; [`Cause::SourceFailed`] when the source cannot
    /// reserve address space; [`Cause::OutOfSlots`] when the fence may be pending and there are fewer records of
    /// pending frees than slots; the errors of [`Range::new`].
    pub fn new(mut source: S, fence: F, parts: ArenaParts<M>, settings: ArenaSettings) -> Result<Self, AllocError> {
        let settings = settings.validate(source.page_bytes())?;
        let ([small_slots, large_slots], [small_index, large_index]) = (parts.slots, parts.index);
        let pending = parts.pending.map(PendingQueue::new);
        let enough = |queue: &PendingQueue<_>, slots: &M::Slots| queue.room() >= slots.count() as usize;
        if fence.may_pend() && !(enough(&pending[SMALL], &small_slots) && enough(&pending[LARGE], &large_slots)) {
            return Err(AllocError::new(Cause::OutOfSlots, 0));
        }
        // The small range issues even tickets and the large one odd tickets, so the arena never issues a ticket twice.
        let mut small = Range::new(small_slots, settings.granule, small_index)?.with_tickets(0, 2);
        let mut large = Range::new(large_slots, settings.granule, large_index)?.with_tickets(1, 2);
        let mut space = None;
        if source.page_bytes() != 0 {
            let half = settings.space_bytes(source.page_bytes());
            let region = source.reserve(2 * half).map_err(|_| AllocError::new(Cause::SourceFailed, 2 * half))?;
            small = small.based(region.base);
            large = large.based(region.base + half);
            space = Some((region, [small.add_space(region.base, half)?, large.add_space(region.base + half, half)?]));
        }
        let ranges = [small, large];
        let mut cache = Cache::new(parts.bins, parts.entries, settings.pooled_per_bucket);
        if let Coalesce::Threshold(bytes) = settings.coalesce {
            cache.set_cap(bytes / settings.granule);
        }
        let (segments, counters) = (parts.segments, ArenaCounters::default());
        let (segment_count, peak_segments) = (0, 0);
        Ok(Self {
            source,
            fence,
            ranges,
            cache,
            segments,
            segment_count,
            peak_segments,
            pending,
            space,
            settings,
            counters,
            later: None,
        })
    }

    /// The source.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The source, mutably: to set limits or to inject faults.
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// The fence.
    pub fn fence_mut(&mut self) -> &mut F {
        &mut self.fence
    }

    /// The settings in force.
    pub fn settings(&self) -> &ArenaSettings {
        &self.settings
    }

    /// The cache, mutably: to set its caps or adapt them to pressure.
    pub fn cache_mut(&mut self) -> &mut Cache<M::Bins, M::Entries> {
        &mut self.cache
    }

    /// Size in granules, rounded up, if freed blocks of that size are cached.
    #[inline]
    fn cached_size(&self, bytes: u64) -> Option<u32> {
        let granule = self.settings.granule;
        let cached = self.settings.coalesce != Coalesce::AtOnce && bytes <= self.settings.small_threshold;
        cached.then(|| u32::try_from(bytes.div_ceil(granule)).ok()).flatten()
    }

    #[inline]
    fn find_block(&mut self, request: Request) -> Result<Block, AllocError> {
        let request = request.validate()?;
        // A segment's start in the window is congruent to its address only modulo the grain.
        if request.align > self.settings.grain && self.space.is_none() {
            return Err(AllocError::new(Cause::BadRequest, request.bytes));
        }
        if let Some(block) = self.take_cached(request) {
            return Ok(block);
        }
        let area = self.area(request.bytes);
        self.ask_if_scarce(area, request.owner);
        if let Some(block) = self.reuse(request) {
            return Ok(block);
        }
        match self.ranges[area].allocate(request) {
            Ok(block) => Ok(self.locate(block, area)),
            Err(_) => self.reclaim_and_search(request),
        }
    }

    #[inline]
    fn take_cached(&mut self, request: Request) -> Option<Block> {
        let size = self.cached_size(request.bytes)?;
        let block = self.cache.get(request.owner, size)?;
        if block.address & (request.align - 1) == 0 {
            return Some(block);
        }
        // The block is misaligned for this request: it goes back into the cache or, if the caps are lower than what was
        // cached, to the range.
        if self.cache.put(request.owner, size, block).is_err() {
            self.free_uncached(block, request.owner);
        }
        None
    }

    /// The range for a request of `bytes`: [`SMALL`] or [`LARGE`].
    #[inline]
    fn area(&self, bytes: u64) -> usize {
        let usual = self.settings.small_threshold;
        let small = if self.settings.slack_grows() {
            let [ample, scarce] = SMALL_LOG2.map(|log2| self.counters.recent_peak >> log2);
            if self.left_below(self.settings.ample) > 0 {
                usual.max(ample)
            } else {
                usual.saturating_mul(2).max(scarce)
            }
        } else {
            usual
        };
        if self.space.is_some() && bytes <= small { SMALL } else { LARGE }
    }

    /// The range that a handle names; that range then verifies the handle's ticket.
    #[inline]
    fn area_of(&self, block: &Block) -> usize {
        if self.space.is_some() && block.region == SMALL as u32 { SMALL } else { LARGE }
    }

    #[inline]
    fn count_allocated(&mut self, block: Block) -> Block {
        let t = &mut self.counters;
        t.in_use += block.bytes;
        t.count_peaks();
        t.live_blocks += 1;
        t.peak_live_blocks = t.peak_live_blocks.max(t.live_blocks);
        t.allocations += 1;
        t.allocated_bytes += block.bytes;
        block
    }
}

impl<S: Source, F: Fence, M: ArenaStorage> Allocator for Arena<S, F, M> {
    #[inline]
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        match self.find_block(request) {
            Ok(block) => Ok(self.count_allocated(block)),
            Err(error) => {
                self.counters.failed += 1;
                Err(error)
            }
        }
    }

    #[inline]
    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        // The block gets a new ticket, so that the caller's handle is stale even while the block is cached.
        let area = self.area_of(&block);
        let renamed = self.ranges[area].rename(block)?;
        self.counters.in_use -= renamed.bytes;
        self.counters.live_blocks -= 1;
        let size = self.cached_size(renamed.bytes);
        match size.map_or(Err(renamed), |size| self.cache.put(owner, size, renamed)) {
            Ok(()) => Ok(()),
            Err(block) => {
                self.free_uncached(block, owner);
                Ok(())
            }
        }
    }

    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        let area = self.area_of(&block);
        // Reads the recorded size: the caller may have altered the size in the handle.
        let old = self.ranges[area].size_of(&block).map_err(|_| AllocError::new(Cause::NotLive, bytes))?;
        let resized = self.ranges[area].resize(block, bytes)?;
        let t = &mut self.counters;
        t.in_use = t.in_use + resized.bytes - old;
        t.count_peaks();
        t.allocated_bytes += resized.bytes.saturating_sub(old);
        Ok(resized)
    }

    /// Waits for all fences, merges all free blocks, and returns all vacant segments or unused pages. What was in use before no
    /// longer counts for what is taken ahead of requests.
    fn trim(&mut self) -> u64 {
        self.trim_to(0)
    }

    fn stats(&self) -> Stats {
        let (usage, t) = (self.source.usage(), self.counters);
        let [small, large] = [self.ranges[SMALL].stats(), self.ranges[LARGE].stats()];
        let waiting: u64 = self.pending.iter().map(PendingQueue::bytes).sum();
        let lent = (self.peak_segments * size_of::<Segment>()) as u64 + waiting;
        Stats {
            capacity: usage.capacity,
            reserved: usage.reserved,
            peak_reserved: usage.peak_reserved,
            in_use: t.in_use,
            peak_in_use: t.peak_in_use,
            requested: t.in_use,
            pooled: small.in_use + large.in_use - t.in_use - t.growing,
            largest_free: small.largest_free.max(large.largest_free),
            metadata: small.metadata + large.metadata + self.cache.bytes() + lent,
            live_blocks: t.live_blocks,
            peak_live_blocks: t.peak_live_blocks,
            allocations: t.allocations,
            frees: t.allocations - t.live_blocks,
            hits: t.allocations - t.misses,
            misses: t.misses,
            failed: t.failed,
            fallbacks: 0,
            returns: t.returns,
            source_calls: usage.calls,
            handles: usage.handles,
            ..Stats::default()
        }
        .with_bytes(t.allocated_bytes)
    }

    fn check(&self) -> Result<(), Violation> {
        self.ranges.iter().try_for_each(Range::check)?;
        self.cache.check()?;
        let held = self.cache.held() * self.settings.granule;
        let waiting = self.check_pending()?;
        let live: u64 = self.ranges.iter().map(|range| range.stats().in_use).sum();
        let kept = self.counters.in_use + held + waiting + self.counters.quarantined + self.counters.growing;
        ensure(live == kept, "what the range holds is in use, cached, waiting, growing or quarantined", live)?;
        let backed: u64 = self.ranges.iter().map(Range::backed).sum();
        let all = self.reserved();
        let elsewhere = self.unused_tails() + self.counters.taking;
        ensure(backed + elsewhere == all, "all memory of the source is in the ranges, or on its way", all)?;
        self.check_segments()
    }
}
