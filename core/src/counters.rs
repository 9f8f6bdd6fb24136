//! Counters that many threads write and any thread reads, without a lock.
//!
//! Promises upward: each event costs at most five atomic operations; [`snapshot`](Counters::snapshot) is a [`Stats`]
//! whose equations hold even while other threads count. Peaks are exact: an addition returns the old value, so the
//! thread that reaches a level passes it to `fetch_max`.
//! Asks from below: `sync`.
//!
//! Counters are `usize`. On 32-bit targets they count modulo 2^32: levels (bytes in use, for example) are right as long as
//! the level itself is below 4 GiB; totals (hits, for example) wrap.
//!
//! Invariants at rest (no thread is inside a counting call), checked by [`check`](Counters::check):
//! - `in_use <= peak_in_use`, `reserved <= peak_reserved`, `live <= peak_live`
//! - `hits + misses >= live` (allocations and frees are derived: allocations are hits plus misses, frees are
//!   allocations less live blocks; so the two equations of [`Stats`] between them hold by construction)

use crate::error::{Violation, ensure};
use crate::stats::Stats;
use crate::sync::{AtomicUsize, Ordering};

/// The counters of one allocator or pool. All methods take `&self`.
///
/// # Example
/// ```
/// use terrace_core::Counters;
/// let counters = Counters::new();
/// counters.reserved(4096);
/// counters.allocated(256, true);
/// counters.allocated(512, false);
/// counters.freed(256);
/// let stats = counters.snapshot();
/// assert_eq!((stats.in_use, stats.peak_in_use, stats.live_blocks), (512, 768, 1));
/// assert_eq!(stats.hit_rate(), 0.5);
/// ```
#[derive(Debug)]
pub struct Counters {
    /// Bytes taken from the source and not returned ("allocated" in the terms of device pools).
    reserved: AtomicUsize,
    /// The largest value `reserved` ever had.
    peak_reserved: AtomicUsize,
    /// Bytes in live blocks.
    in_use: AtomicUsize,
    /// The largest value `in_use` ever had.
    peak_in_use: AtomicUsize,
    /// Bytes of freed blocks in caches.
    pooled: AtomicUsize,
    /// Number of live blocks.
    live: AtomicUsize,
    /// The largest value `live` ever had.
    peak_live: AtomicUsize,
    /// Number of allocations without a call to the source.
    hits: AtomicUsize,
    /// Number of allocations with a call to the source.
    misses: AtomicUsize,
    /// Number of allocations that failed.
    failed: AtomicUsize,
    /// Number of allocations that a fallback served.
    fallbacks: AtomicUsize,
    /// Number of calls that returned memory to the source.
    returns: AtomicUsize,
}

impl Default for Counters {
    fn default() -> Self {
        Self::new()
    }
}

/// Relaxed suffices: no other memory is published by the counters.
const RELAXED: Ordering = Ordering::Relaxed;

