//! Holes: address space that gets memory under it, and loses it again.
//!
//! Promises upward: any stretch inside a hole can become free, any stretch inside a gap a hole; holes that touch
//! become one.
//! Asks from below: the caller (an arena) does the mapping with its source.

use super::{Range, RegionId};
use crate::allocator::Block;
use crate::error::{AllocError, Cause};
use crate::index::{Index, NONE, Slot, Slots, State};

/// What a stretch of a region is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Memory that could be handed out.
    Free,
    /// A block that was handed out.
    Live,
    /// No memory under it.
    Hole,
}

/// A stretch of a region as it is now; valid until the range changes. Addresses and sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub bytes: u64,
    /// What it is.
    pub use_: Use,
    /// The post that stands here; of free memory, the post in front.
    pub(crate) post: u32,
}

impl Extent {
    /// The address after the last.
    pub const fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

impl<S: Slots, I: Index> Range<S, I> {
    /// The gap behind a post.
    pub(crate) fn gap(&self, i: u32) -> Option<Extent> {
        let post = self.slots.slot(i);
        let (start, bytes) = (self.address(post.end), self.bytes(post.gap));
        (post.gap > 0).then_some(Extent { start, bytes, use_: Use::Free, post: i })
    }

    /// What stands at post `i`; `None` for a region's own.
    pub(crate) fn standing(&self, i: u32) -> Option<Extent> {
        let post = self.slots.slot(i);
        let use_ = match post.state() {
            State::Live => Use::Live,
            State::Hole => Use::Hole,
            State::Region | State::Spare => return None,
        };
        let size = self.size(i);
        Some(Extent { start: self.address(post.end - size), bytes: self.bytes(size), use_, post: i })
    }

    /// All holes, the youngest first.
    pub fn holes(&self) -> impl Iterator<Item = Extent> {
        let mut at = self.holes;
        core::iter::from_fn(move || {
            let hole = if at == NONE { None } else { self.standing(at) }?;
            at = self.slots.slot(at).hole_links()[1];
            Some(hole)
        })
    }

    /// All regions, the youngest first.
    pub fn regions(&self) -> impl Iterator<Item = RegionId> {
        let known = |i: u32| (i != NONE).then_some(RegionId(i));
        core::iter::successors(known(self.regions), move |region| known(self.slots.slot(region.0).value() as u32))
    }

    /// Everything in a region by address: blocks, gaps and holes.
    pub fn extents(&self, region: RegionId) -> impl Iterator<Item = Extent> {
        let mut at = Some(region.0);
        core::iter::from_fn(move || {
            let post = at?;
            let next = self.slots.slot(post).next;
            at = (next != region.0).then_some(next);
            Some([self.standing(post), self.gap(post)])
        })
        .flatten()
        .flatten()
    }

    /// What comes behind an extent in its region.
    pub fn behind(&self, extent: &Extent) -> Option<Extent> {
        let gap = if extent.use_ == Use::Free { None } else { self.gap(extent.post) };
        gap.or_else(|| self.standing(self.slots.slot(extent.post).next))
    }

    /// What comes before an extent in its region.
    pub fn before(&self, extent: &Extent) -> Option<Extent> {
        if extent.use_ == Use::Free {
            return self.standing(extent.post);
        }
        let prev = self.slots.slot(extent.post).prev;
        self.gap(prev).or_else(|| self.standing(prev))
    }

    /// The posts before and behind post `i`.
    pub(crate) fn beside(&self, i: u32) -> [u32; 2] {
        let post = self.slots.slot(i);
        [post.prev, post.next]
    }

    /// The largest free stretch. O(log n); good fit: O(gaps in the last bin).
    pub fn largest_free(&self) -> Option<Extent> {
        self.index.largest(&self.slots).and_then(|i| self.gap(i))
    }

