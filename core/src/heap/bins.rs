//! Size bins of a heap: one for each small size (*exact* bins), then eight for each power of two.
//!
//! Promises upward: the bin of a size, and the first in which every block is large enough, in constant time.
//! Asks from below: nothing.
//!
//! ```text
//! size  1 2 3 ... 63 | 64..71 72..79 ... 120..127 | 128..143 ... | ...     granules, with 64 exact bins
//! bin   1 2 3 ... 63 |   64     65   ...    71    |    72    ... | ...
//! ```

/// The most bins of one size each that a configuration may have.
const MOST_EXACT: usize = 128;
/// log2 of the number of bins for each power of two above. With 2^3 a bin is at most 12.5 % wide; with 2^2, 2 % less of
/// the memory can be filled.
const SUB_BITS: u32 = 3;
/// Bits of a word of the bitmap.
pub const WORD: usize = usize::BITS as usize;

/// Bits of the largest size in granules: 32, or 28 where addresses have 32 bits and granules 16 bytes.
const BITS: u32 = if usize::BITS < 64 { usize::BITS - 4 } else { u32::BITS };
/// More than the index of any bin.
pub const LISTS: usize = words(BITS, MOST_EXACT) * WORD;

/// Number of words in a bitmap of the bins for sizes of `bits` bits.
///
/// One bit for each exact bin, 8 for each higher power of two, and one that stays 0 for sizes above: with 128 exact bins
/// at most 6 words of 64 bits, or 10 of 32.
pub const fn words(bits: u32, exact: usize) -> usize {
    assert!(exact.is_power_of_two() && exact <= MOST_EXACT && exact >> SUB_BITS > 0);
    let bits = if bits < BITS { bits } else { BITS };
    (exact + (((bits - exact.ilog2()) as usize) << SUB_BITS) + 1).div_ceil(WORD)
}

/// The bin of `size` granules, where the first `exact` bins have one size each.
///
/// The size must not be 0.
#[inline(always)]
pub const fn bin(size: usize, exact: usize) -> usize {
    if size < exact {
        return size;
    }
    let exponent = (size.ilog2() - SUB_BITS) as usize;
    // The mantissa keeps its leading one: it is 8 at each power of two, and the last term subtracts that 8 again.
    (exponent << SUB_BITS) + (size >> exponent) + exact - (((exact.ilog2() - SUB_BITS + 1) as usize) << SUB_BITS)
}

/// The first bin in which every block has at least `size` granules. The size must not be 0.
#[inline(always)]
pub const fn ceil_bin(size: usize, exact: usize) -> usize {
    bin(size - 1, exact) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of exact bins that configurations have.
    const EXACT: [usize; 3] = [32, 64, 128];

    #[test]
    fn bins_rise_with_sizes_and_skip_none() {
        for exact in EXACT {
            let mut last = 0;
            for size in 1..1 << 16 {
                let bin = bin(size, exact);
                assert!(bin == last || bin == last + 1, "{size} in {bin} after {last}");
                assert!(size >= exact || bin == size);
                last = bin;
            }
            assert!(bin((1 << (BITS - 1)) + ((1 << (BITS - 1)) - 1), exact) < LISTS, "and all have a place");
            let most = (1 << (BITS - 1)) + ((1 << (BITS - 1)) - 1);
            assert!(ceil_bin(most, exact) < words(BITS, exact) * WORD, "a request above the largest size has a bit");
        }
    }

    #[test]
    fn a_sure_bin_is_the_first_that_holds_nothing_smaller() {
        for exact in EXACT {
            for size in (1..700).chain((12..17).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1])) {
                let smallest = |of: usize| (size / 2..=2 * size).find(|&s| s > 0 && bin(s, exact) == of);
                let sure = ceil_bin(size, exact);
                assert!(smallest(sure).is_some_and(|s| s >= size), "{size}");
                assert!(size == 1 || smallest(sure - 1).is_some_and(|s| s < size), "{size}: the one below would do");
            }
        }
    }
}
