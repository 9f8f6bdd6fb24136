//! Allocating, freeing and resizing blocks: gaps are cut and merged here.
//!
//! Promises upward: a failed call changes nothing but the count of failures.
//! Asks from below: an [`Index`](crate::index::Index), which chooses the gap.

use super::{Range, RangeExtent};
use crate::allocator::{Block, Request};
use crate::error::{AllocError, Cause, FreeError};
use crate::index::{Index, NONE, Slot, SlotState, Slots};

impl<S: Slots, I: Index> Range<S, I> {
    /// Allocates a block by an exact search: fails only if no gap fits, with every strategy.
    ///
    /// Good fit: O(gaps in the bins from the request's size to its size plus alignment).
    ///
    /// # Errors
    /// As for `allocate`.
    pub fn allocate_exact(&mut self, request: Request) -> Result<Block, AllocError> {
        self.place(request, true)
    }

    #[inline]
    pub(super) fn place(&mut self, request: Request, exact: bool) -> Result<Block, AllocError> {
        let placed = self.try_place(request, exact);
        if placed.is_err() {
            self.totals.failed += 1;
        }
        placed
    }

    #[inline]
    fn try_place(&mut self, request: Request, exact: bool) -> Result<Block, AllocError> {
        let Request { bytes, align, .. } = request.validate()?;
        let size = self.granules(bytes).ok_or(AllocError::new(Cause::TooLarge, bytes))?;
        let found = if align >> self.granule <= 1 {
            self.find_away_from_holes(size, |_| true).or_else(|| self.find(size, 0, exact, |_| true)).map(|i| {
                let record = self.slots.slot(i);
                (i, if self.cuts_low(record) { 0 } else { record.gap - size })
            })
        } else {
            self.find_aligned(size, align, exact)
        };
        let Some((i, front)) = found else { return Err(self.error(Cause::OutOfMemory, bytes)) };
        let Some(new) = self.take_slot() else { return Err(self.error(Cause::OutOfSlots, bytes)) };
        Ok(self.cut(i, new, front, size))
    }

    /// The gap that `allocate` would cut for a request, of those for which `usable`, called with the records before and behind it,
    /// returns true; allocates nothing.
    pub(crate) fn choice(&self, request: Request, usable: impl Fn(u32, u32) -> bool) -> Option<RangeExtent> {
        let size = self.granules(request.bytes)?;
        let fits = |record: &Slot| {
            let before = self.slots.slot(record.next).prev;
            usable(before, record.next) && self.lowest_fit(record, size, request.align).is_some()
        };
        let away = if request.align >> self.granule <= 1 { self.find_away_from_holes(size, fits) } else { None };
        away.or_else(|| self.index.find_exact(&self.slots, size, u32::MAX, fits)).and_then(|i| self.gap(i))
    }

    #[inline]
    fn find(&self, size: u32, slack: u32, exact: bool, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        if exact {
            self.index.find_exact(&self.slots, size, slack, fits)
        } else {
            self.index.find(&self.slots, size, slack, fits)
        }
    }

    /// Finds a gap that touches no hole, in a range with holes and for best and first fit. A gap beside a hole can
    /// grow, so it is kept for larger requests. Skips at most two gaps for each hole.
    #[inline]
    fn find_away_from_holes(&self, size: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        if self.holes == NONE || !self.index.cut_low() {
            return None;
        }
        let is_hole = |record: &Slot| record.state() == SlotState::Hole;
        let apart = |record: &Slot| !is_hole(record) && !is_hole(self.slots.slot(record.next)) && fits(record);
        self.index.find(&self.slots, size, u32::MAX, apart)
    }

    /// Finds a gap in which `size` granules fit at an alignment above a granule; returns its record and their offset in it.
    fn find_aligned(&self, size: u32, align: u64, exact: bool) -> Option<(u32, u32)> {
        let slack = u32::try_from((align >> self.granule) - 1).unwrap_or(u32::MAX);
        let i = self.find(size, slack, exact, |record| self.lowest_fit(record, size, align).is_some())?;
        let record = self.slots.slot(i);
        let low = self.lowest_fit(record, size, align)?;
        if self.cuts_low(record) {
            return Some((i, low));
        }
        // The highest aligned start: that of a block that ends where the gap ends, rounded down. It is at or above
        // `low`.
        let high = self.address(record.gap_end() - size) & !(align - 1);
        Some((i, (((high - self.base) >> self.granule) as u32) - record.end))
    }

    /// Whether blocks are cut from the low end of a record's gap. A gap after a hole is cut from its high end with
    /// every strategy: what remains can merge with pages that are mapped in the hole.
    #[inline]
    fn cuts_low(&self, record: &Slot) -> bool {
        self.index.cut_low() && record.state() != SlotState::Hole
    }

    /// Offset in a record's gap, in granules, of the lowest start at `align` where `size` granules fit.
    pub(super) fn lowest_fit(&self, record: &Slot, size: u32, align: u64) -> Option<u32> {
        let address = self.address(record.end);
        let front = (address.checked_next_multiple_of(align)? - address) >> self.granule;
        (front + u64::from(size) <= u64::from(record.gap)).then_some(front as u32)
    }

