//! What every model counts, and the [`Stats`] made of it.
//!
//! Promises upward: the equations of [`Stats`] hold at every moment.
//! Asks from below: each call is counted once, by the model.

use terrace_core::error::ensure;
use terrace_core::{SourceUsage, Stats, Violation};

/// Counters of one model.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// Bytes of live blocks, rounding and padding included. At most the source's `reserved`.
    pub in_use: u64,
    peak_in_use: u64,
    /// Bytes of live blocks as asked for. At most `in_use`.
    pub requested: u64,
    /// `allocations - frees`.
    pub live: u64,
    peak_live: u64,
    allocations: u64,
    frees: u64,
    /// Allocations served without the source; the others are misses.
    hits: u64,
    /// Allocations refused.
    pub failed: u64,
    /// Calls that gave memory back to the source.
    pub returns: u64,
}

impl Counters {
    /// A block of `bytes` went out for a request of `requested` bytes.
    pub(crate) fn handed_out(&mut self, bytes: u64, requested: u64, hit: bool) {
        self.allocations += 1;
        self.hits += u64::from(hit);
        self.live += 1;
        self.peak_live = self.peak_live.max(self.live);
        self.in_use += bytes;
        self.peak_in_use = self.peak_in_use.max(self.in_use);
        self.requested += requested;
    }

    /// That block came back.
    pub(crate) fn taken_back(&mut self, bytes: u64, requested: u64) {
        self.frees += 1;
        self.live -= 1;
        self.in_use -= bytes;
        self.requested -= requested;
    }

    /// All but `pooled`, `largest_free` and `metadata`, which only the model knows.
    pub(crate) fn stats(&self, usage: SourceUsage) -> Stats {
        Stats {
            capacity: usage.capacity,
            reserved: usage.reserved,
            peak_reserved: usage.peak_reserved,
            in_use: self.in_use,
            peak_in_use: self.peak_in_use,
            requested: self.requested,
            live_blocks: self.live,
            peak_live_blocks: self.peak_live,
            allocations: self.allocations,
            frees: self.frees,
            hits: self.hits,
            misses: self.allocations - self.hits,
            failed: self.failed,
            returns: self.returns,
            source_calls: usage.calls,
            handles: usage.handles,
            ..Stats::default()
        }
    }

    /// Compares with sums over the records: live blocks, their bytes and the bytes asked for.
    pub(crate) fn check(&self, live: u64, in_use: u64, requested: u64) -> Result<(), Violation> {
        ensure(self.live == live && self.live == self.allocations - self.frees, "live counts the live records", live)?;
        ensure(self.in_use == in_use, "in_use is the bytes of the live records", in_use)?;
        ensure(self.requested == requested, "requested is the bytes asked for by the live records", requested)?;
        ensure(self.requested <= self.in_use, "requested is at most in_use", self.requested)?;
        ensure(self.hits <= self.allocations, "hits are allocations", self.hits)
    }
}
