//! The statistics of an allocator: a snapshot of its counters.
//!
//! Promises upward: one [`Stats`] with stable keys, the same for a firmware heap and a device pool; ratios are computed
//! from the counters, never stored; one way to a rate, for any statistics ([`TimedStats`]).
//! Asks from below: nothing. The caller reads the clock.

use core::time::Duration;

/// A snapshot of an allocator's counters: plain numbers, in bytes unless stated otherwise.
///
/// The field names are the JSON keys (feature `serde`) and are stable: fields are added, none is renamed.
///
/// Equations, checked by the contract suite:
/// - `in_use <= reserved <= peak_reserved`
/// - `requested <= in_use <= peak_in_use`
/// - `allocations - frees = live_blocks <= peak_live_blocks`
/// - `hits + misses = allocations`
/// - `allocated_bytes - freed_bytes = in_use` (both are 0 where an allocator does not count them)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Stats {
    /// Maximum bytes that the allocator may take from its source, 0 when not limited.
    pub capacity: u64,
    /// Bytes taken from the source and not returned.
    pub reserved: u64,
    /// The maximum of `reserved` so far.
    pub peak_reserved: u64,
    /// Bytes of live blocks, rounding included.
    pub in_use: u64,
    /// The maximum of `in_use` so far.
    pub peak_in_use: u64,
    /// Bytes of live blocks as requested (equal to `in_use` where an allocator does not record the request).
    pub requested: u64,
    /// Bytes in caches and behind pending fences: reusable by one owner, not yet by all.
    pub pooled: u64,
    /// Bytes of the largest block that can be allocated without a call to the source.
    pub largest_free: u64,
    /// Bytes of the allocator's own records; may leave out lent records that were never used.
    pub metadata: u64,
    /// Number of live blocks.
    pub live_blocks: u64,
    /// The maximum of `live_blocks` so far.
    pub peak_live_blocks: u64,
    /// Number of calls that allocated a block.
    pub allocations: u64,
    /// Number of calls that freed a block.
    pub frees: u64,
    /// Bytes of all blocks allocated so far, and by which resizes made blocks larger.
    pub allocated_bytes: u64,
    /// Bytes of all blocks freed so far, and by which resizes made blocks smaller.
    pub freed_bytes: u64,
    /// Number of allocations without a call to the source.
    pub hits: u64,
    /// Number of allocations that needed a call to the source.
    pub misses: u64,
    /// Number of allocations that failed.
    pub failed: u64,
    /// Number of allocations from a fallback (pinned host memory instead of device memory, for example).
    pub fallbacks: u64,
    /// Number of calls that returned regions or pages to the source.
    pub returns: u64,
    /// Number of calls to the source: each map, unmap or move of a contiguous range, each region taken or returned.
    pub source_calls: u64,
    /// Number of handles (of pages or regions) that the source created in all calls.
    pub handles: u64,
}

impl Stats {
    /// Adds the counters of two allocators.
    ///
    /// `capacity` is the sum if both are limited, else 0. Peaks are summed too, which is an upper bound of the peak of
    /// the sum.
    /// `largest_free` is the larger of the two.
    ///
    /// # Example
    /// ```
    /// use terrace_core::Stats;
    /// let (near, far) = (Stats { in_use: 64, ..Stats::default() }, Stats { in_use: 100, ..Stats::default() });
    /// assert_eq!(near.plus(far).in_use, 164);
    /// ```
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let limited = self.capacity != 0 && other.capacity != 0;
        Self {
            capacity: if limited { self.capacity + other.capacity } else { 0 },
            reserved: self.reserved + other.reserved,
            peak_reserved: self.peak_reserved + other.peak_reserved,
            in_use: self.in_use + other.in_use,
            peak_in_use: self.peak_in_use + other.peak_in_use,
            requested: self.requested + other.requested,
            pooled: self.pooled + other.pooled,
            largest_free: self.largest_free.max(other.largest_free),
            metadata: self.metadata + other.metadata,
            live_blocks: self.live_blocks + other.live_blocks,
            peak_live_blocks: self.peak_live_blocks + other.peak_live_blocks,
            allocations: self.allocations + other.allocations,
            frees: self.frees + other.frees,
            allocated_bytes: self.allocated_bytes + other.allocated_bytes,
            freed_bytes: self.freed_bytes + other.freed_bytes,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            failed: self.failed + other.failed,
            fallbacks: self.fallbacks + other.fallbacks,
            returns: self.returns + other.returns,
            source_calls: self.source_calls + other.source_calls,
            handles: self.handles + other.handles,
        }
    }

    /// Adds the cumulative bytes: `allocated` ever, and freed what is no longer in use.
    pub(crate) fn with_bytes(self, allocated: u64) -> Self {
        Self { allocated_bytes: allocated, freed_bytes: allocated - self.in_use, ..self }
    }

    /// Fraction of allocations without a call to the source, 0 to 1 (1 when there were no allocations).
    pub fn hit_rate(&self) -> f64 {
        ratio(self.hits, self.allocations)
    }

    /// Fraction of free memory outside the largest free block, 0 to 1 (0 when nothing is free).
    pub fn fragmentation(&self) -> f64 {
        let free = self.reserved.saturating_sub(self.in_use);
        if free == 0 { 0.0 } else { 1.0 - ratio(self.largest_free.min(free), free) }
    }

    /// Peak bytes in use / peak bytes reserved, 0 to 1 (1 when nothing was reserved).
    pub fn efficiency(&self) -> f64 {
        ratio(self.peak_in_use, self.peak_reserved)
    }

    /// Metadata / reserved bytes (`docs/features.md`, row A6, asks for less than 0.01 over 100 MB).
    pub fn metadata_share(&self) -> f64 {
        if self.reserved == 0 { 0.0 } else { self.metadata as f64 / self.reserved as f64 }
    }
}

