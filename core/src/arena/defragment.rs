//! Defragmentation on request: moves whole handles out of gaps everywhere into one hole.
//!
//! ```text
//!              gap      gap          gap     hole
//!  before  |==|....|===|..|==========|......|                         the largest gap has 6 pages
//!  after   |==|    |===|  |==========|............|                   it has 12; two holes are new
//! ```
//!
//! Promises upward: live blocks keep their addresses and bytes; nothing is moved unless the largest gap is to grow by it; no more
//! is moved than the caller allows.
//! Asks from below: `move_pages`, as growth under pressure.

use super::pages::GrowthPlan;
use super::storage::ArenaStorage;
use super::{Arena, LARGE, SMALL};
use crate::fence::Fence;
use crate::range::{ExtentKind, RangeExtent};
use crate::source::Source;

/// What a defragmentation did. In bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defragmentation {
    /// Whether memory can move at all: with pages it can, with segments it cannot.
    pub can_move: bool,
    /// Bytes of the pages that moved.
    pub moved: u64,
    /// The largest free extent before.
    pub largest_before: u64,
    /// The largest free extent after.
    pub largest_after: u64,
}

/// What a hole would become if it was filled from its start.
#[derive(Clone, Copy, Debug)]
struct HoleFilling {
    /// The vacancy, and where the hole starts.
    plan: GrowthPlan,
    /// Bytes to move there.
    bytes: u64,
    /// Bytes of the gap that there is then.
    largest: u64,
}

impl<S: Source, F: Fence, M: ArenaStorage> Arena<S, F, M> {
    /// Moves at most `most` bytes of pages out of gaps into one hole: the largest free extent grows.
    ///
    /// Waits for all fences. Moves nothing if that extent would not grow, and always nothing with segments. O(holes * gaps), and a call to the source for
    /// each gap whose handles move.
    pub fn defragment(&mut self, most: u64) -> Defragmentation {
        self.wait_for_fences();
        let largest_before = self.largest_free();
        let moved = self.join_gaps(most, largest_before);
        Defragmentation { can_move: self.space.is_some(), moved, largest_before, largest_after: self.largest_free() }
    }

    fn join_gaps(&mut self, most: u64, largest: u64) -> u64 {
        let filling = self.best_filling(most).filter(|filling| filling.largest > largest);
        let Some(HoleFilling { plan, bytes, .. }) = filling else { return 0 };
        let mut moved = 0;
        while moved < bytes {
            let to = plan.start + moved;
            let is_next = |extent: &RangeExtent| extent.kind == ExtentKind::Hole && extent.start == to;
            let Some(hole) = self.ranges[LARGE].vacant_extents(plan.anchor).find(is_next) else { break };
            let left = (bytes - moved).min(hole.bytes);
            match self.move_pages(LARGE, &plan, &hole, to, (left, left)) {
                Ok(more) if more > 0 => moved += more,
                // Nothing more fits; or the source refuses, and what moved before stays where it is.
                _ => break,
            }
        }
        moved
    }

    /// The hole that makes the largest gap, filled with at most `most` bytes from outside of its vacancy. Of equal ones, the one with
    /// fewer bytes to move.
    fn best_filling(&self, most: u64) -> Option<HoleFilling> {
        let range = &self.ranges[LARGE];
        let mut best: Option<HoleFilling> = None;
        for anchor in range.vacancy_starts() {
            let ends = range.vacant_extents(anchor).fold(None, |ends: Option<(u64, u64)>, extent| {
                Some((ends.map_or(extent.start, |(from, _)| from), extent.end()))
            });
            let Some((from, to)) = ends else { continue };
            let mut before = 0;
            for extent in range.vacant_extents(anchor) {
                if extent.kind != ExtentKind::Hole {
                    before = extent.bytes;
                    continue;
                }
                let bytes = self.movable(extent.bytes.min(most), (from, to));
                let behind =
                    range.behind(&extent).filter(|behind| bytes == extent.bytes && behind.kind == ExtentKind::Free);
                let largest = before + bytes + behind.map_or(0, |gap| gap.bytes);
                let plan = GrowthPlan { missing: bytes, room: to - from, start: extent.start, from, anchor };
                let better = |best: &HoleFilling| (largest, best.bytes) > (best.largest, bytes);
                if best.as_ref().is_none_or(better) {
                    best = Some(HoleFilling { plan, bytes, largest });
                }
                before = 0;
            }
        }
        best
    }

    /// Bytes of whole handles in gaps outside of a vacancy, at most `most`.
    fn movable(&self, most: u64, (from, to): (u64, u64)) -> u64 {
        let Some((region, ids)) = self.space else { return 0 };
        let mut bytes = 0;
        for area in [SMALL, LARGE] {
            let gaps = self.ranges[area].extents(ids[area]).filter(|extent| extent.kind == ExtentKind::Free);
            for gap in gaps.filter(|gap| gap.end() <= from || gap.start >= to) {
                let left = most - bytes;
                bytes += self.source.whole_handles(region, gap.start - region.base, gap.bytes, left, left).1;
            }
        }
        bytes
    }
}
