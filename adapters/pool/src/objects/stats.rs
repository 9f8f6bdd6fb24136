//! The counters of an object pool.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a pool did since it was made, and what it holds now: plain numbers of calls and objects.
///
/// `gets = front_hits + shared_hits + steals + made_for_gets`, where the last is not kept; a get that fails counts nowhere
/// but in its reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ObjectStats {
    /// Gets served by an object that the thread had kept to itself.
    pub front_hits: u64,
    /// Gets served by an idle object that all threads share.
    pub shared_hits: u64,
    /// Gets served by an object from another thread's front.
    pub steals: u64,
    /// Objects that the factory made.
    pub made: u64,
    /// Calls of the factory that returned an error, panicked, or made an object that the validation refused.
    pub failed: u64,
    /// Idle objects that the validation refused.
    pub invalid: u64,
    /// Returned objects that were dropped because the reset panicked.
    pub reset_panics: u64,
    /// Idle objects dropped as the least recently used of more than `keep`.
    pub evicted: u64,
    /// Idle objects dropped because no get took them for the retention time.
    pub expired: u64,
    /// Objects that users kept for themselves or discarded.
    pub detached: u64,
    /// Calls that found all objects out and did not wait.
    pub exhausted: u64,
    /// Objects that exist, those that are being made included.
    pub existing: u32,
    /// Of these, objects that are idle.
    pub idle: u32,
    /// Most objects that may exist.
    pub most: u32,
    /// Calls that wait now.
    pub waiting: usize,
}

impl ObjectStats {
    /// Objects that are out, or being made.
    pub fn in_use(&self) -> u32 {
        self.existing.saturating_sub(self.idle)
    }

    /// Gets that needed no new object.
    pub fn hits(&self) -> u64 {
        self.front_hits + self.shared_hits + self.steals
    }

    /// The part of successful gets that needed no new object, from 0 to 1; 0 before the first get.
    pub fn hit_rate(&self) -> f64 {
        let all = self.hits() + self.made;
        if all == 0 { 0.0 } else { self.hits() as f64 / all as f64 }
    }
}

/// The counters that all threads write, off the fast path.
#[derive(Debug, Default)]
pub struct ObjectCounters {
    pub shared_hits: AtomicU64,
    pub steals: AtomicU64,
    pub made: AtomicU64,
    pub failed: AtomicU64,
    pub invalid: AtomicU64,
    pub reset_panics: AtomicU64,
    pub evicted: AtomicU64,
    pub expired: AtomicU64,
    pub detached: AtomicU64,
    pub exhausted: AtomicU64,
}

/// Adds one to a counter.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl ObjectCounters {
    /// The counters as of now, without those of fronts and places.
    pub fn snapshot(&self) -> ObjectStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ObjectStats {
            shared_hits: read(&self.shared_hits),
            steals: read(&self.steals),
            made: read(&self.made),
            failed: read(&self.failed),
            invalid: read(&self.invalid),
            reset_panics: read(&self.reset_panics),
            evicted: read(&self.evicted),
            expired: read(&self.expired),
            detached: read(&self.detached),
            exhausted: read(&self.exhausted),
            ..ObjectStats::default()
        }
    }
}
