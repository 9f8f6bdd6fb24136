//! Indexes of free memory: one for each fit strategy.
//!
//! Promises upward: `update` and `find` in the time that the strategy states.
//! Asks from below: the records of blocks and their gaps ([`Slots`]); a record's end and gap must change only through
//! [`Index::update`], or while its gap is 0.
//!
//! ```text
//!            size 24 granules            GoodFit   bins of lists    O(1)      a gap of the first bin whose gaps all fit
//!                 | ceil_bin             BestFit   bins of tries    O(log n)  the smallest gap that fits
//!                 v                      WorstFit  bins of tries    O(log n)  the largest gap
//! bitmap  0 0 1 0 1 1 0 ...              FirstFit  one trie         O(log n)  the lowest address that fits
//!             |   | |
//!             v   v v
//!           list or trie of gaps, linked through their own records
//! ```
//!
//! O(log n) holds for n gaps whose sizes or addresses no adversary chose; a trie never has more levels than its keys have
//! bits: 60 for best and worst fit, 32 for first fit.

mod any;
mod first;
mod good;
mod lent_slots;
mod slot;
mod sorted;
mod trie;

pub use any::{AnyFit, Fit};
pub use first::FirstFit;
pub use good::GoodFit;
pub use lent_slots::{LendError, LentSlots};
#[cfg(feature = "bytemuck")]
pub use slot::SlotBytes;
pub use slot::{MAX_SLOTS, NONE, Slot, SlotState, Slots};
pub use sorted::{BestFit, WorstFit};
pub use trie::Branch;

use crate::error::Violation;

/// A fit strategy: an index of the gaps, which chooses one for each request.
///
/// At alignments up to a granule every strategy is exact (it fails only if no gap is large enough), except [`GoodFit`],
/// of which only [`Index::find_exact`] is exact.
pub trait Index {
    /// Whether blocks are cut from the low end of a gap.
    ///
    /// Best and first fit do, so that the rest of the gap can merge with what is freed after it. Good and worst fit cut
    /// from the high end, so that the gap stays with its record.
    fn cut_low(&self) -> bool;

    /// The number of slots that the index supports: a trie needs a branch for each.
    fn room(&self) -> u32 {
        MAX_SLOTS
    }

    /// Bytes of the index itself, and bytes for each slot.
    fn bytes(&self) -> (u64, u64);

    /// Adds the gap of record `i` to the index; the gap must not be 0.
    fn insert<S: Slots>(&mut self, slots: &mut S, i: u32);

    /// Removes the gap of record `i`, if it has one; end and gap must be those with which it was added.
    fn remove<S: Slots>(&mut self, slots: &mut S, i: u32);

    /// Sets a record's end and gap, and moves the gap in the index accordingly (removes it if `gap` is 0).
    #[inline]
    fn update<S: Slots>(&mut self, slots: &mut S, i: u32, end: u32, gap: u32) {
        self.remove(slots, i);
        let record = slots.slot_mut(i);
        (record.end, record.gap) = (end, gap);
        if gap != 0 {
            self.insert(slots, i);
        }
    }

    /// Transfers the gap of record `from`, if it has one, to record `to`, whose end and gap become `end` and `gap`.
    ///
    /// The new gap must end where that of `from` ended. `from` has no gap afterwards.
    #[inline]
    fn hand_over<S: Slots>(&mut self, slots: &mut S, from: u32, to: u32, end: u32, gap: u32) {
        self.remove(slots, from);
        slots.slot_mut(from).gap = 0;
        self.update(slots, to, end, gap);
    }

    /// Finds the gap that the strategy prefers among those of at least `size` granules that `fits` accepts; returns its
    /// record.
    ///
    /// `fits` tests the alignment. It must accept every gap of `size + slack` granules; `slack` is 0 without alignment.
    fn find<S: Slots>(&self, slots: &S, size: u32, slack: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32>;

    /// Like [`Index::find`], but fails only if no gap fits.
    fn find_exact<S: Slots>(&self, slots: &S, size: u32, slack: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        self.find(slots, size, slack, fits)
    }

    /// The record of the largest gap (of equal gaps, the one at the lowest address).
    fn largest<S: Slots>(&self, slots: &S) -> Option<u32>;

    /// A lower bound of the largest gap in granules, in constant or logarithmic time.
    fn largest_sure<S: Slots>(&self, slots: &S) -> u32 {
        self.largest(slots).map_or(0, |i| slots.slot(i).gap)
    }

    /// Checks every list or trie; returns the number of gaps. O(n).
    ///
    /// # Errors
    /// The first invariant that does not hold.
    fn check<S: Slots>(&self, slots: &S) -> Result<u32, Violation>;
}
