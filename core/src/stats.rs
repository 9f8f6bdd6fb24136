//! Counters: one record for every allocator, read without a lock.
//!
//! Promises upward: one [`Stats`] with stable keys, the same for a heap on a board and a pool on a GPU; ratios
//! are derived, never stored.
//! Asks from below: nothing.

/// What an allocator did and holds. A snapshot: plain numbers, all bytes unless named otherwise.
///
/// The names are the JSON keys (feature `serde`) and are stable: new ones are added, none is renamed.
///
/// Equations, checked by the contract suite:
/// - `in_use <= reserved <= peak_reserved`
/// - `requested <= in_use <= peak_in_use`
/// - `allocations - frees = live_blocks <= peak_live_blocks`
/// - `hits + misses = allocations`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Stats {
    /// The most it may hold, 0 when not limited.
    pub capacity: u64,
    /// Taken from the source now.
    pub reserved: u64,
    /// The most ever taken from the source at once.
    pub peak_reserved: u64,
    /// In live blocks, rounding included.
    pub in_use: u64,
    /// The most ever in live blocks.
    pub peak_in_use: u64,
    /// In live blocks, as asked for (equal to `in_use` where the request is not kept).
    pub requested: u64,
    /// In caches and pending fences: free for some owner, not yet for all.
    pub pooled: u64,
    /// The largest block that could be handed out without asking the source.
    pub largest_free: u64,
    /// Records of the allocator itself: those that were ever used, of what was lent to it.
    pub metadata: u64,
    /// Blocks handed out now.
    pub live_blocks: u64,
    /// The most blocks ever handed out at once.
    pub peak_live_blocks: u64,
    /// Calls that handed out a block.
    pub allocations: u64,
    /// Calls that took one back.
    pub frees: u64,
    /// Allocations served without asking the source.
    pub hits: u64,
    /// Allocations that had to ask the source.
    pub misses: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Allocations that went to a second choice (the host instead of the device, say).
    pub fallbacks: u64,
    /// Regions or pages given back to the source, counted in calls.
    pub returns: u64,
    /// Calls made to the source: one map, unmap or move of a contiguous range, one take or give-back.
    pub source_calls: u64,
    /// Handles (pages or regions) the source made for those calls.
    pub handles: u64,
}

impl Stats {
    /// The counters of two allocators as those of one.
    ///
    /// `capacity` is the sum if both are limited, else 0: none. Peaks are sums too, an upper bound of what both had at
    /// once; `largest_free` is the larger one.
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
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            failed: self.failed + other.failed,
            fallbacks: self.fallbacks + other.fallbacks,
            returns: self.returns + other.returns,
            source_calls: self.source_calls + other.source_calls,
            handles: self.handles + other.handles,
        }
    }

    /// Share of allocations served without asking the source, 0 to 1 (1 when there were none).
    pub fn hit_rate(&self) -> f64 {
        ratio(self.hits, self.allocations)
    }

    /// Share of free memory that the largest free block does not cover, 0 to 1 (0 when nothing is free).
    pub fn fragmentation(&self) -> f64 {
        let free = self.reserved.saturating_sub(self.in_use);
        if free == 0 { 0.0 } else { 1.0 - ratio(self.largest_free.min(free), free) }
    }

    /// Peak bytes in use / peak bytes reserved, 0 to 1 (1 when nothing was reserved).
    pub fn efficiency(&self) -> f64 {
        ratio(self.peak_in_use, self.peak_reserved)
    }

    /// Metadata / reserved bytes (row A6 asks for less than 0.01 over 100 MB).
    pub fn metadata_share(&self) -> f64 {
        if self.reserved == 0 { 0.0 } else { self.metadata as f64 / self.reserved as f64 }
    }
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
        // A source may give more than it says: what is free bounds what one block covers.
        assert_eq!(Stats { largest_free: 900, ..stats }.fragmentation(), 0.0);
        let none = Stats::default();
        assert_eq!(
            (none.hit_rate(), none.fragmentation(), none.efficiency(), none.metadata_share()),
            (1.0, 0.0, 1.0, 0.0)
        );
    }

    /// All counters different from each other.
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
        }
    }

    #[test]
    fn a_sum_adds_each_counter_to_its_own() {
        // 7 + 1000 n and 12 + 1000 n: their sum is 19 + 2000 n, which is what counters of twice the steps hold.
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
    }

    #[test]
    fn a_sum_is_limited_if_both_are() {
        let [none, some] = [0, 4096].map(|capacity| Stats { capacity, ..Stats::default() });
        assert_eq!(some.plus(some).capacity, 8192);
        assert_eq!((some.plus(none).capacity, none.plus(some).capacity), (0, 0));
    }
}