impl Counters {
    /// Counters that are all zero.
    ///
    /// Const, so that counters can be statics (not under loom, whose atomics are made at run time).
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            reserved: AtomicUsize::new(0),
            peak_reserved: AtomicUsize::new(0),
            in_use: AtomicUsize::new(0),
            peak_in_use: AtomicUsize::new(0),
            pooled: AtomicUsize::new(0),
            live: AtomicUsize::new(0),
            peak_live: AtomicUsize::new(0),
            hits: AtomicUsize::new(0),
            misses: AtomicUsize::new(0),
            failed: AtomicUsize::new(0),
            fallbacks: AtomicUsize::new(0),
            returns: AtomicUsize::new(0),
        }
    }

    /// Counters that are all zero.
    #[cfg(loom)]
    pub fn new() -> Self {
        let zero = || AtomicUsize::new(0);
        let (reserved, peak_reserved, in_use, peak_in_use) = (zero(), zero(), zero(), zero());
        let (pooled, live, peak_live, hits) = (zero(), zero(), zero(), zero());
        let (misses, failed, fallbacks, returns) = (zero(), zero(), zero(), zero());
        Self {
            reserved,
            peak_reserved,
            in_use,
            peak_in_use,
            pooled,
            live,
            peak_live,
            hits,
            misses,
            failed,
            fallbacks,
            returns,
        }
    }

    /// Counts an allocation of `bytes` bytes; `hit` if the source was not called.
    pub fn allocated(&self, bytes: u64, hit: bool) {
        // The hit or miss is counted before the live block, so a reader that sees the live block sees its hit or miss
        // too.
        if hit { &self.hits } else { &self.misses }.fetch_add(1, RELAXED);
        raise(&self.live, &self.peak_live, 1);
        raise(&self.in_use, &self.peak_in_use, bytes as usize);
    }

    /// Counts a free of `bytes` bytes.
    pub fn freed(&self, bytes: u64) {
        self.in_use.fetch_sub(bytes as usize, RELAXED);
        self.live.fetch_sub(1, RELAXED);
    }

    /// Counts a resize in place, from `old` to `new` bytes.
    pub fn resized(&self, old: u64, new: u64) {
        // Wrapping: adding a difference modulo 2^N lowers the counter where the difference is negative.
        let change = (new as usize).wrapping_sub(old as usize);
        let now = self.in_use.fetch_add(change, RELAXED).wrapping_add(change);
        self.peak_in_use.fetch_max(now, RELAXED);
    }

    /// Counts a failed allocation.
    pub fn failed(&self) {
        self.failed.fetch_add(1, RELAXED);
    }

    /// Counts an allocation that a fallback served (in addition to [`allocated`](Self::allocated)).
    pub fn fell_back(&self) {
        self.fallbacks.fetch_add(1, RELAXED);
    }

    /// Counts `bytes` bytes taken from the source.
    pub fn reserved(&self, bytes: u64) {
        raise(&self.reserved, &self.peak_reserved, bytes as usize);
    }

    /// Counts a change of reserved memory from `old` to `new` bytes (a buffer that its user has resized).
    pub fn resized_reserve(&self, old: u64, new: u64) {
        let change = (new as usize).wrapping_sub(old as usize);
        let now = self.reserved.fetch_add(change, RELAXED).wrapping_add(change);
        self.peak_reserved.fetch_max(now, RELAXED);
    }

    /// Counts `bytes` bytes returned to the source, in one call.
    pub fn returned(&self, bytes: u64) {
        self.reserved.fetch_sub(bytes as usize, RELAXED);
        self.returns.fetch_add(1, RELAXED);
    }

    /// Counts `bytes` bytes put into a cache.
    pub fn pooled(&self, bytes: u64) {
        self.pooled.fetch_add(bytes as usize, RELAXED);
    }

    /// Counts `bytes` bytes removed from a cache.
    pub fn unpooled(&self, bytes: u64) {
        self.pooled.fetch_sub(bytes as usize, RELAXED);
    }

    /// Reads all counters.
    ///
    /// Each value was current at some moment of the call. `in_use <= peak_in_use`,
    /// `allocations - frees = live_blocks <= peak_live_blocks` and `hits + misses = allocations` hold at any time;
    /// `in_use <= reserved` holds while no other thread counts.
    pub fn snapshot(&self) -> Stats {
        // Reads `live` first, with Acquire: a thread counts the hit or miss of a block before it counts the block live.
        let live = self.live.load(Ordering::Acquire) as u64;
        let (hits, misses) = (self.hits.load(RELAXED) as u64, self.misses.load(RELAXED) as u64);
        let allocations = (hits + misses).max(live);
        let in_use = self.in_use.load(RELAXED) as u64;
        let reserved = self.reserved.load(RELAXED) as u64;
        Stats {
            reserved,
            peak_reserved: (self.peak_reserved.load(RELAXED) as u64).max(reserved),
            in_use,
            peak_in_use: (self.peak_in_use.load(RELAXED) as u64).max(in_use),
            requested: in_use,
            pooled: self.pooled.load(RELAXED) as u64,
            live_blocks: live,
            peak_live_blocks: (self.peak_live.load(RELAXED) as u64).max(live),
            allocations,
            frees: allocations - live,
            hits: allocations - misses.min(allocations),
            misses: misses.min(allocations),
            failed: self.failed.load(RELAXED) as u64,
            fallbacks: self.fallbacks.load(RELAXED) as u64,
            returns: self.returns.load(RELAXED) as u64,
            ..Stats::default()
        }
    }

    /// Checks the invariants at rest. O(1).
    ///
    /// # Errors
    /// The invariant that is broken.
    pub fn check(&self) -> Result<(), Violation> {
        let level = |counter: &AtomicUsize| counter.load(RELAXED);
        let (live, in_use) = (level(&self.live), level(&self.in_use));
        ensure(in_use <= level(&self.peak_in_use), "counters: in_use <= peak_in_use", in_use)?;
        ensure(live <= level(&self.peak_live), "counters: live <= peak_live", live)?;
        let reserved = level(&self.reserved);
        ensure(reserved <= level(&self.peak_reserved), "counters: reserved <= peak_reserved", reserved)?;
        let served = level(&self.hits).wrapping_add(level(&self.misses));
        ensure(served >= live, "counters: hits + misses >= live", live)
    }
}

/// Adds to a level and raises its peak to the level reached. Release pairs with the Acquire of `snapshot`.
fn raise(level: &AtomicUsize, peak: &AtomicUsize, by: usize) {
    let now = level.fetch_add(by, Ordering::Release).wrapping_add(by);
    // Peaks only rise: in the common case a load suffices.
    if peak.load(RELAXED) < now {
        peak.fetch_max(now, RELAXED);
    }
}