/// A snapshot of any statistics, and when the caller took it: two of them give rates.
///
/// # Example
/// ```
/// use core::time::Duration;
/// use terrace_core::Stats;
/// use terrace_core::stats::TimedStats;
/// // `elapsed` is what the caller's clock says, from any moment on that both snapshots share.
/// let before = TimedStats { elapsed: Duration::from_secs(1), stats: Stats { allocations: 10, ..Stats::default() } };
/// let now = TimedStats { elapsed: Duration::from_secs(3), stats: Stats { allocations: 510, ..Stats::default() } };
/// assert_eq!(now.rate_since(&before, |stats| stats.allocations), 250.0);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TimedStats<S = Stats> {
    /// Time from the beginning of a clock to the snapshot.
    pub elapsed: Duration,
    /// The statistics at that time.
    pub stats: S,
}

impl<S> TimedStats<S> {
    /// How fast a number grew since an earlier snapshot, per second; 0 if it fell or no time passed.
    pub fn rate_since(&self, earlier: &Self, number: impl Fn(&S) -> u64) -> f64 {
        rate(number(&earlier.stats), number(&self.stats), self.elapsed.saturating_sub(earlier.elapsed))
    }
}

/// How fast a number grew from `earlier` to `now`, per second; 0 if it fell or no time passed.
pub fn rate(earlier: u64, now: u64, elapsed: Duration) -> f64 {
    let (grown, seconds) = (now.saturating_sub(earlier), elapsed.as_secs_f64());
    if seconds == 0.0 { 0.0 } else { grown as f64 / seconds }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 1.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::Stats;

    #[test]
    fn ratios_are_shares() {
        let stats = Stats {
            reserved: 1000,
            in_use: 600,
            largest_free: 100,
            peak_reserved: 2000,
            peak_in_use: 500,
            allocations: 8,
            hits: 6,
            metadata: 5,
            ..Stats::default()
        };
        assert_eq!((stats.hit_rate(), stats.fragmentation()), (0.75, 0.75));
        assert_eq!((stats.efficiency(), stats.metadata_share()), (0.25, 0.005));
        // `largest_free` above the free bytes (400) counts as 400.
        assert_eq!(Stats { largest_free: 900, ..stats }.fragmentation(), 0.0);
        let none = Stats::default();
        assert_eq!(
            (none.hit_rate(), none.fragmentation(), none.efficiency(), none.metadata_share()),
            (1.0, 0.0, 1.0, 0.0)
        );
    }

    /// Statistics whose counters are all different from each other.
    fn counters(first: u64) -> Stats {
        let n = |at: u64| first + 1000 * at;
        Stats {
            capacity: n(0),
            reserved: n(1),
            peak_reserved: n(2),
            in_use: n(3),
            peak_in_use: n(4),
            requested: n(5),
            pooled: n(6),
            largest_free: n(7),
            metadata: n(8),
            live_blocks: n(9),
            peak_live_blocks: n(10),
            allocations: n(11),
            frees: n(12),
            hits: n(13),
            misses: n(14),
            failed: n(15),
            fallbacks: n(16),
            returns: n(17),
            source_calls: n(18),
            handles: n(19),
            allocated_bytes: n(20),
            freed_bytes: n(21),
        }
    }

    #[test]
    fn a_sum_adds_each_counter_to_its_own() {
        // Counter `n` is 7 + 1000 n in one and 12 + 1000 n in the other, so 19 + 2000 n in the sum.
        let sum = counters(7).plus(counters(12));
        let double = |at: u64| 19 + 2000 * at;
        let head =
            [sum.capacity, sum.reserved, sum.peak_reserved, sum.in_use, sum.peak_in_use, sum.requested, sum.pooled];
        assert_eq!(head, [0, 1, 2, 3, 4, 5, 6].map(double));
        assert_eq!(sum.largest_free, 7012, "free blocks do not grow together");
        let middle = [sum.metadata, sum.live_blocks, sum.peak_live_blocks, sum.allocations, sum.frees, sum.hits];
        assert_eq!(middle, [8, 9, 10, 11, 12, 13].map(double));
        let tail = [sum.misses, sum.failed, sum.fallbacks, sum.returns, sum.source_calls, sum.handles];
        assert_eq!(tail, [14, 15, 16, 17, 18, 19].map(double));
        assert_eq!([sum.allocated_bytes, sum.freed_bytes], [20, 21].map(double));
    }

    #[test]
    fn a_sum_is_limited_if_both_are() {
        let [none, some] = [0, 4096].map(|capacity| Stats { capacity, ..Stats::default() });
        assert_eq!(some.plus(some).capacity, 8192);
        assert_eq!((some.plus(none).capacity, none.plus(some).capacity), (0, 0));
    }
}
