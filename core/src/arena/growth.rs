//! Growth in two steps: the arena plans it, the caller maps the pages without a lock on the arena, and the arena finishes it.
//!
//! ```text
//!   allocate_later:   |====|BBBBBBBBBB|hhhhh|      pages taken from the source's capacity, not mapped; B and h are live for the range
//!   the caller maps   |====|----------------|      meanwhile others allocate, free and grow elsewhere
//!   finish:           |====|BBBBBBBBBB|     |      h becomes a gap, B is the caller's
//!   cancel:           |====|                       all of it is a hole again
//! ```
//!
//! A fixed source gives no memory piece by piece: the caller takes a whole segment without the lock, and `finish` allocates in it.
//!
//! Promises upward: all memory that is given out is mapped; an arena with growths passes its checks; a cancelled growth leaves
//! nothing, in no count either.
//! Asks from below: [`Source::map_later`] and [`Source::cancel_later`]; [`Source::take_later`] and [`Source::cancel_take`].

use super::Arena;
use super::storage::ArenaStorage;
use crate::allocator::{Allocator, Block, Owner, Request};
use crate::error::AllocError;
use crate::fence::Fence;
use crate::range::RangeExtent;
use crate::source::{Source, SourceError};

/// Most ranges of a growth: the pages of a block over more holes are all mapped at once.
const RANGES: usize = 4;

/// Records that a growth may need besides those of a mapping: its block's, and of what is hidden on either side.
const SLOTS: u32 = 3;

/// A block whose pages are still to be mapped, or whose segment is still to be taken.
///
/// It ends by [`Arena::finish`] or [`Arena::cancel`], of the arena that gave it. One that is dropped keeps its memory for ever.
#[derive(Debug)]
#[must_use = "its memory stays taken until it is finished or cancelled"]
pub struct Growth(GrowthKind);

#[derive(Debug)]
enum GrowthKind {
    Pages(PagesGrowth),
    /// Bytes of the segment, and what is to be allocated in it.
    Segment(u64, Request),
}

#[derive(Debug)]
struct PagesGrowth {
    block: Block,
    area: usize,
    /// What is hidden on either side of the block: free memory that is not mapped yet, or merged with such memory.
    hidden: [Option<Block>; 2],
    ranges: LaterRanges,
}

impl Growth {
    /// The ranges to map: first address and bytes, both multiples of a page.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let ranges = if let GrowthKind::Pages(growth) = &self.0 { growth.ranges } else { LaterRanges::default() };
        (0..ranges.count).map(move |at| ranges.ranges[at])
    }

    /// The bytes of the segment to take, which the source's next `take` then gives.
    pub fn segment(&self) -> Option<u64> {
        if let GrowthKind::Segment(bytes, _) = self.0 { Some(bytes) } else { None }
    }
}

impl PagesGrowth {
    /// Bytes that are live for the range.
    fn bytes(&self) -> u64 {
        self.block.bytes + self.hidden.iter().flatten().map(|block| block.bytes).sum::<u64>()
    }
}

/// Ranges that are to be mapped later, or a segment that is to be taken.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LaterRanges {
    ranges: [(u64, u64); RANGES],
    count: usize,
    /// Bytes of the segment; 0 for none.
    segment: u64,
}

impl LaterRanges {
    /// Adds a range. There is room: `map_now_or_later` looked for it.
    pub(super) fn push(&mut self, from: u64, bytes: u64) {
        self.ranges[self.count] = (from, bytes);
        self.count += 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.ranges[..self.count].iter().copied()
    }

    /// The lowest and the highest address in a gap between which it overlaps ranges.
    fn reach(&self, gap: &RangeExtent) -> Option<(u64, u64)> {
        let parts = self.iter().map(|(from, bytes)| (from.max(gap.start), (from + bytes).min(gap.end())));
        parts.filter(|(from, to)| from < to).reduce(|all, part| (all.0.min(part.0), all.1.max(part.1)))
    }
}

impl<S: Source, F: Fence, M: ArenaStorage> Arena<S, F, M> {
    /// Allocates, but lets the caller map the pages, or take the segment, that it needs.
    ///
    /// Returns a block, or a growth if the source needs new memory and can [map](Source::map_later) or [take](Source::take_later) it
    /// later. Other calls to the arena may come before the growth ends.
    ///
    /// # Errors
    /// As for [`allocate`](Allocator::allocate).
    pub fn allocate_later(&mut self, request: Request) -> Result<Result<Block, Growth>, AllocError> {
        self.later = Some(LaterRanges::default());
        let found = self.find_block(request);
        let ranges = self.later.take().unwrap_or_default();
        if ranges.segment > 0 {
            self.counters.taking += ranges.segment;
            return Ok(Err(Growth(GrowthKind::Segment(ranges.segment, request))));
        }
        let block = found.inspect_err(|_| self.counters.failed += 1)?;
        if ranges.is_empty() {
            return Ok(Ok(self.count_allocated(block)));
        }
        let area = self.area_of(&block);
        let growth = PagesGrowth { block, area, hidden: self.hide(&block, area, &ranges), ranges };
        self.counters.growing += growth.bytes();
        Ok(Err(Growth(GrowthKind::Pages(growth))))
    }

