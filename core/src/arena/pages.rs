//! How an arena grows with a growing source: maps pages in holes for a block, or moves pages there from gaps elsewhere.
//!
//! Promises upward: a request needs as few new pages as possible, and may map more ahead where settings say so; above the share
//! `move_above`, reserved bytes stay within the slack of the peak in use as long as there are free whole handles elsewhere.
//! Asks from below: [`Source::map`], [`Source::unmap`], [`Source::shift`] of contiguous ranges.
//!
//! ```text
//!              gap      hole    gap       hole                    request of 6 pages
//!  before  |====|......|       |....|                  |====|    ....  free, mapped
//!  after   |====|[BBBBBBBBBBBBBBBBBBBBBBB]             |====|    3 pages in gaps, 3 mapped or moved there
//! ```
//!
//! A *gap* is free memory with pages, a *hole* is address space without. A *vacancy* is all between two live blocks:
//! gaps and holes in turn. A new block is placed at the low or the high end of a vacancy, next to a live block.

use super::storage::ArenaStorage;
use super::{Arena, LARGE, SMALL};
use crate::allocator::{Block, Request};
use crate::error::{AllocError, Cause};
use crate::fence::Fence;
use crate::index::{Index, Slots};
use crate::range::{ExtentKind, Range, RangeExtent};
use crate::source::{Source, SourceError};

/// Number of calls to the source that let the slack grow by a permille of the peak: 160 us, at 10 us a call.
const CALLS_A_PERMILLE: u64 = 16;

/// The part of the growth budget, 1/4, that is mapped ahead in the same call as the pages of a request.
const AHEAD: u64 = 4;

/// Pages to a multiple of which the range of small blocks grows while memory is ample: it needs little.
const AMPLE_SMALL: u64 = 2;

/// Bytes at most, and half a multiple at most, that the first such call in an area maps: what a small program takes.
const AMPLE_FIRST: u64 = 4 << 20;

/// Where to place a block: in one vacancy, over some of its holes. Plans are compared by their fields, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GrowthPlan {
    /// Bytes of the pages that the block needs and the vacancy lacks: a plan with fewer is better.
    pub(super) missing: u64,
    /// Bytes of the vacancy: of two plans that lack as many pages, the one in the smaller vacancy is better.
    pub(super) room: u64,
    /// First address of the block: among plans that are equal so far, the lower is better.
    pub(super) start: u64,
    /// First address of the vacancy.
    pub(super) from: u64,
    /// Slot of the record before the vacancy, which stays valid while the plan is executed.
    pub(super) anchor: u32,
}

impl<S: Source, F: Fence, M: ArenaStorage> Arena<S, F, M> {
    pub(super) fn grow_pages(&mut self, request: Request) -> Result<Block, AllocError> {
        let page = self.source.page_bytes();
        let size = request.bytes.checked_next_multiple_of(self.settings.granule).ok_or(self.out_of_memory(request))?;
        let area = self.area(request.bytes);
        let plan = plan(&self.ranges[area], size, request.align, page).ok_or(self.out_of_memory(request))?;
        let before = self.reserved();
        if let Err(error) = self.back_plan(area, &plan, size, page) {
            // The plan has several holes, and the source refused one of them.
            let waited = self.take_back_plan(area);
            self.unmap_plan(area, &plan, self.reserved().saturating_sub(before));
            return if waited { self.grow_pages(request) } else { Err(self.source_error(error, request)) };
        }
        let range = &mut self.ranges[area];
        let around = |gap: &RangeExtent| gap.start <= plan.start && plan.start < gap.end();
        let gap = range.vacant_extents(plan.anchor).find(around).ok_or(AllocError::new(Cause::SourceFailed, size))?;
        let block = range.claim(&gap, plan.start, size)?;
        Ok(self.locate(block, area))
    }

