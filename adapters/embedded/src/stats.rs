//! HeapCounters that a locked heap keeps, and the whole picture.
//!
//! Promises upward: counters cost a few instructions a call and are read in O(1).
//! Asks from below: what the heap says it holds, found by walking its free blocks.
//!
//! ```text
//! blocks live             = allocations - frees
//! total                   = tables + live + free             granules included
//! requested              <= live                             what the layouts said
//! requested              <= peak                             size the arena by this one
//! ```

use core::fmt;

use terrace_core::heap::HeapUsage;

/// What was counted since the start. Numbers of calls wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct HeapCounters {
    /// Bytes in live blocks, as their layouts said.
    pub requested: usize,
    /// The most that `requested` ever was.
    pub peak: usize,
    /// Blocks handed out.
    pub allocations: usize,
    /// Blocks taken back.
    pub frees: usize,
    /// Requests that got nothing, in the end.
    pub failures: usize,
    /// Frees and resizes that were refused.
    pub refused: usize,
}

impl HeapCounters {
    /// Nothing was counted.
    pub const ZERO: Self = Self { requested: 0, peak: 0, allocations: 0, frees: 0, failures: 0, refused: 0 };

    /// Counts a block handed out.
    #[inline(always)]
    pub fn allocated(&mut self, bytes: usize) {
        self.allocations = self.allocations.wrapping_add(1);
        self.resized(0, bytes);
    }

    /// Counts a block taken back.
    #[inline(always)]
    pub fn freed(&mut self, bytes: usize) {
        self.frees = self.frees.wrapping_add(1);
        self.requested = self.requested.wrapping_sub(bytes);
    }

    /// Counts a block that has another size now.
    #[inline(always)]
    pub fn resized(&mut self, old: usize, new: usize) {
        self.requested = self.requested.wrapping_sub(old).wrapping_add(new);
        self.peak = self.peak.max(self.requested);
    }
}

/// What decides whether a refused request is tried again after the program's hook: only when more room was made than there
/// ever was during this request. So a hook that takes and frees something of its own is not asked for ever.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct LowWaterMark {
    /// Bytes in live blocks, and one for each.
    held: usize,
    regions: usize,
}

impl LowWaterMark {
    /// Now.
    pub fn new(counters: &HeapCounters, regions: usize) -> Self {
        let live = counters.allocations.wrapping_sub(counters.frees);
        Self { held: counters.requested.wrapping_add(live), regions }
    }

    /// Whether there is more room than before; that is what there was at most, then.
    pub fn lowered(&mut self, now: Self) -> bool {
        let more = now.held < self.held || now.regions > self.regions;
        *self = Self { held: now.held.min(self.held), regions: now.regions };
        more
    }
}

/// What a heap holds, in bytes, and what was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub struct HeapStats {
    /// All regions, as they were given, less what alignment cost at their ends.
    pub total: usize,
    /// In the regions' tables.
    pub tables: usize,
    /// In live blocks, in whole granules.
    pub live: usize,
    /// In free blocks.
    pub free: usize,
    /// The largest free block.
    pub largest_free: usize,
    /// Free blocks.
    pub free_blocks: usize,
    /// What was counted.
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
