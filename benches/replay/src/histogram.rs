//! A histogram of events' latencies that costs little to record.
//!
//! Promises upward: a short latency is recorded by one addition in memory that stays in cache. Long ones go to a
//! histogram of three significant digits; the longest is kept exactly.
//! Asks from below: ticks of a monotonic clock.

use hdrhistogram::{CreationError, Histogram};

/// Each latency below 2^13 ticks, some 3 us, has a counter of its own: 64 KiB, of which a few cache lines are in use.
const SHORT: usize = 1 << 13;
/// The longest latency that is distinguished: 2^40 ticks, some minutes. Longer ones saturate.
const LONG_MAX: u64 = 1 << 40;

/// A histogram of latencies in ticks.
pub struct TickHistogram {
    /// `short[t]` events took `t` ticks.
    short: Vec<u64>,
    /// Counts of latencies from `SHORT` ticks on.
    long: Histogram<u64>,
    longest: u64,
}

impl TickHistogram {
    /// An empty histogram.
    pub fn new() -> Result<Self, CreationError> {
        Ok(Self { short: vec![0; SHORT], long: Histogram::new_with_bounds(1, LONG_MAX, 3)?, longest: 0 })
    }

    /// Records a latency. About 2 ns.
    #[inline]
    pub fn record(&mut self, ticks: u64) {
        self.longest = self.longest.max(ticks);
        match self.short.get_mut(ticks as usize) {
            Some(count) => *count += 1,
            None => self.long.saturating_record(ticks),
        }
    }

    /// All latencies in one histogram, and the exact maximum.
    pub fn finish(mut self) -> (Histogram<u64>, u64) {
        for (ticks, count) in (0..).zip(&self.short) {
            self.long.saturating_record_n(ticks, *count);
        }
        (self.long, self.longest)
    }
}
