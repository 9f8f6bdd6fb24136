//! Size classes: powers of two, with 1, 2, 4 or 8 equal steps in an octave (a factor of two).
//!
//! Promises upward: `size(ceil(n)) >= n` and `size(floor(n)) <= n` with the nearest such class; O(1), no division by a
//! variable. With `s` steps in an octave no block wastes more than 1/(s+1) of itself: 1/2 for powers of two, 1/9 for
//! eight.
//! Asks from below: nothing.
//!
//! Class `c` is step `j = c mod s` of octave `k = c div s`; its size is `(s + j) * 2^(min_bits + k) / s`.

use crate::error::{AllocError, Cause};

/// A table of size classes: the smallest size, and the number of steps in an octave.
///
/// # Example
/// ```
/// use terrace_core::pool::SizeClasses;
/// let steps = SizeClasses::new(16, 4)?;
/// let sizes: Vec<_> = (0..6).filter_map(|class| steps.size(class)).collect();
/// assert_eq!(sizes, [16, 20, 24, 28, 32, 40]);
/// assert_eq!(steps.ceil(33), Some(5)); // 40 bytes
/// assert_eq!(steps.floor(33), Some(4)); // 32 bytes
/// # Ok::<(), terrace_core::AllocError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeClasses {
    /// log2 of the smallest size; at least `step_bits`, so that every step is a whole number of bytes.
    min_bits: u32,
    /// log2 of the number of steps in an octave: 0 to 3.
    step_bits: u32,
}

impl SizeClasses {
    /// Size classes from `min_bytes` bytes on, `per_octave` of them to each power of two.
    ///
    /// `per_octave` must be 1, 2, 4 or 8; `min_bytes` must be a power of two, at least `per_octave`.
    ///
    /// # Errors
    /// [`Cause::BadRequest`] when a number is none of these.
    pub const fn new(min_bytes: u64, per_octave: u64) -> Result<Self, AllocError> {
        let steps_fit = per_octave.is_power_of_two() && per_octave <= 8;
        if !steps_fit || !min_bytes.is_power_of_two() || min_bytes < per_octave {
            return Err(AllocError::new(Cause::BadRequest, min_bytes));
        }
        Ok(Self { min_bits: min_bytes.trailing_zeros(), step_bits: per_octave.trailing_zeros() })
    }

    /// The smallest class whose blocks hold `bytes` bytes; `None` when no 64-bit size does.
    #[inline]
    pub const fn ceil(self, bytes: u64) -> Option<u32> {
        let bytes = if bytes < 1 << self.min_bits { 1 << self.min_bits } else { bytes };
        let octave = bytes.ilog2();
        let unit_bits = octave - self.step_bits;
        // The bytes above the power of two, as a number of steps, rounded up.
        let above = bytes - (1 << octave);
        let step = (above >> unit_bits) + (above & ((1 << unit_bits) - 1) != 0) as u64;
        let class = ((octave - self.min_bits) << self.step_bits) + step as u32;
        if class <= self.last() { Some(class) } else { None }
    }

    /// The largest class whose size is at most `bytes`; `None` below the smallest size.
    #[inline]
    pub const fn floor(self, bytes: u64) -> Option<u32> {
        if bytes < 1 << self.min_bits {
            return None;
        }
        let octave = bytes.ilog2();
        let step = (bytes - (1 << octave)) >> (octave - self.step_bits);
        Some(((octave - self.min_bits) << self.step_bits) + step as u32)
    }

    /// Bytes of the blocks of a class; `None` past the last class.
    #[inline]
    pub const fn size(self, class: u32) -> Option<u64> {
        if class > self.last() {
            return None;
        }
        let step = class & ((1 << self.step_bits) - 1);
        let unit_bits = self.min_bits + (class >> self.step_bits) - self.step_bits;
        Some(((1 << self.step_bits) + step as u64) << unit_bits)
    }

    /// The smallest class whose blocks hold `bytes` bytes at an alignment of `align` bytes.
    ///
    /// This is the first class from `ceil(bytes)` on whose size is a multiple of the alignment. At most one octave of
    /// classes is searched, because a power of two at least `align` is among them.
    #[inline]
    pub const fn aligned(self, bytes: u64, align: u64) -> Option<u32> {
        let at_least = if bytes < align { align } else { bytes };
        let Some(mut class) = self.ceil(at_least) else { return None };
        while let Some(size) = self.size(class) {
            if size & (align - 1) == 0 {
                return Some(class);
            }
            class += 1;
        }
        None
    }

    /// The last class whose size a `u64` holds: the top step of octave 63.
    const fn last(self) -> u32 {
        ((64 - self.min_bits) << self.step_bits) - 1
    }
}
