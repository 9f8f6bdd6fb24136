//! Size bins, and a bitmap of the bins that are not empty.
//!
//! Promises upward: finds the bin of a size, and the first bin at or above a given one that is not empty, in constant
//! time and a few instructions.
//! Asks from below: nothing.
//!
//! Sizes are in granules. Below [`SUB`] granules every size has a bin of its own; above, each power of two is divided
//! into [`SUB`] equal bins (a float with [`SUB_BITS`] bits of mantissa; the classes of TLSF, Masmano et al. 2004):
//!
//! ```text
//! size   1 2 3 ... 7 | 8 9 ... 15 | 16 18 20 ... 30 | 32 36 ... 60 | ...
//! bin    1 2 3 ... 7 | 8 9 ... 15 | 16 17 18 ... 23 | 24 25 ... 31 | ...
//! ```

/// Bits of mantissa: a bin is at most 1/2^3 = 12.5 % wide.
pub const SUB_BITS: u32 = 3;
/// Number of bins for each power of two: 2^3.
pub const SUB: u32 = 1 << SUB_BITS;
/// Number of bins for all `u32` sizes.
///
/// One for each size below 8, then 8 for each of the 32 - 3 exponents above.
pub const BINS: usize = ((32 - SUB_BITS + 1) * SUB) as usize;

/// The bin that contains `size` (granules); bin 0 contains only size 0. Branch-free.
#[inline]
pub const fn floor_bin(size: u32) -> u32 {
    let exponent = (size | SUB).ilog2() - SUB_BITS;
    // The mantissa keeps its leading one, which carries into the next row of bins.
    (exponent << SUB_BITS) + (size >> exponent)
}

/// The first bin in which every block is at least `size` (granules). May be `BINS` (no such bin).
#[inline]
pub const fn ceil_bin(size: u32) -> u32 {
    let exponent = (size | SUB).ilog2() - SUB_BITS;
    let below = (1u32 << exponent) - 1;
    (exponent << SUB_BITS) + (size >> exponent) + (size & below != 0) as u32
}

/// Smallest size (granules) in a bin: the inverse of [`floor_bin`]. `bin` must be below [`BINS`].
pub const fn bin_start(bin: u32) -> u32 {
    if bin < SUB {
        return bin;
    }
    let exponent = (bin >> SUB_BITS) - 1;
    ((bin & (SUB - 1)) + SUB) << exponent
}

/// Number of leading bits of a `u32` that all sizes of a bin share.
#[inline]
pub const fn shared_bits(bin: u32) -> u32 {
    let exponent = (bin >> SUB_BITS).saturating_sub(1);
    u32::BITS - exponent
}

/// Length of a table of all bins, rounded up to a power of two.
///
/// There are 240 bins; an index of 8 bits needs no bounds check in an array of 256.
pub const ROOM: usize = BINS.next_power_of_two();
/// Number of words in the bitmap: 256 / 64.
const WORDS: usize = ROOM / 64;

/// The index of a bin in an array of [`ROOM`], without a bounds check.
#[inline]
pub const fn place(bin: u32) -> usize {
    bin as usize % ROOM
}

/// One bit for each bin: set iff the bin is not empty.
#[derive(Clone, Debug)]
pub struct Bitmap {
    /// Bit `b % 64` of word `b / 64` is set iff bin `b` is not empty.
    words: [u64; WORDS],
}

impl Bitmap {
    /// A bitmap in which all bins are empty.
    pub const fn new() -> Self {
        Self { words: [0; WORDS] }
    }

    /// Marks a bin as not empty.
    #[inline]
    pub fn set(&mut self, bin: u32) {
        self.set_if(bin, true);
    }

    /// Marks a bin as empty.
    #[inline]
    pub fn clear(&mut self, bin: u32) {
        self.clear_if(bin, true);
    }

    /// Marks a bin as not empty if `really`. Branch-free.
    #[inline]
    pub fn set_if(&mut self, bin: u32, really: bool) {
        self.words[place(bin) / 64] |= u64::from(really) << (bin % 64);
    }

    /// Marks a bin as empty if `really`. Branch-free.
    #[inline]
    pub fn clear_if(&mut self, bin: u32, really: bool) {
        self.words[place(bin) / 64] &= !(u64::from(really) << (bin % 64));
    }

    /// Whether a bin is marked as not empty.
    #[inline]
    pub fn is_set(&self, bin: u32) -> bool {
        self.words[place(bin) / 64] >> (bin % 64) & 1 != 0
    }

    /// The first bin at or above `from` (at most [`BINS`]) that is not empty. Reads at most 4 words.
    #[inline]
    pub fn next(&self, from: u32) -> Option<u32> {
        let mut word = place(from) / 64;
        let mut bits = self.words[word] & (!0u64 << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.words.get(word)?;
        }
        Some(word as u32 * 64 + bits.trailing_zeros())
    }

    /// The last bin that is not empty.
    pub fn last(&self) -> Option<u32> {
        let word = self.words.iter().rposition(|&bits| bits != 0)?;
        Some(word as u32 * 64 + 63 - self.words[word].leading_zeros())
    }
}

impl Default for Bitmap {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All sizes below 4096, the three sizes around each larger power of two, and the two largest.
    fn sizes() -> impl Iterator<Item = u32> {
        (1..4096).chain((12..32).flat_map(|p| [(1u32 << p) - 1, 1 << p, (1 << p) + 1])).chain([u32::MAX - 1, u32::MAX])
    }

    #[test]
    fn floor_bin_holds_its_size() {
        for size in sizes() {
            let bin = floor_bin(size);
            assert!(bin_start(bin) <= size);
            assert!(bin as usize == BINS - 1 || bin_start(bin + 1) > size, "{size} in {bin}");
        }
    }

    #[test]
    fn ceil_bin_is_the_first_that_always_fits() {
        for size in sizes() {
            let bin = ceil_bin(size);
            assert!(bin as usize == BINS || bin_start(bin) >= size);
            assert!(bin_start(bin - 1) < size, "{size}: bin {} would do", bin - 1);
        }
    }

    #[test]
    fn bins_are_at_most_an_eighth_wide() {
        for bin in SUB..BINS as u32 - 1 {
            assert!((bin_start(bin + 1) - bin_start(bin)) * SUB <= bin_start(bin));
        }
    }

    #[test]
    fn sizes_of_a_bin_share_their_first_bits_and_no_more() {
        for size in sizes() {
            let bin = floor_bin(size);
            let below = u32::MAX.checked_shr(shared_bits(bin)).unwrap_or(0);
            assert_eq!(size & !below, bin_start(bin), "{size}");
        }
    }

    #[test]
    fn bitmap_finds_next_and_last_like_a_list() {
        let mut map = Bitmap::new();
        let set = [0, 5, 63, 64, 130, BINS as u32 - 1];
        set.iter().for_each(|&bin| map.set(bin));
        for from in 0..BINS as u32 {
            assert_eq!(map.next(from), set.iter().copied().find(|&bin| bin >= from));
        }
        assert_eq!((map.next(BINS as u32), map.last()), (None, Some(BINS as u32 - 1)));
        set.iter().for_each(|&bin| map.clear(bin));
        assert_eq!((map.next(0), map.last(), map.is_set(64)), (None, None, false));
    }
}
