//! Counters that a locked heap keeps, and its statistics.
//!
//! Promises upward: counters cost a few instructions a call and are read in O(1).
//! Asks from below: the core heap's usage, which a walk over its free blocks finds.
//!
//! ```text
//! blocks live             = allocations - frees
//! total                   = tables + live + free             live: whole granules
//! requested              <= live                             requested: the layouts' sizes
//! requested              <= peak                             choose the arena's size by the peak
//! ```

use core::fmt;

use terrace_core::heap::HeapUsage;

/// Counters since the heap was created. Numbers of calls wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct HeapCounters {
    /// Sum of the sizes in the layouts of all live blocks, in bytes.
    pub requested: usize,
    /// The highest value of `requested`.
    pub peak: usize,
    /// Number of blocks allocated.
    pub allocations: usize,
    /// Number of blocks freed.
    pub frees: usize,
    /// Number of requests that failed, after the hook and all retries.
    pub failures: usize,
    /// Number of frees and resizes that the heap refused.
    pub refused: usize,
}

impl HeapCounters {
    /// All counts 0.
    pub const ZERO: Self = Self { requested: 0, peak: 0, allocations: 0, frees: 0, failures: 0, refused: 0 };

    /// Counts an allocation.
    #[inline(always)]
    pub fn allocated(&mut self, bytes: usize) {
        self.allocations = self.allocations.wrapping_add(1);
        self.resized(0, bytes);
    }

    /// Counts a free.
    #[inline(always)]
    pub fn freed(&mut self, bytes: usize) {
        self.frees = self.frees.wrapping_add(1);
        self.requested = self.requested.wrapping_sub(bytes);
    }

    /// Counts a change of a block's size.
    #[inline(always)]
    pub fn resized(&mut self, old: usize, new: usize) {
        self.requested = self.requested.wrapping_sub(old).wrapping_add(new);
        self.peak = self.peak.max(self.requested);
    }
}

/// The lowest memory use seen during one failing request.
///
/// It decides whether a failed request is tried again after a hook ran.
///
/// The request is retried only if memory use fell below this mark, or a region was added. So a hook that allocates and
/// frees blocks of its own does not make the request retry for ever.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct LowWaterMark {
    /// Bytes of live blocks plus the number of live blocks, so that freeing a block of any size lowers the sum.
    held: usize,
    regions: usize,
}

impl LowWaterMark {
    /// The memory use at this moment.
    pub fn new(counters: &HeapCounters, regions: usize) -> Self {
        let live = counters.allocations.wrapping_sub(counters.frees);
        Self { held: counters.requested.wrapping_add(live), regions }
    }

    /// Lowers the mark to `now` if that is lower; returns whether it was, or whether regions were added.
    pub fn lowered(&mut self, now: Self) -> bool {
        let gained = now.held < self.held || now.regions > self.regions;
        *self = Self { held: now.held.min(self.held), regions: now.regions };
        gained
    }
}

/// Statistics of a heap, in bytes unless they count blocks or calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct HeapStats {
    /// Bytes of all regions, without those that alignment cut off at their ends.
    pub total: usize,
    /// Bytes of the regions' tables.
    pub tables: usize,
    /// Bytes of live blocks, in whole granules.
    pub live: usize,
    /// Bytes of free blocks.
    pub free: usize,
    /// Bytes of the largest free block.
    pub largest_free: usize,
    /// Number of free blocks.
    pub free_blocks: usize,
    /// Counters since the heap was created.
    pub counters: HeapCounters,
}

impl HeapStats {
    pub(crate) fn new(usage: HeapUsage, counters: HeapCounters) -> Self {
        let HeapUsage { total, live, free, largest_free, free_blocks, tables } = usage;
        Self { total, tables, live, free, largest_free, free_blocks, counters }
    }
}

impl fmt::Display for HeapStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HeapCounters { requested, peak, allocations, frees, failures, refused } = self.counters;
        write!(f, "{} of {} bytes live ({requested} requested, at most {peak}), ", self.live, self.total)?;
        write!(f, "{} free in {} blocks, the largest {}, ", self.free, self.free_blocks, self.largest_free)?;
        write!(f, "{} in tables; {allocations} allocations, {frees} frees, ", self.tables)?;
        write!(f, "{failures} failures, {refused} refused")
    }
}