    /// Makes `size` granules of the gap of record `i`, from offset `front` on, a live block in slot `new`.
    #[inline]
    pub(super) fn cut(&mut self, i: u32, new: u32, front: u32, size: u32) -> Block {
        let place = self.slots.slot(i).end + front;
        self.ticket += self.step;
        let ticket = self.ticket;
        self.insert_record(i, new, front, size, Slot::name_of(SlotState::Live, ticket));
        self.count_allocated(size);
        Block { address: self.address(place), bytes: self.bytes(size), slot: new, region: 0, ticket }
    }

    /// Inserts record `new` of `size` granules into the gap of record `i`, at offset `front`.
    #[inline]
    pub(super) fn insert_record(&mut self, i: u32, new: u32, front: u32, size: u32, name: u64) {
        let slots = &mut self.slots.view();
        let record = slots.slot_mut(i);
        let (start, next, rest) = (record.end, record.next, record.gap - front - size);
        record.next = new;
        slots.slot_mut(next).prev = new;
        let end = start + front + size;
        *slots.slot_mut(new) = Slot { end, gap: 0, prev: i, next, link: [new; 2], name };
        if rest != 0 && front == 0 {
            return self.index.hand_over(slots, i, new, end, rest);
        }
        self.index.update(slots, i, start, front);
        if rest != 0 {
            self.index.update(slots, new, end, rest);
        }
    }

    /// Removes record `i`: its bytes and its gap merge into the gap of the previous record. Needs no slot. Returns the
    /// size of the removed block or hole, in granules.
    #[inline]
    pub(super) fn remove_record(&mut self, i: u32) -> u32 {
        let slots = &mut self.slots.view();
        let record = slots.slot_mut(i);
        let Slot { end, gap, prev, next, .. } = *record;
        record.name = 0;
        record.next = core::mem::replace(&mut self.spare, i);
        self.spares += 1;
        slots.slot_mut(next).prev = prev;
        let before = slots.slot_mut(prev);
        before.next = next;
        let (start, old) = (before.end, before.gap);
        self.index.hand_over(slots, i, prev, start, end + gap - start);
        end - start - old
    }

    /// Size of the block or hole of record `i`, in granules.
    #[inline]
    pub(super) fn size(&self, i: u32) -> u32 {
        let record = self.slots.slot(i);
        record.end - self.slots.slot(record.prev).gap_end()
    }

    /// Frees the live block of record `i`.
    #[inline]
    pub(crate) fn release(&mut self, i: u32) {
        let size = u64::from(self.remove_record(i));
        self.totals.live -= size;
        self.totals.live_blocks -= 1;
    }

    #[inline]
    fn count_allocated(&mut self, size: u32) {
        let t = &mut self.totals;
        t.live += u64::from(size);
        t.allocated += u64::from(size);
        t.peak_live = t.peak_live.max(t.live);
        t.live_blocks += 1;
        t.peak_live_blocks = t.peak_live_blocks.max(t.live_blocks);
    }

    /// Resizes a live block in place: shrinks always, grows if the gap after it is large enough. Needs no slot.
    pub(super) fn resize_in_place(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        let i = self.live(&block).map_err(|_| AllocError::new(Cause::NotLive, bytes))?;
        let bad = AllocError::new(Cause::BadRequest, bytes);
        let size = self.granules(bytes).filter(|&size| size > 0).ok_or(bad)?;
        let (old, record) = (self.size(i), *self.slots.slot(i));
        if size > old && size - old > record.gap {
            return Err(self.error(Cause::NoRoom, bytes));
        }
        let start = record.end - old;
        self.ticket += self.step;
        self.totals.renewals += 1;
        self.slots.slot_mut(i).name = Slot::name_of(SlotState::Live, self.ticket);
        self.index.update(&mut self.slots, i, start + size, old + record.gap - size);
        let t = &mut self.totals;
        t.live = t.live + u64::from(size) - u64::from(old);
        t.peak_live = t.peak_live.max(t.live);
        t.allocated += u64::from(size.saturating_sub(old));
        Ok(Block { bytes: self.bytes(size), ticket: self.ticket, ..block })
    }

    /// Issues a new handle (a new ticket) for a live block; the old handle is stale. O(1).
    ///
    /// # Errors
    /// [`FreeError`] when the block is not live.
    #[inline]
    pub fn rename(&mut self, block: Block) -> Result<Block, FreeError> {
        let i = self.live(&block)?;
        self.ticket += self.step;
        self.totals.renewals += 1;
        let name = Slot::name_of(SlotState::Live, self.ticket);
        let size = self.size(i);
        self.slots.slot_mut(i).name = name;
        Ok(Block { ticket: self.ticket, bytes: self.bytes(size), ..block })
    }

    /// Takes a spare slot, or the first that was never used.
    #[inline]
    pub(super) fn take_slot(&mut self) -> Option<u32> {
        let i = self.spare;
        if i == NONE {
            return self.take_fresh_slot();
        }
        self.spare = self.slots.slot(i).next;
        self.spares -= 1;
        Some(i)
    }

    #[cold]
    fn take_fresh_slot(&mut self) -> Option<u32> {
        let i = self.fresh;
        (i < self.slots.count().min(self.index.room())).then(|| {
            self.fresh += 1;
            i
        })
    }

    /// Adds a slot to the list of spare slots.
    pub(super) fn give_slot(&mut self, i: u32) {
        let slot = self.slots.slot_mut(i);
        slot.name = 0;
        slot.next = core::mem::replace(&mut self.spare, i);
        self.spares += 1;
    }
}
