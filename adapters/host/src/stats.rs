//! Statistics: how many bytes and blocks the allocator holds, for which purpose, and how many it purged.
//!
//! Promises upward: counts that are exact while no other thread allocates, and approximate otherwise. The fast paths
//! count nothing, so a snapshot visits all caches and spans: O(slices mapped + caches * classes).
//! Asks from below: the page heap's counters, the records of spans, the number of blocks in each cache.

use crate::class::{self, PAGE, SLICE};
use crate::page_heap::slice_cache::CACHED;
use crate::tables::{mapped, tables};
use crate::{os, page_heap, process, settings, thread, transfer_cache, usage};
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

/// A snapshot of the statistics; a field counts bytes unless its line says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
pub struct Stats {
    /// Bytes of blocks that the program holds, rounded up to size classes and pages.
    pub in_use: usize,
    /// Free bytes in threads' caches, in the transfer cache and in the cache of slices; not purged.
    pub cached: usize,
    /// Bytes of pages in use; [`Setting::Limit`](crate::Setting::Limit) limits them.
    ///
    /// Requested pages of large blocks, dirty pages of spans, and the memory of threads' caches.
    pub reserved: usize,
    /// The highest value that `reserved` ever had.
    pub peak_reserved: usize,
    /// Bytes of `reserved`, and of free pages that are dirty and not purged; tables are not counted.
    pub dirty: usize,
    /// Bytes of addresses that are mapped.
    pub mapped: usize,
    /// Number of blocks that the program holds.
    pub live_blocks: usize,
    /// Number of spans: slices with blocks of one class.
    pub spans: usize,
    /// Number of large blocks.
    pub large_blocks: usize,
    /// Number of thread caches that exist: the most threads that were alive at once.
    pub caches: usize,
    /// Number of purges: each returned one run of pages to the system.
    pub purges: usize,
    /// Bytes that were purged.
    pub purged: usize,
    /// Number of times the system refused a setting: huge pages or NUMA policies for a mapping.
    pub fallbacks: usize,
    /// Bytes that may be held: the lower of the setting and the control group's limit; `usize::MAX`: none.
    pub limit: usize,
}

/// Takes a snapshot of the whole allocator; all fields are 0 before its first block.
pub fn stats() -> Stats {
    let mut stats = count();
    if process::is_ready() {
        stats.limit = settings::limit().min(os::memory_limit());
    }
    stats
}

/// Takes a snapshot without the limit, and so without reading files.
pub fn count() -> Stats {
    let mut stats = Stats::default();
    let _busy = thread::enter_slow_path();
    let Some(tables) = tables().filter(|_| process::is_ready()) else { return stats };
    for slice in 0..(mapped() / SLICE) as u32 {
        let span = tables.span(slice);
        let class = usize::from(span.class.load(Relaxed));
        if span.block().is_none() {
            continue;
        }
        if span.heap.load(Relaxed) == CACHED {
            stats.cached += span.next.load(Relaxed) as usize * PAGE;
        } else if class == class::NONE {
            let bytes = span.next.load(Relaxed) as usize * PAGE;
            stats.large_blocks += usize::from(bytes > 0);
            stats.live_blocks += usize::from(bytes > 0);
            stats.in_use += bytes;
        } else {
            let used = usize::from(span.used.load(Relaxed));
            stats.spans += 1;
            stats.live_blocks += used;
            stats.in_use += used * class::size(class);
        }
    }
    count_caches(&mut stats);
    let counts = page_heap::counts();
    (stats.reserved, stats.peak_reserved, stats.mapped) = (usage::used(), usage::peak(), counts.backed);
    stats.dirty = usage::held();
    (stats.purges, stats.purged, stats.fallbacks) = (counts.purges, counts.purged, counts.fallbacks);
    stats
}

/// Counts blocks in caches and in the transfer cache as cached, not as held by the program.
fn count_caches(stats: &mut Stats) {
    let mut blocks = [0; class::COUNT];
    thread::each_cache(|cache| {
        stats.caches += 1;
        (1..class::COUNT).for_each(|class| blocks[class] += cache.count(class));
    });
    for (class, &blocks) in blocks.iter().enumerate().skip(1) {
        let blocks = blocks + transfer_cache::count(class);
        stats.cached += blocks * class::size(class);
        stats.in_use = stats.in_use.saturating_sub(blocks * class::size(class));
        stats.live_blocks = stats.live_blocks.saturating_sub(blocks);
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kib = |bytes: usize| bytes / 1024;
        write!(
            f,
            "{} KiB in {} blocks ({} large), {} KiB cached by {} caches, {} KiB reserved (peak {} KiB), {} KiB dirty, {} \
             KiB purged in {} calls, {} fallbacks",
            kib(self.in_use),
            self.live_blocks,
            self.large_blocks,
            kib(self.cached),
            self.caches,
            kib(self.reserved),
            kib(self.peak_reserved),
            kib(self.dirty),
            kib(self.purged),
            self.purges,
            self.fallbacks,
        )
    }
}
