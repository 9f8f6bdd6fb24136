//! Ranges of elements that the host wrote and that are not yet copied to the device.
//!
//! Promises upward: every element inserted is covered; ranges are sorted and disjoint, do not touch, and are at most
//! [`MOST`]. The gap between two ranges that were merged is covered too: its elements are copied needlessly, never
//! wrongly.
//! Asks from below: nothing.

/// Largest number of ranges. Each is copied on its own, and in the fixed cost of a copy (5 to 10 microseconds) a bus of
/// 12 to 25 GB/s moves 64 to 256 KiB: instead of many small copies, one larger copy is as fast.
pub(super) const MOST: usize = 16;

/// Disjoint ranges of element indices, each as (first, one past the last).
#[derive(Debug, Default)]
pub(super) struct Ranges {
    list: Vec<(usize, usize)>,
}

impl Ranges {
    /// Adds the elements `from..to`.
    pub(super) fn insert(&mut self, from: usize, to: usize) {
        // The ranges that overlap or touch `from..to` are consecutive in the list: `first..past`.
        let first = self.list.partition_point(|range| range.1 < from);
        let past = self.list.partition_point(|range| range.0 <= to);
        match self.list.get(first..past) {
            _ if from >= to => {}
            Some([one]) if one.0 <= from && to <= one.1 => {}
            Some([low, .., high]) => _ = self.list.splice(first..past, [(from.min(low.0), to.max(high.1))]),
            Some([one]) => self.list[first] = (from.min(one.0), to.max(one.1)),
            _ => self.list.insert(first, (from, to)),
        }
        if self.list.len() > MOST {
            self.merge_nearest();
        }
    }

    /// Merges the two neighbouring ranges with the fewest elements between them.
    fn merge_nearest(&mut self) {
        let gap = |at: &usize| self.list[at + 1].0 - self.list[*at].1;
        if let Some(at) = (0..self.list.len().saturating_sub(1)).min_by_key(gap) {
            self.list[at].1 = self.list[at + 1].1;
            self.list.remove(at + 1);
        }
    }

    /// All ranges, sorted.
    pub(super) fn list(&self) -> &[(usize, usize)] {
        &self.list
    }

    /// Removes all ranges.
    pub(super) fn clear(&mut self) {
        self.list.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST, Ranges};

    #[test]
    fn what_overlaps_or_touches_is_one_range() {
        let mut ranges = Ranges::default();
        for (from, to) in [(10, 20), (30, 40), (20, 25), (50, 50), (38, 45), (31, 32), (0, 1)] {
            ranges.insert(from, to);
        }
        assert_eq!(ranges.list(), [(0, 1), (10, 25), (30, 45)]);
        ranges.insert(1, 30);
        assert_eq!(ranges.list(), [(0, 45)]);
    }

    #[test]
    fn one_too_many_merges_the_two_that_are_nearest() {
        let mut ranges = Ranges::default();
        (0..MOST).for_each(|i| ranges.insert(i * 100, i * 100 + 10));
        ranges.insert(555, 560);
        let list = ranges.list();
        assert_eq!((list.len(), list[5], list[6]), (MOST, (500, 510), (555, 610)), "a gap of 40, beside 45 and 90");
    }

    /// Compares with one bit per element: every inserted element is covered, and no other one while ranges are few.
    #[test]
    fn every_element_inserted_is_covered() {
        const LEN: usize = 400;
        let mut state = 1u64;
        let mut below = |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        };
        for round in 0..300 {
            let (mut ranges, mut written) = (Ranges::default(), [false; LEN]);
            let count = 1 + round % 40;
            for _ in 0..count {
                let from = below(LEN);
                let to = (from + below(12)).min(LEN);
                ranges.insert(from, to);
                written[from..to].fill(true);
                let list = ranges.list();
                assert!(list.len() <= MOST && list.iter().all(|range| range.0 < range.1));
                assert!(list.windows(2).all(|pair| pair[0].1 < pair[1].0), "{list:?}");
            }
            let mut covered = [false; LEN];
            ranges.list().iter().for_each(|&(from, to)| covered[from..to].fill(true));
            assert!((0..LEN).all(|at| covered[at] || !written[at]), "an element was forgotten");
            assert!(count > MOST || covered == written, "an element nobody wrote is covered");
        }
    }
}