    /// Ends a growth whose ranges are mapped, or whose segment is taken; returns its block.
    ///
    /// The source's next `take` must give the segment. O(log n), and for a segment as [`allocate`](Allocator::allocate).
    ///
    /// # Errors
    /// For a segment as `allocate`: others may have taken the records that it needs.
    pub fn finish(&mut self, growth: Growth) -> Result<Block, AllocError> {
        let growth = match growth.0 {
            GrowthKind::Pages(growth) => growth,
            GrowthKind::Segment(bytes, request) => {
                self.counters.taking -= bytes;
                let misses = self.counters.misses;
                // If there are no records for it, the request is served as any.
                let _ = self.take_wanted(bytes);
                let served = self.allocate(request);
                // One miss, however many segments it takes.
                self.counters.misses = misses + u64::from(served.is_ok());
                return served;
            }
        };
        self.counters.growing -= growth.bytes();
        self.counters.misses += 1;
        self.reveal(&growth);
        Ok(self.count_allocated(growth.block))
    }

    /// Ends a growth none of whose ranges is mapped, or whose segment was not taken.
    ///
    /// O(extents) for each range.
    pub fn cancel(&mut self, growth: Growth) {
        self.later = None;
        let growth = match growth.0 {
            GrowthKind::Pages(growth) => growth,
            GrowthKind::Segment(bytes, _) => {
                self.counters.taking -= bytes;
                return self.source.cancel_take(bytes);
            }
        };
        self.counters.growing -= growth.bytes();
        let released = 1 + growth.hidden.iter().flatten().count() as u32;
        if self.ranges[growth.area].slots_left() + released < growth.ranges.count as u32 {
            // No records are left to make holes of the ranges: their memory is never given out.
            self.counters.quarantined += growth.bytes();
            return;
        }
        self.reveal(&growth);
        // The free is never refused: the block is live, and no caller has its handle.
        let _ = self.ranges[growth.area].free(growth.block, Owner(0));
        self.take_back(growth.area, &growth.ranges);
    }

    /// Takes back ranges that lie in gaps: they are holes again, and the source's capacity has them back.
    fn take_back(&mut self, area: usize, ranges: &LaterRanges) {
        let Some((region, ids)) = self.space else { return };
        for (from, bytes) in ranges.iter() {
            let Some(gap) = self.gap_around(area, ids[area], from) else { continue };
            if self.ranges[area].decommit(&gap, from, bytes).is_ok() {
                self.source.cancel_later(region, from - region.base, bytes);
            }
        }
    }

    /// Whether the allocation under way has ranges that are to be mapped later.
    pub(super) fn has_later(&self) -> bool {
        self.later.is_some_and(|ranges| !ranges.is_empty())
    }

    /// Takes back what a plan that failed would have had mapped later; returns whether there was any. From then on the allocation
    /// maps at once.
    pub(super) fn take_back_plan(&mut self, area: usize) -> bool {
        let ranges = self.later.filter(|ranges| !ranges.is_empty());
        if let Some(ranges) = ranges {
            self.later = None;
            self.take_back(area, &ranges);
        }
        ranges.is_some()
    }

    /// Takes a range from a growing source: returns whether the caller will map it, or else maps it at once.
    pub(super) fn map_now_or_later(&mut self, area: usize, from: u64, bytes: u64) -> Result<bool, SourceError> {
        let Some((region, _)) = self.space else { return Err(SourceError::Unsupported) };
        let offset = from - region.base;
        // Room in the growth, and records for all that it needs; with so many left, each range can be taken back too.
        let may = self.later.is_some_and(|ranges| ranges.count < RANGES) && self.ranges[area].slots_left() >= 2 + SLOTS;
        match if may { self.source.map_later(region, offset, bytes) } else { Err(SourceError::Unsupported) } {
            // Earlier ranges are not hidden yet: if the source panicked in a call, others would get them unmapped.
            Err(SourceError::Unsupported) if self.has_later() => Err(SourceError::Unsupported),
            Err(SourceError::Unsupported) => self.source.map(region, offset, bytes).map(|()| false),
            taken => taken.map(|()| true),
        }
    }

    /// Makes free memory on either side of a block live, as far as ranges reach that are not mapped.
    fn hide(&mut self, block: &Block, area: usize, ranges: &LaterRanges) -> [Option<Block>; 2] {
        let range = &mut self.ranges[area];
        let [before, behind] = range.gaps_beside(block);
        let before = before.and_then(|gap| Some((gap, ranges.reach(&gap)?.0, gap.end())));
        let behind = behind.and_then(|gap| Some((gap, gap.start, ranges.reach(&gap)?.1)));
        // Never refused: `map_now_or_later` left records for both sides.
        [before, behind].map(|part| part.and_then(|(gap, from, to)| range.hide(&gap, from, to - from, block).ok()))
    }

    /// Leaves a segment of so many bytes to the caller, if the allocation under way may; returns whether it does.
    pub(super) fn want_segment(&mut self, bytes: u64) -> bool {
        let may = self.later.is_some() && self.has_place() && self.source.take_later(bytes).is_ok();
        self.later.iter_mut().filter(|_| may).for_each(|later| later.segment = bytes);
        may
    }

    /// Whether the allocation under way has left a segment to the caller.
    pub(super) fn wants_segment(&self) -> bool {
        self.later.is_some_and(|later| later.segment > 0)
    }

    fn reveal(&mut self, growth: &PagesGrowth) {
        // The last one first, so that later blocks get the records that they would have got.
        for hidden in growth.hidden.into_iter().rev().flatten() {
            // As in `cancel`.
            let _ = self.ranges[growth.area].free(hidden, Owner(0));
        }
    }
}
