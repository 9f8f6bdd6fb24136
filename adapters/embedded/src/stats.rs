//! Counters that a locked heap keeps, and its statistics.
//!
//! Promises upward: counters cost a few instructions a call and are read in O(1).
//! Asks from below: the core heap's usage, which a walk over its free blocks finds.
//!
//! ```text
//! blocks live             = allocations - frees
//! total                   = tables + live + free             live: whole granules
//! requested              <= live <= peak_live                requested: the layouts' sizes
//! requested              <= peak <= peak_live                choose the arena's size by peak_live
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
    /// Sum of the sizes of all live blocks in whole granules, in bytes: with the bytes that name their tasks.
    pub live: usize,
    /// The highest value of `live`: with tables and fragmentation, what an arena must hold.
    pub peak_live: usize,
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
    pub const ZERO: Self =
        Self { requested: 0, peak: 0, live: 0, peak_live: 0, allocations: 0, frees: 0, failures: 0, refused: 0 };

    /// Counts an allocation of `bytes` bytes, `held` in whole granules.
    #[doc(hidden)]
    #[inline(always)]
    pub fn allocated(&mut self, bytes: usize, held: usize) {
        self.allocations = self.allocations.wrapping_add(1);
        self.resized([0, bytes], [0, held]);
    }

    /// Counts a free of `bytes` bytes, `held` in whole granules.
    #[doc(hidden)]
    #[inline(always)]
    pub fn freed(&mut self, bytes: usize, held: usize) {
        self.frees = self.frees.wrapping_add(1);
        self.requested = self.requested.wrapping_sub(bytes);
        self.live = self.live.wrapping_sub(held);
    }

    /// Counts a change of a block's size, old and new, and of what it holds in whole granules.
    #[doc(hidden)]
    #[inline(always)]
    pub fn resized(&mut self, bytes: [usize; 2], held: [usize; 2]) {
        self.requested = self.requested.wrapping_sub(bytes[0]).wrapping_add(bytes[1]);
        self.peak = self.peak.max(self.requested);
        self.live = self.live.wrapping_sub(held[0]).wrapping_add(held[1]);
        self.peak_live = self.peak_live.max(self.live);
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
    #[doc(hidden)]
    pub fn new(counters: &HeapCounters, regions: usize) -> Self {
        let live = counters.allocations.wrapping_sub(counters.frees);
        Self { held: counters.requested.wrapping_add(live), regions }
    }

    /// Lowers the mark to `now` if that is lower; returns whether it was, or whether regions were added.
    #[doc(hidden)]
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
    /// Bytes of the largest free block; not every request just below it is served.
    ///
    /// See [`RegionHeap::allocate`](crate::RegionHeap::allocate).
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

impl HeapStats {
    /// The names of the fields of [`HeapStats::csv`], separated by commas.
    pub const CSV_HEADER: &'static str = "total,tables,live,peak_live,requested,peak,free,largest_free,free_blocks,\
        allocations,frees,failures,refused";

    /// The fields as one line of CSV, without the end of the line. Nothing is allocated.
    ///
    /// ```
    /// use terrace_embedded::HeapStats;
    /// let stats = HeapStats { total: 4096, tables: 96, free: 4000, largest_free: 4000, free_blocks: 1, ..HeapStats::default() };
    /// assert_eq!(stats.csv().to_string(), "4096,96,0,0,0,0,4000,4000,1,0,0,0,0");
    /// assert!(HeapStats::CSV_HEADER.starts_with("total,tables,live,"));
    /// ```
    pub fn csv(&self) -> impl fmt::Display + use<> {
        let HeapCounters { requested, peak, peak_live, allocations, frees, failures, refused, .. } = self.counters;
        CsvLine([
            self.total,
            self.tables,
            self.live,
            peak_live,
            requested,
            peak,
            self.free,
            self.largest_free,
            self.free_blocks,
            allocations,
            frees,
            failures,
            refused,
        ])
    }
}

/// Numbers, printed with commas between them.
pub(crate) struct CsvLine<const N: usize>(pub [usize; N]);

impl<const N: usize> fmt::Display for CsvLine<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(i, number)| write!(f, "{}{number}", if i == 0 { "" } else { "," }))
    }
}

impl fmt::Display for HeapStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HeapCounters { requested, peak, peak_live, allocations, frees, failures, refused, .. } = self.counters;
        write!(f, "{} of {} bytes live, at most {peak_live} (", self.live, self.total)?;
        write!(f, "{requested} requested, at most {peak}), ")?;
        write!(f, "{} free in {} blocks, the largest {}, ", self.free, self.free_blocks, self.largest_free)?;
        write!(f, "{} in tables; {allocations} allocations, {frees} frees, ", self.tables)?;
        write!(f, "{failures} failures, {refused} refused")
    }
}
