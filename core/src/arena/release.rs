//! Returns unused memory to the source: all of it, or down to a number of bytes.
//!
//! Promises upward: reserved bytes go no lower than the caller says; what is live, cached or pending stays.
//! Asks from below: whole handles or segments that the source takes back.

use super::Arena;
use super::storage::ArenaStorage;
use crate::fence::Fence;
use crate::source::Source;

impl<S: Source, F: Fence, M: ArenaStorage> Arena<S, F, M> {
    /// Bytes taken from the source and not returned.
    pub fn reserved(&self) -> u64 {
        self.source.usage().reserved
    }

    /// Bytes that callers hold.
    pub fn in_use(&self) -> u64 {
        self.counters.in_use
    }

    /// Whether freed blocks wait for their owners' fences.
    pub fn is_waiting(&self) -> bool {
        self.pending.iter().any(|queue| queue.first().is_some())
    }

    /// As [`trim`](crate::Allocator::trim), but keeps at least `keep` bytes reserved, if so many are.
    pub fn trim_to(&mut self, keep: u64) -> u64 {
        self.wait_for_fences();
        let given = self.release(keep);
        (self.counters.recent_peak, self.counters.past_calls) = (self.counters.in_use, self.source.usage().calls);
        given
    }

    /// Returns unused memory to the source, as far as `keep` bytes stay reserved; returns its bytes.
    ///
    /// Empties no cache, and waits for no fence. O(extents), and a call to the source for each gap or segment that goes.
    pub fn release(&mut self, keep: u64) -> u64 {
        let before = self.reserved();
        if self.space.is_some() {
            self.trim_pages(keep);
        } else {
            self.trim_segments(keep);
        }
        before - self.reserved()
    }

    /// Ends a window of time, and begins the next; returns the peak of bytes in use in the one that ended.
    ///
    /// What was reserved beyond that was not needed in that time. What is taken ahead from now on is judged by it, as after a trim.
    pub fn begin_window(&mut self) -> u64 {
        let needed = core::mem::replace(&mut self.counters.window_peak, self.counters.in_use);
        (self.counters.recent_peak, self.counters.past_calls) = (needed, self.source.usage().calls);
        needed
    }
}
