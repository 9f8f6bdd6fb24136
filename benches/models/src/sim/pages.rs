//! Which pages of a reserved region are mapped: one bit a page.
//!
//! Promises upward: range tests and updates touch one word for 64 pages; the bitmap reaches only as far as a page
//! was ever mapped, so a reservation of 16 TiB costs nothing until it is used.
//! Asks from below: ranges whose end does not pass `u64::MAX`, which the source checks.

/// A growing bitmap. Pages beyond its end are unmapped.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    words: Vec<u64>,
    /// Number of set bits.
    mapped: u64,
}

impl Pages {
    /// Pages mapped in all.
    pub(super) fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Whether every page of `[first, first + count)` is mapped.
    pub(super) fn all(&self, first: u64, count: u64) -> bool {
        masks(first, count).all(|(word, mask)| self.word(word) & mask == mask)
    }

    /// Whether no page of `[first, first + count)` is mapped.
    pub(super) fn none(&self, first: u64, count: u64) -> bool {
        masks(first, count).all(|(word, mask)| self.word(word) & mask == 0)
    }

    /// Marks `[first, first + count)`, all of it unmapped before, as mapped.
    pub(super) fn set(&mut self, first: u64, count: u64) {
        let words = (first + count).div_ceil(64) as usize;
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        for (word, mask) in masks(first, count) {
            self.words[word] |= mask;
        }
        self.mapped += count;
    }

    /// Marks `[first, first + count)`, all of it mapped before, as unmapped.
    pub(super) fn clear(&mut self, first: u64, count: u64) {
        for (word, mask) in masks(first, count) {
            self.words[word] &= !mask;
        }
        self.mapped -= count;
    }

    /// Number of contiguous mapped ranges.
    pub(super) fn ranges(&self) -> u64 {
        // A range starts at each set bit whose lower neighbour is clear.
        let mut below = 0;
        let mut ranges = 0;
        for &word in &self.words {
            ranges += u64::from((word & !(word << 1 | below)).count_ones());
            below = word >> 63;
        }
        ranges
    }

    fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }
}

/// The words that hold bits `[first, first + count)`, each with a mask of those bits.
fn masks(first: u64, count: u64) -> impl Iterator<Item = (usize, u64)> {
    let end = first + count;
    (first / 64..end.div_ceil(64)).map(move |word| {
        let low = first.max(word * 64) - word * 64;
        let high = end.min(word * 64 + 64) - word * 64;
        // 1..=64 bits from `low`: shift an all-ones word down so that the top bit is `high - 1`.
        (word as usize, (u64::MAX >> (64 - (high - low))) << low)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cross_words() {
        let mut pages = Pages::default();
        pages.set(60, 10);
        pages.set(128, 64);
        assert_eq!((pages.ranges(), pages.mapped()), (2, 74));
        assert!(pages.all(60, 10) && !pages.all(59, 2) && !pages.all(60, 11));
        assert!(pages.none(0, 60) && pages.none(70, 58) && !pages.none(69, 2));
        pages.clear(63, 2);
        assert_eq!((pages.ranges(), pages.mapped()), (3, 72));
        pages.set(70, 58);
        assert_eq!(pages.ranges(), 2);
    }
}
