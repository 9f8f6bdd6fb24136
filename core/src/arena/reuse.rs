//! Reuse of pending blocks by the owner that freed them, also for blocks of other sizes.
//!
//! Promises upward: never allocates memory that is pending for another owner; what is not used of a run stays as it was.
//! Asks from below: tickets of one owner that never decrease (see [`Fence`]).
//!
//! ```text
//!           live | waits  |  free  | waits | live         one owner's *run*: what it freed, and what is free for all
//!           live | block          | waits  | live         between and beside
//! ```

use super::Arena;
use super::storage::ArenaStorage;
use crate::allocator::{Block, Owner, Request};
use crate::fence::{Fence, FenceState};
use crate::range::{ExtentKind, RangeExtent};
use crate::source::Source;

/// A run of an owner: its adjacent pending blocks and the gaps between and beside them. For its owner it is one gap.
#[derive(Clone, Copy, Debug)]
struct OwnedRun {
    /// First address of the run, and the first address after it.
    start: u64,
    end: u64,
    /// Slot of the record before the run.
    anchor: u32,
    /// Whether a hole is right before it, and right behind it.
    holes: [bool; 2],
}

/// The share of the capacity, in permille, up to which what others freed is left alone until it is needed. Patterns of eight streams in
/// 1.05 times their peak are refused 16 to 47 blocks if it is never asked for, and 12 to 39 with this (`streams` of `device_calls`).
const ASK_ABOVE: u32 = 280;

/// Blocks that must have become pending since the fences were last asked, so that each query serves several.
const ASK_AFTER: u32 = 8;

impl<S: Source, F: Fence, M: ArenaStorage> Arena<S, F, M> {
    /// Allocates a block for an owner that has pending blocks, in the run or the gap that fits best: where it would lie if each fence
    /// were ready at once and the strategy best fit. `None` if the owner has none, or nothing fits. O(pending + gaps beside them).
    pub(super) fn reuse(&mut self, request: Request) -> Option<Block> {
        let (area, owner) = (self.area(request.bytes), request.owner);
        if !self.pending[area].has(owner) {
            return None;
        }
        let size = request.bytes.checked_next_multiple_of(self.settings.granule)?;
        // Takes up to three slots, for the block and the rest on either side; releasing the run frees at least one.
        let may_split = self.ranges[area].slots_left() >= 2;
        let place = |start: u64, end: u64, behind_hole: bool| {
            let low = start.checked_next_multiple_of(request.align)?;
            let high = end.checked_sub(size)? & !(request.align - 1);
            // As a range cuts its gaps: from the high end behind a hole, since what is left can merge with pages that are mapped there.
            (low <= high).then_some(if behind_hole { high } else { low })
        };
        let mut best = None;
        for run in self.pending[area].slots().filter_map(|slot| self.run(area, slot, owner)) {
            let Some(start) = place(run.start, run.end, run.holes[0]).filter(|_| may_split) else { continue };
            let fitness = (run.holes.contains(&true), run.end - run.start, start);
            if best.is_none_or(|(_, least)| fitness < least) {
                best = Some((run, fitness));
            }
        }
        let range = &self.ranges[area];
        let waits =
            |slot: u32| range.extent_of(slot).is_some_and(|extent| self.ticket_of(area, &extent, owner).is_some());
        let gap = range.choice(request, |before, behind| !waits(before) && !waits(behind)).and_then(|gap| {
            let holes = range.holes_beside(&gap, &gap);
            let start = place(gap.start, gap.end(), holes[0])?;
            Some((gap, (holes.contains(&true), gap.bytes, start)))
        });
        if let Some((gap, fitness @ (.., start))) = gap
            && best.is_none_or(|(_, least)| fitness < least)
        {
            return self.ranges[area].claim(&gap, start, size).ok().map(|block| self.locate(block, area));
        }
        let (run, (.., start)) = best?;
        self.claim_in_run(area, &run, (start, size), owner)
    }

    /// Allocates `size` bytes at `start` in a run: frees the pending blocks that lie there; what is cut off them waits on.
    fn claim_in_run(&mut self, area: usize, run: &OwnedRun, (start, size): (u64, u64), owner: Owner) -> Option<Block> {
        let end = start + size;
        let (mut anchor, mut left, mut right) = (run.anchor, None, None);
        loop {
            let [_, slot] = self.ranges[area].neighbours(anchor);
            let Some(next) = self.ranges[area].extent_of(slot).filter(|next| next.start < end) else { break };
            let Some(ticket) = self.ticket_of(area, &next, owner) else { break };
            if next.end() <= start {
                anchor = slot;
                continue;
            }
            left = left.or((next.start < start).then_some((next.start, ticket)));
            right = (end < next.end()).then_some((next.end(), ticket));
            self.pending[area].take(slot);
            self.ranges[area].release(slot);
        }
        let range = &mut self.ranges[area];
        let block = range.claim(&range.gap(anchor)?, start, size).ok()?;
        if let Some((from, ticket)) = left {
            self.keep_pending(area, anchor, (from, start), owner, ticket);
        }
        if let Some((to, ticket)) = right {
            self.keep_pending(area, block.slot, (end, to), owner, ticket);
        }
        Some(self.locate(block, area))
    }

