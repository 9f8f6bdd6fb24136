//! Holes, which are address space without memory: committing and decommitting parts of a region.
//!
//! Promises upward: any part of a hole can become free memory, any part of a gap a hole; adjacent holes merge.
//! Asks from below: the caller (an arena) maps and unmaps the pages.

use super::{Range, RegionId};
use crate::allocator::Block;
use crate::error::{AllocError, Cause};
use crate::index::{Index, NONE, Slot, SlotState, Slots};

/// The state of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Free memory.
    Free,
    /// A live block.
    Live,
    /// A hole: no memory backs it.
    Hole,
}

/// A block, gap or hole of a region, in bytes; valid until the range changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeExtent {
    /// First address of the extent.
    pub start: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// What the extent is.
    pub kind: ExtentKind,
    /// The slot of the extent's record; for free memory, of the record before it.
    pub(crate) record: u32,
}

impl RangeExtent {
    /// The first address after the extent.
    pub const fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

impl<S: Slots, I: Index> Range<S, I> {
    /// The gap after record `i`; `None` if the gap is 0.
    pub(crate) fn gap(&self, i: u32) -> Option<RangeExtent> {
        let record = self.slots.slot(i);
        let (start, bytes) = (self.address(record.end), self.bytes(record.gap));
        (record.gap > 0).then_some(RangeExtent { start, bytes, kind: ExtentKind::Free, record: i })
    }

    /// The block or hole of record `i`; `None` for the record of a region.
    pub(crate) fn extent_of(&self, i: u32) -> Option<RangeExtent> {
        let record = self.slots.slot(i);
        let kind = match record.state() {
            SlotState::Live => ExtentKind::Live,
            SlotState::Hole => ExtentKind::Hole,
            SlotState::Region | SlotState::Spare => return None,
        };
        let size = self.size(i);
        Some(RangeExtent { start: self.address(record.end - size), bytes: self.bytes(size), kind, record: i })
    }

    /// All holes, the newest first.
    pub fn holes(&self) -> impl Iterator<Item = RangeExtent> {
        let mut at = self.holes;
        core::iter::from_fn(move || {
            let hole = if at == NONE { None } else { self.extent_of(at) }?;
            at = self.slots.slot(at).hole_links()[1];
            Some(hole)
        })
    }

    /// All regions, the newest first.
    pub fn regions(&self) -> impl Iterator<Item = RegionId> {
        let known = |i: u32| (i != NONE).then_some(RegionId(i));
        core::iter::successors(known(self.regions), move |region| known(self.slots.slot(region.0).value() as u32))
    }

    /// All blocks, gaps and holes of a region by address.
    pub fn extents(&self, region: RegionId) -> impl Iterator<Item = RangeExtent> {
        let mut at = Some(region.0);
        core::iter::from_fn(move || {
            let record = at?;
            let next = self.slots.slot(record).next;
            at = (next != region.0).then_some(next);
            Some([self.extent_of(record), self.gap(record)])
        })
        .flatten()
        .flatten()
    }

    /// The gaps before and behind a live block.
    pub(crate) fn gaps_beside(&self, block: &Block) -> [Option<RangeExtent>; 2] {
        [self.slots.slot(block.slot).prev, block.slot].map(|record| self.gap(record))
    }

    /// The next extent in the region, by address.
    pub fn behind(&self, extent: &RangeExtent) -> Option<RangeExtent> {
        let gap = if extent.kind == ExtentKind::Free { None } else { self.gap(extent.record) };
        gap.or_else(|| self.extent_of(self.slots.slot(extent.record).next))
    }

    /// The previous extent in the region, by address.
    pub fn before(&self, extent: &RangeExtent) -> Option<RangeExtent> {
        if extent.kind == ExtentKind::Free {
            return self.extent_of(extent.record);
        }
        let prev = self.slots.slot(extent.record).prev;
        self.gap(prev).or_else(|| self.extent_of(prev))
    }

    /// Whether a hole is right before `first`, and right behind `last`.
    pub(crate) fn holes_beside(&self, first: &RangeExtent, last: &RangeExtent) -> [bool; 2] {
        [self.before(first), self.behind(last)]
            .map(|extent| extent.is_some_and(|extent| extent.kind == ExtentKind::Hole))
    }

    /// The previous and the next record of record `i`.
    pub(crate) fn neighbours(&self, i: u32) -> [u32; 2] {
        let record = self.slots.slot(i);
        [record.prev, record.next]
    }

    /// The largest gap. O(log n); good fit: O(gaps in the last bin).
    pub fn largest_free(&self) -> Option<RangeExtent> {
        self.index.largest(&self.slots).and_then(|i| self.gap(i))
    }