    /// A free stretch of at least `bytes` bytes, as the strategy chooses, without taking it.
    pub fn find_free(&self, bytes: u64) -> Option<Extent> {
        let size = self.granules(bytes)?.max(1);
        self.index.find_exact(&self.slots, size, 0, |_| true).and_then(|i| self.gap(i))
    }

    /// The lowest place for `bytes` bytes at an alignment in a free stretch outside `[avoid.0, avoid.1)` that the
    /// strategy chooses, without taking it. Exact: `None` only when there is no such place.
    pub fn find_place(&self, bytes: u64, align: u64, avoid: (u64, u64)) -> Option<(Extent, u64)> {
        let size = self.granules(bytes)?.max(1);
        let outside = |post: &Slot| self.address(post.gap_end()) <= avoid.0 || self.address(post.end) >= avoid.1;
        let fits = |post: &Slot| outside(post) && self.lowest(post, size, align).is_some();
        // Unbounded slack: no gap is sure to be outside, whatever its size.
        let i = self.index.find_exact(&self.slots, size, u32::MAX, fits)?;
        let post = self.slots.slot(i);
        let front = self.lowest(post, size, align)?;
        Some((self.gap(i)?, self.address(post.end + front)))
    }

    /// Gaps and holes behind a post, up to the next live block or the region's end.
    pub(crate) fn vacancy(&self, post: u32) -> impl Iterator<Item = Extent> {
        let first = self.gap(post).or_else(|| self.standing(self.slots.slot(post).next));
        let unused = |extent: &Extent| extent.use_ != Use::Live;
        core::iter::successors(first.filter(unused), move |extent| self.behind(extent).filter(unused))
    }

    /// The posts in front of every vacancy that has a hole in it.
    pub(crate) fn anchors(&self) -> impl Iterator<Item = u32> {
        let prev = |hole: Extent| self.slots.slot(hole.post).prev;
        self.holes().map(prev).filter(|&i| self.slots.slot(i).state() != State::Hole)
    }

    /// Says that `bytes` bytes at `start` in a hole have memory now: they become free.
    ///
    /// # Errors
    /// [`Cause::BadRequest`] when the stretch is not inside the hole; [`Cause::OutOfSlots`].
    pub fn back(&mut self, hole: &Extent, start: u64, bytes: u64) -> Result<(), AllocError> {
        let (front, size) = self.stretch(hole, start, bytes, Use::Hole)?;
        let i = hole.post;
        let whole = self.size(i);
        let Slot { end, gap, .. } = *self.slots.slot(i);
        let rest = whole - front - size;
        if front > 0 && rest > 0 && self.slots_left() == 0 {
            return Err(AllocError::new(Cause::OutOfSlots, bytes));
        }
        self.totals.holes -= u64::from(size);
        self.backed_more(size);
        match (front, rest) {
            (0, 0) => self.uproot_hole(i),
            // The hole starts later: the gap before it grows.
            (0, _) => {
                let prev = self.slots.slot(i).prev;
                let Slot { end, gap, .. } = *self.slots.slot(prev);
                self.index.update(&mut self.slots, prev, end, gap + size);
            }
            // It ends earlier: its own gap grows; the rest, if any, becomes a hole behind that.
            (_, _) => {
                self.index.update(&mut self.slots, i, end - size - rest, gap + size + rest);
                self.plant_hole(i, size, rest);
            }
        }
        Ok(())
    }

