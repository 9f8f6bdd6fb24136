//! Vector clocks.
//!
//! Upward: [`Clock::join`] is the least clock that knows all that both know.

use super::Lane;

/// For each stream, how many of its operations are known to be done.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Clock {
    /// Indexed by lane; lanes past the end are known to have done nothing.
    counts: Vec<u64>,
}

impl Clock {
    /// How many operations of this stream are known to be done.
    pub fn of(&self, lane: Lane) -> u64 {
        self.counts.get(lane).copied().unwrap_or(0)
    }

    /// One more operation of this stream; gives its number, from 1 on.
    pub fn tick(&mut self, lane: Lane) -> u64 {
        self.room(lane + 1);
        self.counts[lane] += 1;
        self.counts[lane]
    }

    /// Learns what `other` knows.
    pub fn join(&mut self, other: &Clock) {
        self.room(other.counts.len());
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = (*mine).max(*theirs);
        }
    }

    /// Knows at most so many operations of a stream.
    pub fn limit(&mut self, lane: Lane, count: u64) {
        self.counts.iter_mut().skip(lane).take(1).for_each(|known| *known = (*known).min(count));
    }

    fn room(&mut self, lanes: usize) {
        if self.counts.len() < lanes {
            self.counts.resize(lanes, 0);
        }
    }
}