    /// Asks the fences whether what others freed is ready, once memory is scarce and several blocks have become pending since.
    pub(super) fn ask_if_scarce(&mut self, area: usize, owner: Owner) {
        let scarce = self.source.usage().capacity != 0 && self.left_below(ASK_ABOVE) == 0;
        if scarce && self.pending[area].added() >= ASK_AFTER && self.pending[area].has_others(owner) {
            self.poll_fences();
        }
    }

    /// Makes a live block pending, in one record with its owner's pending blocks right beside it: all of it then waits for `ticket`,
    /// which must be the owner's newest.
    pub(super) fn keep(&mut self, area: usize, slot: u32, owner: Owner, ticket: u64) {
        let range = &self.ranges[area];
        let Some(own) = range.extent_of(slot) else { return };
        let beside = [range.before(&own), range.behind(&own)];
        let [before, behind] = beside.map(|extent| {
            let extent = extent?;
            let older = self.ticket_of(area, &extent, owner)?;
            if self.fence.peek(owner, older) == FenceState::Pending {
                return Some(extent);
            }
            // It need not wait again.
            self.pending[area].take(extent.record);
            let block = self.ranges[area].block_at(extent.record)?;
            self.free_when_ready(area, block, owner, older);
            None
        });
        let range = &self.ranges[area];
        let anchor = range.neighbours(before.map_or(slot, |extent| extent.record))[0];
        let (start, end) = (before.unwrap_or(own).start, behind.unwrap_or(own).end());
        if before.or(behind).is_none() {
            return self.pending[area].push(slot, owner, ticket);
        }
        for extent in before.into_iter().chain(behind) {
            self.pending[area].take(extent.record);
            self.ranges[area].release(extent.record);
        }
        self.ranges[area].release(slot);
        self.keep_pending(area, anchor, (start, end), owner, ticket);
    }

    /// The run whose first pending block is in `slot`; `None` if that block is another owner's or not the first of its
    /// run.
    fn run(&self, area: usize, slot: u32, owner: Owner) -> Option<OwnedRun> {
        let range = &self.ranges[area];
        let ticket = |extent: &RangeExtent| self.ticket_of(area, extent, owner);
        let first = range.extent_of(slot)?;
        ticket(&first)?;
        let before = range.before(&first);
        let gap = before.filter(|extent| extent.kind == ExtentKind::Free);
        let older = if let Some(gap) = gap { range.before(&gap) } else { before };
        if older.as_ref().and_then(ticket).is_some() {
            return None;
        }
        let mut run = OwnedRun {
            start: gap.map_or(first.start, |gap| gap.start),
            end: first.end(),
            anchor: range.neighbours(slot)[0],
            holes: [false; 2],
        };
        let usable = |extent: &RangeExtent| extent.kind == ExtentKind::Free || ticket(extent).is_some();
        let mut last = first;
        for extent in core::iter::successors(Some(first), |extent| range.behind(extent).filter(usable)) {
            (run.end, last) = (extent.end(), extent);
        }
        run.holes = range.holes_beside(&gap.unwrap_or(first), &last);
        Some(run)
    }

    /// The ticket of an extent's block, if it is pending for this owner.
    fn ticket_of(&self, area: usize, extent: &RangeExtent, owner: Owner) -> Option<u64> {
        let waits = self.pending[area].get(extent.record).filter(|_| extent.kind == ExtentKind::Live);
        waits.filter(|(by, _)| *by == owner).map(|(_, ticket)| ticket)
    }

    /// Makes the part `from..to` of a released run, which lies in the gap after `record`, pending again.
    fn keep_pending(&mut self, area: usize, record: u32, (from, to): (u64, u64), owner: Owner, ticket: u64) {
        let range = &mut self.ranges[area];
        let Some(gap) = range.gap(record).filter(|_| from < to) else { return };
        if let Ok(rest) = range.claim(&gap, from, to - from) {
            self.pending[area].push(rest.slot, owner, ticket);
        }
    }
}