    /// Backs the plan's holes with pages: maps as many as the growth budget allows, or as settings say, and moves the others from
    /// gaps elsewhere (or maps them too, if no more can be moved).
    fn back_plan(&mut self, area: usize, plan: &GrowthPlan, size: u64, page: u64) -> Result<(), SourceError> {
        let unmoved = self.left_below(self.settings.move_above);
        let fresh = self.growth_budget(size).max(unmoved).min(plan.missing) & !(page - 1);
        let mut to_move = plan.missing - fresh;
        let end = plan.start + size;
        while let Some((hole, from, bytes)) = next_missing(&self.ranges[area], plan, end, page) {
            // An error means that no page moved: a source that cannot move pages now (because of work in flight on a
            // stream that it may not wait for) may still map fresh ones.
            let room = hole.end() - from;
            let moved = self.move_pages(area, plan, &hole, from, (bytes.min(to_move), room)).unwrap_or(0);
            to_move = to_move.saturating_sub(moved);
            if moved > 0 {
                continue;
            }
            to_move = 0;
            let ahead = self.ahead(area, size, from, from + bytes).min(hole.end() - from) & !(page - 1);
            let mapped = match self.map_pages(area, &hole, from, bytes.max(ahead)) {
                Err(_) if ahead > bytes => self.map_pages(area, &hole, from, bytes),
                mapped => mapped,
            };
            if let Err(error) = mapped {
                // The source may be at its capacity: moving pages, even more than planned, may suffice.
                if self.move_pages(area, plan, &hole, from, (bytes, room))? == 0 {
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Bytes that a call which maps `from..to`, for a block of `size` bytes, maps from `from` on: pages ahead of later requests too.
    fn ahead(&self, area: usize, size: u64, from: u64, to: u64) -> u64 {
        if self.counters.growing > 0 {
            return 0; // the growths under way map ahead, each for all
        }
        let upto = |multiple: u64, origin: u64, budget: u64| {
            let past = to.saturating_sub(origin).checked_next_multiple_of(multiple.max(1));
            past.map(|past| origin + past - from).filter(|bytes| *bytes <= budget).unwrap_or(0)
        };
        let budget = self.growth_budget(size);
        let part = if self.settings.slack_grows() { budget / AHEAD } else { 0 };
        let ample = if area == SMALL { AMPLE_SMALL * self.source.page_bytes() } else { self.settings.ample_multiple };
        // From the area's start, so that a program grows alike wherever the driver reserved the space.
        let base = self.space.map_or(0, |(region, _)| region.base + area as u64 * (region.bytes / 2));
        let origin = base + AMPLE_FIRST.min(ample / 2);
        let ample = upto(ample, origin, self.left_below(self.settings.ample));
        part.max(upto(self.settings.map_multiple, 0, budget)).max(ample)
    }

    /// Bytes that may be taken until a share of the source's capacity, in permille, is reserved; 0 without a capacity.
    pub(super) fn left_below(&self, permille: u32) -> u64 {
        let (capacity, permille) = (self.source.usage().capacity, u64::from(permille.min(1000)));
        let share = capacity / 1000 * permille + capacity % 1000 * permille / 1000;
        share.saturating_sub(self.reserved())
    }

    /// Number of bytes that may still be taken from the source, for a block of `size` bytes: up to the peak in use plus slack.
    /// The slack grows with the calls to the source, by a permille for every [`CALLS_A_PERMILLE`].
    fn growth_budget(&self, size: u64) -> u64 {
        let wanted = self.counters.recent_peak.max(self.counters.in_use + self.counters.growing + size);
        let earned = self.source.usage().calls.saturating_sub(self.counters.past_calls) / CALLS_A_PERMILLE;
        let slack = u64::from(self.settings.slack);
        let slack = slack.saturating_add(earned).min(slack.max(self.settings.max_slack.into()));
        let beyond = (u128::from(wanted) * u128::from(slack) / 1000) as u64;
        wanted.saturating_add(beyond).saturating_sub(self.reserved())
    }

    /// Maps pages in a part of a hole, by one call to the source, or lets the caller do so later.
    fn map_pages(&mut self, area: usize, hole: &RangeExtent, from: u64, bytes: u64) -> Result<(), SourceError> {
        let Some((region, ids)) = self.space else { return Err(SourceError::Unsupported) };
        if self.ranges[area].slots_left() < 2 {
            return Err(NO_SLOT);
        }
        if self.map_now_or_later(area, from, bytes)? {
            self.later.iter_mut().for_each(|ranges| ranges.push(from, bytes));
            return self.ranges[area].commit(hole, from, bytes).map_err(|_| NO_SLOT);
        }
        let zeroed = self.zero_fresh(from, bytes);
        if zeroed.is_err() && self.source.unmap(region, from - region.base, bytes).is_ok() {
            return zeroed;
        }
        self.ranges[area].commit(hole, from, bytes).map_err(|_| NO_SLOT)?;
        zeroed.inspect_err(|_| self.abandon(area, ids[area], from, bytes))
    }

    /// Moves whole handles, until `most` bytes are reached, from one gap to address `to` in a hole, by one call to the source;
    /// returns the number of bytes moved, at most `room`; 0 if no gap begins with a handle for which there is room.
    pub(super) fn move_pages(
        &mut self,
        area: usize,
        plan: &GrowthPlan,
        hole: &RangeExtent,
        to: u64,
        (most, room): (u64, u64),
    ) -> Result<u64, SourceError> {
        let Some((region, _)) = self.space else { return Ok(0) };
        if self.has_later() {
            return Err(SourceError::Unsupported); // see `map_now_or_later`
        }
        if most == 0 || self.ranges.iter().any(|range| range.slots_left() < 2) {
            return Ok(0);
        }
        let page = self.source.page_bytes();
        let Some((from_area, gap, from, bytes)) = self.find_handles(plan, most, room, page) else { return Ok(0) };
        self.source.shift(region, from - region.base, to - region.base, bytes)?;
        self.ranges[from_area].decommit(&gap, from, bytes).map_err(|_| NO_SLOT)?;
        self.ranges[area].commit(hole, to, bytes).map_err(|_| NO_SLOT)?;
        Ok(bytes)
    }

    /// Finds the gap outside the plan's vacancy with the most bytes in its first run of whole handles, counted up to `most`; among
    /// equals, the smallest gap. Returns its range, the gap, and address and bytes of the run, which may exceed `most` by a handle, but not
    /// `room`. O(log pages) searches.
    fn find_handles(
        &self,
        plan: &GrowthPlan,
        most: u64,
        room: u64,
        page: u64,
    ) -> Option<(usize, RangeExtent, u64, u64)> {
        let (region, _) = self.space?;
        let run = |start: u64, bytes: u64, enough: u64| {
            if start + bytes > plan.from && start < plan.from + plan.room {
                return None;
            }
            let (offset, bytes) = self.source.whole_handles(region, start - region.base, bytes, enough, room);
            (bytes >= enough).then_some((region.base + offset, bytes))
        };
        let place = |pages: u64| {
            let enough = pages * page;
            let places = [SMALL, LARGE].into_iter().filter_map(|area| {
                let gap = self.ranges[area].find_gap(enough, |start, bytes| run(start, bytes, enough).is_some())?;
                let (from, bytes) = run(gap.start, gap.bytes, enough)?;
                Some((area, gap, from, bytes))
            });
            places.min_by_key(|(_, gap, ..)| gap.bytes)
        };
        // Binary search for the number of pages: a gap with `some` pages was found, and none with `none` pages.
        let (mut some, mut none) = (0, most / page + 1);
        let mut found = None;
        let mut pages = most / page;
        while some + 1 < none {
            match place(pages) {
                Some(at) => (found, some) = (Some(at), pages),
                None => none = pages,
            }
            pages = some + (none - some) / 2;
        }
        found
    }

    /// Unmaps `bytes` of the plan's vacancy: a request that failed keeps no pages that were mapped for it.
    fn unmap_plan(&mut self, area: usize, plan: &GrowthPlan, mut bytes: u64) {
        let mut at = self.ranges[area].vacant_extents(plan.anchor).next();
        while let Some(extent) = at.filter(|extent| bytes > 0 && extent.start < plan.from + plan.room) {
            at = self.ranges[area].behind(&extent);
            let Some(unmapped) = self.unmap_gap(area, &extent, (bytes, u64::MAX)) else { return };
            bytes = bytes.saturating_sub(unmapped);
        }
    }

    /// Unmaps whole handles inside gaps, as far as `keep` bytes stay reserved, by one call to the source for each gap that has any.
    pub(super) fn trim_pages(&mut self, keep: u64) {
        let Some((_, ids)) = self.space else { return };
        for area in [SMALL, LARGE] {
            let mut at = self.ranges[area].extents(ids[area]).next();
            while let Some(extent) = at {
                // The next extent is looked up before the unmap: its record stays valid, even if two holes merge.
                at = self.ranges[area].behind(&extent);
                let most = self.reserved().saturating_sub(keep);
                if self.unmap_gap(area, &extent, (most, most)).is_none() {
                    return;
                }
            }
        }
    }

    /// Unmaps whole handles of an extent that is a gap, until `enough` bytes are reached, and at most `most`. Returns the bytes;
    /// `None` if the source refuses.
    fn unmap_gap(&mut self, area: usize, extent: &RangeExtent, (enough, most): (u64, u64)) -> Option<u64> {
        let (region, _) = self.space?;
        if extent.kind != ExtentKind::Free || self.ranges[area].slots_left() == 0 {
            return Some(0);
        }
        let (offset, bytes) = self.source.whole_handles(region, extent.start - region.base, extent.bytes, enough, most);
        if bytes == 0 {
            return Some(0);
        }
        self.source.unmap(region, offset, bytes).ok()?;
        self.ranges[area].decommit(extent, region.base + offset, bytes).ok()?;
        self.counters.returns += 1;
        Some(bytes)
    }

    /// Bytes of the largest gap.
    pub(super) fn largest_free(&self) -> u64 {
        let largest = self.ranges.iter().filter_map(Range::largest_free);
        largest.map(|gap| gap.bytes).max().unwrap_or(0)
    }

    pub(super) fn out_of_memory(&self, request: Request) -> AllocError {
        let largest_free = self.largest_free();
        AllocError { cause: Cause::OutOfMemory, asked: request.bytes, largest_free }
    }

    pub(super) fn source_error(&self, error: SourceError, request: Request) -> AllocError {
        match error {
            SourceError::OutOfMemory { .. } => self.out_of_memory(request),
            NO_SLOT => AllocError::new(Cause::OutOfSlots, request.bytes),
            _ => AllocError { cause: Cause::SourceFailed, ..self.out_of_memory(request) },
        }
    }
}

/// The error when no slot is left for the record of a hole or a segment.
pub(super) const NO_SLOT: SourceError = SourceError::Misuse("no record left for a hole or a segment");

/// The best plan for a block. O(holes and gaps between them): holes are few, as only calls to the source create them.
fn plan<L: Slots, I: Index>(range: &Range<L, I>, size: u64, align: u64, page: u64) -> Option<GrowthPlan> {
    let plans = range.vacancy_starts().flat_map(|anchor| {
        let ends = range
            .vacant_extents(anchor)
            .fold(None, |ends, extent| Some((ends.map_or(extent.start, |(from, _)| from), extent.end())));
        let place = |start: u64, (from, to): (u64, u64)| {
            let end = start.checked_add(size).filter(|&end| from <= start && end <= to)?;
            let missing = range.vacant_extents(anchor).filter_map(|extent| missing_pages(&extent, start, end, page));
            let missing = missing.map(|(_, bytes)| bytes).sum();
            Some(GrowthPlan { missing, room: to - from, start, from, anchor })
        };
        let low = ends.and_then(|(from, to)| place(from.checked_next_multiple_of(align)?, (from, to)));
        let high = ends.and_then(|(from, to)| place(to.checked_sub(size)? & !(align - 1), (from, to)));
        [low, high]
    });
    plans.flatten().min()
}

/// The pages of a hole that a block from `start` to `end` touches: first address and bytes.
fn missing_pages(extent: &RangeExtent, start: u64, end: u64, page: u64) -> Option<(u64, u64)> {
    let from = (start & !(page - 1)).max(extent.start);
    let to = end.next_multiple_of(page).min(extent.end());
    (extent.kind == ExtentKind::Hole && from < to).then(|| (from, to - from))
}

/// The lowest pages that the plan's block still lacks: their hole, first address and bytes.
fn next_missing<L: Slots, I: Index>(
    range: &Range<L, I>,
    plan: &GrowthPlan,
    end: u64,
    page: u64,
) -> Option<(RangeExtent, u64, u64)> {
    range.vacant_extents(plan.anchor).find_map(|extent| {
        let (from, bytes) = missing_pages(&extent, plan.start, end, page)?;
        Some((extent, from, bytes))
    })
}
