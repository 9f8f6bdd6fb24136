//! Times of events, counted at the least cost.
//!
//! Promises upward: counting a short time is one addition in memory that stays in cache; nothing is lost: long times
//! go to a histogram of three digits, the longest is exact.
//! Asks from below: ticks of a monotonic clock.

use hdrhistogram::{CreationError, Histogram};

/// Latencies below 2^13 ticks, some 3 us, have a counter each: 64 KiB, of which a few lines are used.
const SHORT: usize = 1 << 13;
/// Longest time told apart: 2^40 ticks, some minutes; longer ones count as that long.
const LONG_MAX: u64 = 1 << 40;

/// How often each time was seen.
pub struct TickHistogram {
    /// `short[t]` events took `t` ticks.
    short: Vec<u64>,
    /// All that took longer.
    long: Histogram<u64>,
    longest: u64,
}

impl TickHistogram {
    /// Nothing seen.
    pub fn new() -> Result<Self, CreationError> {
        Ok(Self { short: vec![0; SHORT], long: Histogram::new_with_bounds(1, LONG_MAX, 3)?, longest: 0 })
    }

    /// Counts an event. About 2 ns.
    #[inline]
    pub fn record(&mut self, ticks: u64) {
        self.longest = self.longest.max(ticks);
        match self.short.get_mut(ticks as usize) {
            Some(count) => *count += 1,
            None => self.long.saturating_record(ticks),
        }
    }

    /// All that was seen, and the longest exactly.
    pub fn finish(mut self) -> (Histogram<u64>, u64) {
        for (ticks, count) in (0..).zip(&self.short) {
            self.long.saturating_record_n(ticks, *count);
        }
        (self.long, self.longest)
    }
}
