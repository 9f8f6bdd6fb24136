//! Which memory is free: the engine that allocators of terrace search with, one for each strategy.
//!
//! Promises upward: `update` and `find` in the time that the strategy states; `check` proves the rest.
//! Asks from below: the records ([`Slots`]) of records and their gaps (see [`Slot`]), and that a record's end and
//! gap change only while the gap is 0 or through [`Index::update`].
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
//! O(log n) is what a trie of n gaps has when their sizes or addresses are not chosen to hurt; it never has more levels
//! than the keys have bits: 60 for best and worst fit, 32 for first fit.

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

/// A strategy: how free gaps are kept, and which one a request gets.
///
/// Every strategy is exact at alignments up to a granule (it fails only when no gap is large enough), except
/// [`GoodFit`], which is exact when asked by [`Index::find_exact`].
pub trait Index {
    /// Whether blocks are cut from the low end of a gap. Best and first fit keep what is left in one piece with what
    /// may grow behind it; good and worst fit cut from the high end, which leaves the gap's place in the index alone.
    fn cut_low(&self) -> bool;

    /// How many slots it can serve: tries need a branch for each.
    fn room(&self) -> u32 {
        MAX_SLOTS
    }

    /// Bytes of the index itself, and of what it keeps for each slot.
    fn bytes(&self) -> (u64, u64);

    /// Adds the gap of record `i`, which is not 0.
    fn insert<S: Slots>(&mut self, slots: &mut S, i: u32);

    /// Takes the gap of record `i` out, if it has one; end and gap must be what they were when it went in.
    fn remove<S: Slots>(&mut self, slots: &mut S, i: u32);

    /// Gives a record a new end and gap, and with that its place in the index: none when the gap is 0.
    #[inline]
    fn update<S: Slots>(&mut self, slots: &mut S, i: u32, end: u32, gap: u32) {
        self.remove(slots, i);
        let record = slots.slot_mut(i);
        (record.end, record.gap) = (end, gap);
        if gap != 0 {
            self.insert(slots, i);
        }
    }

    /// The gap of record `from`, if it has one, becomes part of the gap of record `to`, whose end and gap then are
    /// these: what ended with the gap of `from` still ends there. `from` has no gap any more.
    #[inline]
    fn hand_over<S: Slots>(&mut self, slots: &mut S, from: u32, to: u32, end: u32, gap: u32) {
        self.remove(slots, from);
        slots.slot_mut(from).gap = 0;
        self.update(slots, to, end, gap);
    }

    /// The record of a gap of at least `size` granules that `fits` accepts (alignment), as the strategy chooses.
    /// `slack`: how many granules more than `size` a gap needs so that `fits` surely accepts it (0 without alignment).
    fn find<S: Slots>(&self, slots: &S, size: u32, slack: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32>;

    /// Like [`Index::find`], but fails only when no gap fits.
    fn find_exact<S: Slots>(&self, slots: &S, size: u32, slack: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        self.find(slots, size, slack, fits)
    }

    /// The record of the largest gap, the lowest of equals.
    fn largest<S: Slots>(&self, slots: &S) -> Option<u32>;

    /// Granules that a request may surely have now, in constant or logarithmic time: the largest gap, or a bound below.
    fn largest_sure<S: Slots>(&self, slots: &S) -> u32 {
        self.largest(slots).map_or(0, |i| slots.slot(i).gap)
    }

    /// Checks every list or trie; returns how many gaps there are. O(n).
    ///
    /// # Errors
    /// The first clause that does not hold.
    fn check<S: Slots>(&self, slots: &S) -> Result<u32, Violation>;
}
