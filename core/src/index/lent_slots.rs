//! Slots lent in several slices.

use super::slot::{Slot, Slots};

/// Maximum number of slices: from a first slice of 2^7 slots, 23 doublings reach 2^30 slots.
const SLICES: usize = 24;

/// Slots in several lent slices: the caller can lend more later, and no slot moves.
///
/// The length of the first slice is a power of two, that of each later slice the sum of all before it, so that counting
/// the leading zeros of `i` finds slot `i`.
///
/// # Example
/// ```
/// use terrace_core::{LentSlots, Slot, Slots};
/// let (mut first, mut second) = ([Slot::EMPTY; 4], [Slot::EMPTY; 4]);
/// let mut lent = LentSlots::new(&mut first)?;
/// lent.lend(&mut second)?;
/// assert_eq!(lent.count(), 8);
/// # Ok::<(), terrace_core::LendError>(())
/// ```
#[derive(Debug)]
pub struct LentSlots<'a> {
    /// Slice 0 has `1 << shift` slots, slice k > 0 has `1 << (shift + k - 1)`; slices not in use are empty.
    slices: [&'a mut [Slot]; SLICES],
    /// log2 of the first slice's length.
    shift: u32,
    /// Number of slices in use, at least 1.
    used: u32,
}

/// A lent slice has the wrong length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LendError {
    /// The expected length; 0 if no more slices can be lent.
    pub expected: usize,
}

impl core::fmt::Display for LendError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the lent slice must have exactly {} slots", self.expected)
    }
}

impl core::error::Error for LendError {}

impl<'a> LentSlots<'a> {
    /// Starts with one slice, its length a power of two (at most 2^30).
    ///
    /// # Errors
    /// [`LendError`] when the length is no such power of two.
    pub fn new(first: &'a mut [Slot]) -> Result<Self, LendError> {
        if !first.len().is_power_of_two() || first.len() > 1 << 30 {
            return Err(LendError { expected: first.len().clamp(1, 1 << 30).next_power_of_two() });
        }
        let shift = first.len().ilog2();
        let mut slices: [&'a mut [Slot]; SLICES] = Default::default();
        slices[0] = first;
        Ok(Self { slices, shift, used: 1 })
    }

    /// Adds a slice of as many slots as have been lent so far, which doubles their number.
    ///
    /// # Errors
    /// [`LendError`] when the slice has another length.
    pub fn lend(&mut self, more: &'a mut [Slot]) -> Result<(), LendError> {
        let expected = self.count() as usize;
        if self.used as usize == SLICES || expected >= 1 << 30 {
            return Err(LendError { expected: 0 });
        }
        if more.len() != expected {
            return Err(LendError { expected });
        }
        self.slices[self.used as usize] = more;
        self.used += 1;
        Ok(())
    }

    /// The slice of slot `i`, and its index there.
    #[inline]
    fn place(&self, i: u32) -> (usize, usize) {
        let high = i >> self.shift;
        if high == 0 {
            return (0, i as usize);
        }
        let k = high.ilog2();
        (k as usize + 1, (i - (1 << (self.shift + k))) as usize)
    }
}

impl<'l> Slots for LentSlots<'l> {
    type View<'a>
        = &'a mut Self
    where
        Self: 'a;

    fn view(&mut self) -> &mut Self {
        self
    }

    fn count(&self) -> u32 {
        1 << (self.shift + self.used - 1)
    }

    #[inline]
    fn slot(&self, i: u32) -> &Slot {
        let (slice, at) = self.place(i);
        &self.slices[slice][at]
    }

    #[inline]
    fn slot_mut(&mut self, i: u32) -> &mut Slot {
        let (slice, at) = self.place(i);
        &mut self.slices[slice][at]
    }
}

/// A view of slots lent in several slices.
impl<'l> Slots for &mut LentSlots<'l> {
    type View<'a>
        = &'a mut LentSlots<'l>
    where
        Self: 'a;

    fn view(&mut self) -> &mut LentSlots<'l> {
        self
    }

    fn count(&self) -> u32 {
        (**self).count()
    }

    #[inline]
    fn slot(&self, i: u32) -> &Slot {
        (**self).slot(i)
    }

    #[inline]
    fn slot_mut(&mut self, i: u32) -> &mut Slot {
        (**self).slot_mut(i)
    }
}
