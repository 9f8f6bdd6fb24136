//! Best and worst fit: a trie by size for each bin, so that most searches need a few levels.
//!
//! With alignments above a granule a search skips gaps that are large enough but misaligned: only gaps smaller than the
//! sum of size and alignment, at the cost of another descent for each.

use core::ops::DerefMut;

use super::slot::{NONE, Slot, Slots};
use super::trie::{self, Branch, BySize, Key, Order, Trie};
use super::{Index, MAX_SLOTS};
use crate::bins::{Bitmap, ROOM, floor_bin, place, shared_bits};
use crate::error::{Violation, ensure};

/// The gaps by size, a trie for each bin: [`BestFit`] or [`WorstFit`].
#[derive(Clone, Debug)]
pub struct SizeFit<B, const SMALLEST: bool> {
    branches: B,
    /// Bit `b` is set iff `roots[b]` is not [`NONE`].
    map: Bitmap,
    roots: [u32; ROOM],
}

/// Best fit: the smallest gap that fits; of equal gaps, the lowest.
pub type BestFit<B> = SizeFit<B, true>;

/// Worst fit: the largest gap; of equal gaps, the lowest.
///
/// If the largest gap is misaligned for the request, the smallest gap that fits is used.
pub type WorstFit<B> = SizeFit<B, false>;

/// The key order in the trie of a bin, whose sizes share their first bits.
#[inline]
fn order(bin: u32) -> BySize {
    BySize { shared: shared_bits(bin) }
}

impl<B: DerefMut<Target = [Branch]>, const SMALLEST: bool> SizeFit<B, SMALLEST> {
    /// An empty index over lent branches, one for each slot.
    pub const fn new(branches: B) -> Self {
        Self { branches, map: Bitmap::new(), roots: [NONE; ROOM] }
    }

    /// The record of the gap with the lowest key at or after `from`.
    #[inline]
    fn at_or_after<S: Slots>(&self, slots: &S, from: Key) -> Option<u32> {
        let bin = floor_bin((from >> 32) as u32);
        let found = trie::at_or_after(slots, order(bin), self.roots[place(bin)], from);
        if found != NONE {
            return Some(found);
        }
        let next = self.map.next(bin + 1)?;
        Some(trie::at_or_after(slots, order(next), self.roots[place(next)], 0))
    }

    /// The smallest gap that fits.
    #[inline]
    fn smallest<S: Slots>(&self, slots: &S, size: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        let mut from = Key::from(size) << 32;
        loop {
            let found = self.at_or_after(slots, from)?;
            let record = slots.slot(found);
            if fits(record) {
                return Some(found);
            }
            from = BySize::key(record) + 1;
        }
    }
}

impl<B: DerefMut<Target = [Branch]>, const SMALLEST: bool> Index for SizeFit<B, SMALLEST> {
    fn cut_low(&self) -> bool {
        SMALLEST
    }

    fn room(&self) -> u32 {
        self.branches.len().min(MAX_SLOTS as usize) as u32
    }

    fn bytes(&self) -> (u64, u64) {
        (size_of::<Self>() as u64, size_of::<Branch>() as u64)
    }

    #[inline]
    fn insert<S: Slots>(&mut self, slots: &mut S, i: u32) {
        let bin = floor_bin(slots.slot(i).gap);
        let mut trie = Trie { slots, branches: &mut self.branches, order: order(bin) };
        trie.insert(&mut self.roots[place(bin)], i);
        self.map.set(bin);
    }

    #[inline]
    fn remove<S: Slots>(&mut self, slots: &mut S, i: u32) {
        let bin = floor_bin(slots.slot(i).gap);
        if bin == 0 {
            return;
        }
        let root = &mut self.roots[place(bin)];
        Trie { slots, branches: &mut self.branches, order: order(bin) }.remove(root, i);
        self.map.clear_if(bin, *root == NONE);
        slots.slot_mut(i).link = [i; 2];
    }

    fn find<S: Slots>(&self, slots: &S, size: u32, _: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        if !SMALLEST {
            let largest = self.largest(slots)?;
            let record = slots.slot(largest);
            if record.gap < size {
                return None;
            }
            if fits(record) {
                return Some(largest);
            }
        }
        self.smallest(slots, size, fits)
    }

    fn largest<S: Slots>(&self, slots: &S) -> Option<u32> {
        let bin = self.map.last()?;
        let root = self.roots[place(bin)];
        let gap = slots.slot(trie::last(slots, order(bin), root)).gap;
        Some(trie::at_or_after(slots, order(bin), root, Key::from(gap) << 32))
    }

    fn check<S: Slots>(&self, slots: &S) -> Result<u32, Violation> {
        let mut seen = 0;
        for bin in 0..ROOM as u32 {
            let root = self.roots[place(bin)];
            ensure(self.map.is_set(bin) == (root != NONE), "a bin's bit is set iff it holds something", bin)?;
            if root != NONE {
                ensure(floor_bin(slots.slot(root).gap) == bin, "a gap is in the bin of its size", root)?;
                seen += trie::check(slots, &self.branches, order(bin), (root, NONE), (0, 0))?;
            }
        }
        Ok(seen)
    }
}