    /// The gap that the strategy would choose for `bytes` bytes; allocates nothing.
    pub fn find_free(&self, bytes: u64) -> Option<RangeExtent> {
        let size = self.granules(bytes)?.max(1);
        self.index.find_exact(&self.slots, size, 0, |_| true).and_then(|i| self.gap(i))
    }

    /// Finds a gap of at least `bytes` bytes for which `fits`, called with address and bytes, returns true.
    ///
    /// Returns the first in the order of the strategy, and allocates nothing; `None` only if there is none. O(gaps) if few fit.
    pub fn find_gap(&self, bytes: u64, fits: impl Fn(u64, u64) -> bool) -> Option<RangeExtent> {
        let size = self.granules(bytes)?.max(1);
        let fits = |record: &Slot| fits(self.address(record.end), self.bytes(record.gap));
        // The slack is unbounded, because no size guarantees that a gap fits.
        self.index.find_exact(&self.slots, size, u32::MAX, fits).and_then(|i| self.gap(i))
    }

    /// The gaps and holes after a record, up to the next live block or the end of the region: a vacancy.
    pub(crate) fn vacant_extents(&self, record: u32) -> impl Iterator<Item = RangeExtent> {
        let first = self.gap(record).or_else(|| self.extent_of(self.slots.slot(record).next));
        let unused = |extent: &RangeExtent| extent.kind != ExtentKind::Live;
        core::iter::successors(first.filter(unused), move |extent| self.behind(extent).filter(unused))
    }

    /// The record before each vacancy that contains a hole.
    pub(crate) fn vacancy_starts(&self) -> impl Iterator<Item = u32> {
        let prev = |hole: RangeExtent| self.slots.slot(hole.record).prev;
        self.holes().map(prev).filter(|&i| self.slots.slot(i).state() != SlotState::Hole)
    }

    /// Makes `bytes` bytes at `start` in a hole free memory. Caller must have mapped pages there.
    ///
    /// # Errors
    /// [`Cause::BadRequest`] when the bytes are not inside the hole; [`Cause::OutOfSlots`].
    pub fn commit(&mut self, hole: &RangeExtent, start: u64, bytes: u64) -> Result<(), AllocError> {
        let (front, size) = self.offset_in(hole, start, bytes, ExtentKind::Hole)?;
        let i = hole.record;
        let whole = self.size(i);
        let Slot { end, gap, .. } = *self.slots.slot(i);
        let rest = whole - front - size;
        if front > 0 && rest > 0 && self.slots_left() == 0 {
            return Err(AllocError::new(Cause::OutOfSlots, bytes));
        }
        self.totals.holes -= u64::from(size);
        self.count_backed(size);
        match (front, rest) {
            (0, 0) => self.remove_hole(i),
            // The bytes are the front of the hole: the gap before the hole grows.
            (0, _) => {
                let prev = self.slots.slot(i).prev;
                let Slot { end, gap, .. } = *self.slots.slot(prev);
                self.index.update(&mut self.slots, prev, end, gap + size);
            }
            // The bytes are in the middle or at the end: the hole's own gap grows; the rest, if any, becomes a hole
            // after that gap.
            (_, _) => {
                self.index.update(&mut self.slots, i, end - size - rest, gap + size + rest);
                self.insert_hole(i, size, rest);
            }
        }
        Ok(())
    }

    /// Makes `bytes` bytes at `start` in a gap a hole. Caller must have unmapped the pages there.
    ///
    /// # Errors
    /// [`Cause::BadRequest`] when the bytes are not inside the gap; [`Cause::OutOfSlots`].
    pub fn decommit(&mut self, free: &RangeExtent, start: u64, bytes: u64) -> Result<(), AllocError> {
        let (front, size) = self.offset_in(free, start, bytes, ExtentKind::Free)?;
        let i = free.record;
        let Slot { end, gap, next, .. } = *self.slots.slot(i);
        let rest = gap - front - size;
        let joins_front = front == 0 && self.slots.slot(i).state() == SlotState::Hole;
        let joins_rest = rest == 0 && self.slots.slot(next).state() == SlotState::Hole;
        if !joins_front && !joins_rest && self.slots_left() == 0 {
            return Err(AllocError::new(Cause::OutOfSlots, bytes));
        }
        self.totals.backed -= u64::from(size);
        self.totals.holes += u64::from(size);
        if joins_rest {
            // The hole after the gap grows at its front.
            self.index.update(&mut self.slots, i, end, front);
            if joins_front {
                // Nothing is left of the gap between two holes: the first is removed, and the second covers both.
                self.unlink_hole(i);
                self.unlink(i);
            }
        } else if joins_front {
            self.index.update(&mut self.slots, i, end + size, rest);
        } else {
            self.insert_hole(i, front, size);
        }
        Ok(())
    }

