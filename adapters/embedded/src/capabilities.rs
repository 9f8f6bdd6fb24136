//! What the memory of a region can do, as bits.
//!
//! Promises upward: plain values. No bit has an effect of its own: a request compares them with those of each region.
//! Asks from below: nothing.

use core::ops::{BitOr, BitOrAssign};

/// What the memory of a region can do, or what a request needs.
///
/// A request is a list of these: the first entry is the wish, the others are fallbacks. An entry fits each region that has
/// all of its bits, so [`MemoryCaps::ANY`] fits every region.
///
/// # Example
/// ```
/// use terrace_embedded::MemoryCaps;
///
/// /// Memory that keeps its bytes while the processor sleeps: a bit of this program's own.
/// const RETAINED: MemoryCaps = MemoryCaps::user::<0>();
/// let region = MemoryCaps::INTERNAL | MemoryCaps::DMA | RETAINED;
/// assert!(region.contains(MemoryCaps::DMA) && region.contains(MemoryCaps::ANY));
/// assert!(!region.contains(MemoryCaps::DMA | MemoryCaps::EXTERNAL));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct MemoryCaps(u32);

/// The first of the bits that programs define.
const FIRST_USER: u32 = 8;

impl MemoryCaps {
    /// No bit: what a request has that any region serves, and a region that was added without capabilities.
    pub const ANY: Self = Self(0);
    /// On the chip.
    pub const INTERNAL: Self = Self(1);
    /// Outside the chip, as PSRAM: larger and slower.
    ///
    /// On some chips atomic operations do not work there.
    pub const EXTERNAL: Self = Self(1 << 1);
    /// Reached by the DMA controllers.
    pub const DMA: Self = Self(1 << 2);

    /// A bit that the program defines.
    ///
    /// `N` is 0 to 23; any other number does not compile.
    ///
    /// ```
    /// use terrace_embedded::MemoryCaps;
    /// assert_ne!(MemoryCaps::user::<0>(), MemoryCaps::user::<23>());
    /// ```
    ///
    /// ```compile_fail
    /// terrace_embedded::MemoryCaps::user::<24>();
    /// ```
    pub const fn user<const N: u32>() -> Self {
        const { assert!(N < u32::BITS - FIRST_USER, "programs have bits 0 to 23") };
        Self(1 << (FIRST_USER + N))
    }

    /// The capabilities with these bits.
    ///
    /// Bits 0 to 2 are the constants above, those from bit 8 on are the program's.
    ///
    /// ```
    /// use terrace_embedded::MemoryCaps;
    /// assert_eq!(MemoryCaps::from_bits(1 << 8 | 1), MemoryCaps::user::<0>() | MemoryCaps::INTERNAL);
    /// ```
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits.
    ///
    /// ```
    /// assert_eq!(terrace_embedded::MemoryCaps::DMA.bits(), 4);
    /// ```
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all bits of `other` are among these.
    ///
    /// ```
    /// use terrace_embedded::MemoryCaps;
    /// assert!((MemoryCaps::DMA | MemoryCaps::INTERNAL).contains(MemoryCaps::DMA));
    /// assert!(!MemoryCaps::DMA.contains(MemoryCaps::DMA | MemoryCaps::INTERNAL));
    /// ```
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// All bits of both, in a constant; elsewhere `|` does the same.
    ///
    /// ```
    /// use terrace_embedded::MemoryCaps;
    /// const FAST: MemoryCaps = MemoryCaps::DMA.union(MemoryCaps::INTERNAL);
    /// assert_eq!(FAST, MemoryCaps::DMA | MemoryCaps::INTERNAL);
    /// ```
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOr for MemoryCaps {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.union(other)
    }
}

impl BitOrAssign for MemoryCaps {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.union(other);
    }
}
