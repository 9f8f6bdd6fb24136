//! Sizes to lists: one list for each small size, then eight for each power of two.
//!
//! Promises upward: size to bin, and the next bin that is not empty, in constant time.
//! Asks from below: nothing.
//!
//! ```text
//! 64-bit   size  1 2 3 ... 63 | 64..71 72..79 ... 120..127 | 128..143 ... | ...     granules
//!          bin   1 2 3 ... 63 |   64     65   ...    71    |    72    ... | ...
//! ```

/// Bins for one size each (bin 0 stays empty): as many as a word of the map has bits, so that one shift finds the next.
pub const EXACT: usize = usize::BITS as usize;
/// log2 of the bins for each power of two above: 2^3, a bin is at most 12.5 % wide.
const SUB_BITS: u32 = 3;
/// Words of the map that are used: one for the exact bins; then 8 bins for each of the exponents from log2(EXACT) to 31,
/// which is 4 words of 64 bits or 7 of 32.
const USED: usize = 1 + (((u32::BITS - EXACT.ilog2()) as usize) << SUB_BITS).div_ceil(EXACT);
/// Words of the map: a power of two, so that no bin needs a bounds check.
const WORDS: usize = USED.next_power_of_two();

/// The bin of a size, which is not 0.
#[inline(always)]
pub const fn bin(size: usize) -> usize {
    if size < EXACT {
        return size;
    }
    let exponent = (size.ilog2() - SUB_BITS) as usize;
    // The mantissa keeps its leading one: 8 for the first of each power, which the last term takes off again.
    (exponent << SUB_BITS) + (size >> exponent) + EXACT - (((EXACT.ilog2() - SUB_BITS + 1) as usize) << SUB_BITS)
}

/// The first bin in which every block has at least this size, which is not 0.
#[inline(always)]
pub const fn sure_bin(size: usize) -> usize {
    bin(size - 1) + 1
}

/// Which bins hold something. Bin 0 never does.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// Bit `b % EXACT` of word `b / EXACT` is set iff bin b holds something.
    words: [usize; WORDS],
}

impl Map {
    pub const EMPTY: Self = Self { words: [0; WORDS] };

    #[inline(always)]
    fn place(bin: usize) -> usize {
        bin / EXACT % WORDS
    }

    #[inline(always)]
    pub fn has(&self, bin: usize) -> bool {
        self.words[Self::place(bin)] >> (bin % EXACT) & 1 != 0
    }

    #[inline(always)]
    pub fn set(&mut self, bin: usize) {
        self.words[Self::place(bin)] |= 1 << (bin % EXACT);
    }

    #[inline(always)]
    pub fn clear(&mut self, bin: usize) {
        self.words[Self::place(bin)] &= !(1 << (bin % EXACT));
    }

    /// The first bin at or above `from`, which has a place, that holds something; 0 for none. At most 5 words are read, or 8
    /// of 32 bits.
    #[inline(always)]
    pub fn next(&self, from: usize) -> usize {
        let mut word = Self::place(from);
        let mut bits = self.words[word] >> (from % EXACT) << (from % EXACT);
        while bits == 0 {
            word += 1;
            if word >= USED {
                return 0;
            }
            bits = self.words[word];
        }
        word * EXACT + bits.trailing_zeros() as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_rise_with_sizes_and_skip_none() {
        let mut last = 0;
        for size in 1..1 << 16 {
            let bin = bin(size);
            assert!(bin == last || bin == last + 1, "{size} in {bin} after {last}");
            assert!(size >= EXACT || bin == size);
            last = bin;
        }
        assert!(bin(u32::MAX as usize) < USED * EXACT, "and all have a place");
    }

    #[test]
    fn a_sure_bin_is_the_first_that_holds_nothing_smaller() {
        for size in (1..700).chain((12..17).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1])) {
            let smallest = |of: usize| (size / 2..=2 * size).find(|&s| s > 0 && bin(s) == of);
            assert!(smallest(sure_bin(size)).is_some_and(|s| s >= size), "{size}");
            assert!(
                size == 1 || smallest(sure_bin(size) - 1).is_some_and(|s| s < size),
                "{size}: the one below would do"
            );
        }
    }

    #[test]
    fn the_map_finds_the_next_bin_like_a_list() {
        let set = [1, 5, EXACT - 1, EXACT, EXACT + 70, USED * EXACT - 1];
        let mut map = Map::EMPTY;
        set.iter().for_each(|&bin| map.set(bin));
        for from in 0..USED * EXACT {
            assert_eq!(map.next(from), set.iter().copied().find(|&bin| bin >= from).unwrap_or(0), "{from}");
            assert_eq!(map.has(from), set.contains(&from));
        }
        set.iter().for_each(|&bin| map.clear(bin));
        assert_eq!(map.next(0), 0);
    }
}