    /// Allocates the block of `bytes` bytes at `start` in a gap.
    ///
    /// # Errors
    /// [`Cause::BadRequest`] when the block would not lie inside the gap; [`Cause::OutOfSlots`].
    pub fn claim(&mut self, free: &RangeExtent, start: u64, bytes: u64) -> Result<Block, AllocError> {
        let (front, size) = self.offset_in(free, start, bytes, ExtentKind::Free)?;
        let new = self.take_slot().ok_or(AllocError::new(Cause::OutOfSlots, bytes))?;
        Ok(self.cut(free.record, new, front, size))
    }

    /// Makes `bytes` bytes at `start` in a gap live for a while, under the ticket of a live block: blocks allocated later have the
    /// tickets that they would have had. Caller must give its handle to no user.
    ///
    /// # Errors
    /// As for [`claim`](Self::claim).
    pub(crate) fn hide(
        &mut self,
        gap: &RangeExtent,
        start: u64,
        bytes: u64,
        block: &Block,
    ) -> Result<Block, AllocError> {
        let hidden = Block { ticket: block.ticket, ..self.claim(gap, start, bytes)? };
        self.ticket -= self.step;
        self.slots.slot_mut(hidden.slot).name = Slot::name_of(SlotState::Live, hidden.ticket);
        Ok(hidden)
    }

    /// Checks that `bytes` bytes at `start` lie in extent `of`; returns their offset there and their size, in granules.
    fn offset_in(&self, of: &RangeExtent, start: u64, bytes: u64, kind: ExtentKind) -> Result<(u32, u32), AllocError> {
        let bad = AllocError::new(Cause::BadRequest, bytes);
        let now = match kind {
            _ if of.record >= self.fresh => None,
            ExtentKind::Free => self.gap(of.record),
            ExtentKind::Hole | ExtentKind::Live => self.extent_of(of.record),
        };
        let now = now.filter(|now| now.kind == kind).ok_or(bad)?;
        let mask = (1u64 << self.granule) - 1;
        let end = start.checked_add(bytes).ok_or(bad)?;
        if bytes == 0 || (start.wrapping_sub(self.base) | bytes) & mask != 0 || start < now.start || end > now.end() {
            return Err(bad);
        }
        Ok((((start - now.start) >> self.granule) as u32, (bytes >> self.granule) as u32))
    }

    /// Makes `size` granules of the gap of record `i`, from offset `front` on, a hole; does nothing for size 0.
    fn insert_hole(&mut self, i: u32, front: u32, size: u32) {
        if size == 0 {
            return;
        }
        let Some(new) = self.take_slot() else { return };
        self.insert_record(i, new, front, size, Slot::name_of(SlotState::Hole, 0));
        let head = self.holes;
        self.slots.slot_mut(new).set_hole_links([NONE, head]);
        if head != NONE {
            let [_, after] = self.slots.slot(head).hole_links();
            self.slots.slot_mut(head).set_hole_links([new, after]);
        }
        self.holes = new;
    }

    /// Makes a whole hole free memory.
    fn remove_hole(&mut self, i: u32) {
        self.unlink_hole(i);
        self.remove_record(i);
    }

    /// Removes a hole of a region that is being removed: counts it as free memory, without raising the peak.
    pub(super) fn drop_hole(&mut self, i: u32) {
        let size = u64::from(self.size(i));
        self.totals.holes -= size;
        self.totals.backed += size;
        self.remove_hole(i);
    }

    /// Removes record `i`, whose gap must be 0, from its ring: its bytes become part of the next record's hole.
    fn unlink(&mut self, i: u32) {
        let Slot { prev, next, .. } = *self.slots.slot(i);
        self.slots.slot_mut(prev).next = next;
        self.slots.slot_mut(next).prev = prev;
        self.give_slot(i);
    }

    /// Removes a hole from the list of holes.
    fn unlink_hole(&mut self, i: u32) {
        let [before, after] = self.slots.slot(i).hole_links();
        if before == NONE {
            self.holes = after;
        } else {
            let [far, _] = self.slots.slot(before).hole_links();
            self.slots.slot_mut(before).set_hole_links([far, after]);
        }
        if after != NONE {
            let [_, far] = self.slots.slot(after).hole_links();
            self.slots.slot_mut(after).set_hole_links([before, far]);
        }
    }
}
