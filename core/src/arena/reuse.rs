//! What an owner freed is its own again before the fence: also in other sizes.
//!
//! Promises upward: nothing that another owner's fence covers is given out; what is left of a stretch waits on.
//! Asks from below: tickets of one owner that never decrease (see [`Fence`]).
//!
//! ```text
//!           live | waits  |  free  | waits | live         one owner's *run*: what it freed, and what is free for all
//!           live | block          | waits  | live         between and beside
//! ```

use super::Arena;
use super::storage::ArenaStorage;
use crate::allocator::{Block, Owner, Request};
use crate::fence::Fence;
use crate::range::{ExtentKind, RangeExtent};
use crate::source::Source;

/// A stretch that its owner may have at once.
#[derive(Clone, Copy, Debug)]
struct OwnedRun {
    /// First address, and the one after the last.
    start: u64,
    end: u64,
    /// The same of what waits in it.
    waits: (u64, u64),
    /// The record in front.
    anchor: u32,
    /// Covers all of it.
    ticket: u64,
}

impl<S: Source, F: Fence, M: ArenaStorage> Arena<S, F, M> {
    /// A block from what its owner freed and what is free beside that: the smallest such stretch. O(waiting).
    #[cold]
    pub(super) fn reuse(&mut self, request: Request) -> Option<Block> {
        let area = self.area(request.bytes);
        // A block, and what is left on both sides of it; at least one slot comes free.
        if self.pending[area].is_empty() || self.ranges[area].slots_left() < 2 {
            return None;
        }
        let size = request.bytes.checked_next_multiple_of(self.settings.granule)?;
        let place = |run: &OwnedRun| {
            let start = run.start.checked_next_multiple_of(request.align)?;
            (start.checked_add(size)? <= run.end).then_some(start)
        };
        let runs = self.pending[area].slots().filter_map(|slot| self.run(area, slot, request.owner));
        let fitting = runs.filter_map(|run| Some((run, place(&run)?)));
        let (run, start) = fitting.min_by_key(|(run, start)| (run.end - run.start, *start))?;
        self.release_run(area, &run, request.owner);
        let range = &mut self.ranges[area];
        let block = range.claim(&range.gap(run.anchor)?, start, size).ok()?;
        self.keep_pending(area, run.anchor, (run.waits.0, start.min(run.waits.1)), request.owner, run.ticket);
        self.keep_pending(area, block.slot, ((start + size).max(run.waits.0), run.waits.1), request.owner, run.ticket);
        Some(self.locate(block, area))
    }

    /// The run that starts with the waiting block in `slot`, when it is this owner's and the first of its run.
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
            waits: (first.start, first.end()),
            anchor: range.neighbours(slot)[0],
            ticket: 0,
        };
        let usable = |extent: &RangeExtent| extent.kind == ExtentKind::Free || ticket(extent).is_some();
        for extent in core::iter::successors(Some(first), |extent| range.behind(extent).filter(usable)) {
            run.end = extent.end();
            if let Some(covers) = ticket(&extent) {
                (run.waits.1, run.ticket) = (extent.end(), covers.max(run.ticket));
            }
        }
        Some(run)
    }

    /// The ticket that a block waits for, when this owner freed it.
    fn ticket_of(&self, area: usize, extent: &RangeExtent, owner: Owner) -> Option<u64> {
        let waits = self.pending[area].get(extent.record).filter(|_| extent.kind == ExtentKind::Live);
        waits.filter(|(by, _)| *by == owner).map(|(_, ticket)| ticket)
    }

    /// Makes a run one gap.
    fn release_run(&mut self, area: usize, run: &OwnedRun, owner: Owner) {
        loop {
            let [_, slot] = self.ranges[area].neighbours(run.anchor);
            let next = self.ranges[area].extent_of(slot).filter(|next| next.start < run.end);
            if next.is_none_or(|next| self.ticket_of(area, &next, owner).is_none()) {
                return;
            }
            self.pending[area].take(slot);
            self.ranges[area].release(slot);
        }
    }

    /// A part of a run that was not handed out, in the gap behind `record`, waits on.
    fn keep_pending(&mut self, area: usize, record: u32, (from, to): (u64, u64), owner: Owner, ticket: u64) {
        let range = &mut self.ranges[area];
        let Some(gap) = range.gap(record).filter(|_| from < to) else { return };
        if let Ok(rest) = range.claim(&gap, from, to - from) {
            self.pending[area].push(rest.slot, owner, ticket);
        }
    }
}