    /// Says that `bytes` bytes at `start` in a gap have lost their memory: they become a hole.
    ///
    /// # Errors
    /// [`Cause::BadRequest`] when the stretch is not inside the gap; [`Cause::OutOfSlots`].
    pub fn strip(&mut self, free: &Extent, start: u64, bytes: u64) -> Result<(), AllocError> {
        let (front, size) = self.stretch(free, start, bytes, Use::Free)?;
        let i = free.post;
        let Slot { end, gap, next, .. } = *self.slots.slot(i);
        let rest = gap - front - size;
        let joins_front = front == 0 && self.slots.slot(i).state() == State::Hole;
        let joins_rest = rest == 0 && self.slots.slot(next).state() == State::Hole;
        if !joins_front && !joins_rest && self.slots_left() == 0 {
            return Err(AllocError::new(Cause::OutOfSlots, bytes));
        }
        self.totals.backed -= u64::from(size);
        self.totals.holes += u64::from(size);
        if joins_rest {
            // The hole behind starts earlier.
            self.index.update(&mut self.slots, i, end, front);
            if joins_front {
                // Nothing is left between two holes: the one in front goes, and the one behind covers both.
                self.forget_hole(i);
                self.unlink(i);
            }
        } else if joins_front {
            self.index.update(&mut self.slots, i, end + size, rest);
        } else {
            self.plant_hole(i, front, size);
        }
        Ok(())
    }

    /// Hands out `bytes` bytes at `start` in a free stretch, and nowhere else.
    ///
    /// # Errors
    /// [`Cause::BadRequest`] when the stretch is not inside the gap; [`Cause::OutOfSlots`].
    pub fn claim(&mut self, free: &Extent, start: u64, bytes: u64) -> Result<Block, AllocError> {
        let (front, size) = self.stretch(free, start, bytes, Use::Free)?;
        let new = self.take_slot().ok_or(AllocError::new(Cause::OutOfSlots, bytes))?;
        Ok(self.cut(free.post, new, front, size))
    }

    /// Granules into `of`, and granules, of a stretch that must lie inside it.
    fn stretch(&self, of: &Extent, start: u64, bytes: u64, use_: Use) -> Result<(u32, u32), AllocError> {
        let bad = AllocError::new(Cause::BadRequest, bytes);
        let now = match use_ {
            _ if of.post >= self.fresh => None,
            Use::Free => self.gap(of.post),
            Use::Hole | Use::Live => self.standing(of.post),
        };
        let now = now.filter(|now| now.use_ == use_).ok_or(bad)?;
        let mask = (1u64 << self.granule) - 1;
        let end = start.checked_add(bytes).ok_or(bad)?;
        if bytes == 0 || (start.wrapping_sub(self.base) | bytes) & mask != 0 || start < now.start || end > now.end() {
            return Err(bad);
        }
        Ok((((start - now.start) >> self.granule) as u32, (bytes >> self.granule) as u32))
    }

    /// Makes `size` granules of the gap of post `i`, `front` into it, a hole. Nothing when `size` is 0.
    fn plant_hole(&mut self, i: u32, front: u32, size: u32) {
        if size == 0 {
            return;
        }
        let Some(new) = self.take_slot() else { return };
        self.plant(i, new, front, size, Slot::name_of(State::Hole, 0));
        let head = self.holes;
        self.slots.slot_mut(new).set_hole_links([NONE, head]);
        if head != NONE {
            let [_, after] = self.slots.slot(head).hole_links();
            self.slots.slot_mut(head).set_hole_links([new, after]);
        }
        self.holes = new;
    }

    /// A hole becomes free memory.
    fn uproot_hole(&mut self, i: u32) {
        self.forget_hole(i);
        self.uproot(i);
    }

    /// A hole of a region that goes: it becomes free memory, uncounted.
    pub(super) fn drop_hole(&mut self, i: u32) {
        let size = u64::from(self.size(i));
        self.totals.holes -= size;
        self.totals.backed += size;
        self.uproot_hole(i);
    }

    /// Takes post `i`, whose gap is 0, out of its ring; what stood there belongs to the post behind.
    fn unlink(&mut self, i: u32) {
        let Slot { prev, next, .. } = *self.slots.slot(i);
        self.slots.slot_mut(prev).next = next;
        self.slots.slot_mut(next).prev = prev;
        self.give_slot(i);
    }

    /// Takes a hole out of the list of holes.
    fn forget_hole(&mut self, i: u32) {
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
