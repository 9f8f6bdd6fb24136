//! Free ranges of numbers.
//!
//! Upward: [`Ranges::take`] is next fit: it goes on from where the last range was found, so that an address comes back
//! as late as it can and stale ones are seen. [`Ranges::give`] joins neighbours.

use std::collections::BTreeMap;

/// Ranges by their first number; past their last. They do not touch.
pub struct Ranges {
    free: BTreeMap<u64, u64>,
    /// Where the next search begins.
    cursor: u64,
}

impl Ranges {
    /// Everything from `start` to before `end` is free.
    pub fn new(start: u64, end: u64) -> Ranges {
        Ranges { free: BTreeMap::from([(start, end)]), cursor: start }
    }

    /// Takes `bytes` numbers from a multiple of `align`, a power of two, on; at `hint` if all there are free.
    pub fn take(&mut self, bytes: u64, align: u64, hint: u64) -> Option<u64> {
        let start = self.at_hint(bytes, align, hint).or_else(|| {
            let after = self.free.range(self.cursor..);
            let before = self.free.range(..self.cursor);
            after.chain(before).find_map(|(start, end)| fits(*start, *end, bytes, align))
        })?;
        self.cut(start, start + bytes);
        self.cursor = start + bytes;
        Some(start)
    }

    /// Gives numbers back that were taken.
    pub fn give(&mut self, start: u64, end: u64) {
        let (mut start, mut end) = (start, end);
        if let Some(after) = self.free.remove(&end) {
            end = after;
        }
        if let Some((before, _)) = self.free.range(..start).next_back().filter(|(_, past)| **past == start) {
            start = *before;
        }
        self.free.insert(start, end);
    }

    fn at_hint(&self, bytes: u64, align: u64, hint: u64) -> Option<u64> {
        let (_, end) = self.free.range(..=hint).next_back().filter(|_| hint != 0)?;
        (fits(hint, *end, bytes, align) == Some(hint)).then_some(hint)
    }

    fn cut(&mut self, start: u64, end: u64) {
        let Some((from, past)) = self.free.range(..=start).next_back().map(|(from, past)| (*from, *past)) else {
            return;
        };
        self.free.remove(&from);
        if from < start {
            self.free.insert(from, start);
        }
        if end < past {
            self.free.insert(end, past);
        }
    }
}

/// The first multiple of `align` in a range that has `bytes` behind it.
fn fits(start: u64, end: u64, bytes: u64, align: u64) -> Option<u64> {
    let at = start.checked_next_multiple_of(align.max(1))?;
    (at.checked_add(bytes)? <= end).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    #[test]
    fn what_is_given_back_joins_and_comes_last() {
        let mut ranges = Ranges::new(0, 100);
        assert_eq!(ranges.take(30, 1, 0), Some(0));
        assert_eq!(ranges.take(30, 1, 0), Some(30));
        ranges.give(0, 30);
        assert_eq!(ranges.take(30, 1, 0), Some(60), "next fit");
        assert_eq!(ranges.take(30, 1, 0), Some(0), "from the beginning");
        ranges.give(30, 60);
        ranges.give(0, 30);
        ranges.give(60, 90);
        assert_eq!(ranges.take(100, 1, 0), Some(0), "all of it is one range");
        assert_eq!(ranges.take(1, 1, 0), None);
    }

    #[test]
    fn hints_and_alignments_hold() {
        let mut ranges = Ranges::new(1, 1000);
        assert_eq!(ranges.take(10, 64, 0), Some(64));
        assert_eq!(ranges.take(10, 64, 512), Some(512));
        assert_eq!(ranges.take(10, 64, 512), Some(576), "a hint that is taken gives way");
        assert_eq!(ranges.take(10, 64, 65), Some(640), "so does one that is not aligned");
        assert_eq!(ranges.take(2000, 64, 0), None);
    }
}
