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
    /// Records of the allocator itself.
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
