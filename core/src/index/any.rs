//! A fit strategy that is chosen at run time.

use core::ops::DerefMut;

use super::slot::{Slot, Slots};
use super::trie::Branch;
use super::{BestFit, FirstFit, GoodFit, Index, MAX_SLOTS, WorstFit};
use crate::error::Violation;

/// A fit strategy, for [`AnyFit`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "lowercase"))]
pub enum Fit {
    /// [`GoodFit`]: O(1).
    #[default]
    Good,
    /// [`BestFit`]: O(log n), at most 60 levels.
    Best,
    /// [`FirstFit`]: O(log n), at most 32 levels.
    First,
    /// [`WorstFit`]: O(log n), at most 60 levels.
    Worst,
}

impl Fit {
    /// All, in the order of the words of [`STRATEGY`](crate::settings::STRATEGY).
    pub const ALL: [Self; 4] = [Self::Good, Self::Best, Self::First, Self::Worst];
}

/// An index of any strategy, with a branch on the strategy in each call.
///
/// Where the strategy is known at compile time, its own type is faster.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "one index an allocator: the space is not worth an indirection")]
pub enum AnyFit<B> {
    /// Good fit.
    Good(GoodFit),
    /// Best fit.
    Best(BestFit<B>),
    /// First fit.
    First(FirstFit<B>),
    /// Worst fit.
    Worst(WorstFit<B>),
}

impl<B: DerefMut<Target = [Branch]>> AnyFit<B> {
    /// An empty index of a strategy. Every strategy but good fit needs one of `branches` for each slot.
    pub fn new(fit: Fit, branches: B) -> Self {
        match fit {
            Fit::Good => Self::Good(GoodFit::new()),
            Fit::Best => Self::Best(BestFit::new(branches)),
            Fit::First => Self::First(FirstFit::new(branches)),
            Fit::Worst => Self::Worst(WorstFit::new(branches)),
        }
    }
}

/// Calls the method of the variant's strategy.
macro_rules! each {
    ($self:expr, $index:ident => $call:expr) => {
        match $self {
            AnyFit::Good($index) => $call,
            AnyFit::Best($index) => $call,
            AnyFit::First($index) => $call,
            AnyFit::Worst($index) => $call,
        }
    };
}

impl<B: DerefMut<Target = [Branch]>> Index for AnyFit<B> {
    fn cut_low(&self) -> bool {
        each!(self, index => index.cut_low())
    }

    fn room(&self) -> u32 {
        each!(self, index => index.room().min(MAX_SLOTS))
    }

    fn bytes(&self) -> (u64, u64) {
        each!(self, index => index.bytes())
    }

    fn insert<S: Slots>(&mut self, slots: &mut S, i: u32) {
        each!(self, index => index.insert(slots, i));
    }

    fn remove<S: Slots>(&mut self, slots: &mut S, i: u32) {
        each!(self, index => index.remove(slots, i));
    }

    fn update<S: Slots>(&mut self, slots: &mut S, i: u32, end: u32, gap: u32) {
        each!(self, index => index.update(slots, i, end, gap));
    }

    fn hand_over<S: Slots>(&mut self, slots: &mut S, from: u32, to: u32, end: u32, gap: u32) {
        each!(self, index => index.hand_over(slots, from, to, end, gap));
    }

    fn find<S: Slots>(&self, slots: &S, size: u32, slack: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        each!(self, index => index.find(slots, size, slack, fits))
    }

    fn find_exact<S: Slots>(&self, slots: &S, size: u32, slack: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        each!(self, index => index.find_exact(slots, size, slack, fits))
    }

    fn largest<S: Slots>(&self, slots: &S) -> Option<u32> {
        each!(self, index => index.largest(slots))
    }

    fn largest_sure<S: Slots>(&self, slots: &S) -> u32 {
        each!(self, index => index.largest_sure(slots))
    }

    fn check<S: Slots>(&self, slots: &S) -> Result<u32, Violation> {
        each!(self, index => index.check(slots))
    }
}
