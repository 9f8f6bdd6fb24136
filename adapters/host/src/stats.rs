//! Statistics: what the allocator holds, for whom, and what it gave back.
//!
//! Promises upward: counts that are exact while no other thread allocates, and about right otherwise; the fast paths count
//! nothing, so a snapshot walks caches and spans: O(slices mapped + caches * classes).
//! Asks from below: the ground's counters, the spans' records, the caches' tops.

use crate::class::{self, PAGE, SLICE};
use crate::page_heap::slice_cache::CACHED;
use crate::tables::{mapped, tables};
use crate::{os, page_heap, process, settings, thread, transfer_cache, usage};
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

/// A snapshot. Bytes unless named otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// In blocks that the program has, rounding to classes and pages included.
    pub in_use: usize,
    /// In caches of threads and between them: free for some thread.
    pub cached: usize,
    /// In pages that are in use: what was asked for in large blocks, written to in spans, caches. What
    /// [`Setting::Limit`](crate::Setting::Limit) limits.
    pub reserved: usize,
    /// The most `reserved` ever was.
    pub peak_reserved: usize,
    /// Pages that may have memory under them, tables not counted: `reserved`, and what is free and was not given back.
    pub dirty: usize,
    /// Addresses mapped.
    pub mapped: usize,
    /// Blocks that the program has.
    pub live_blocks: usize,
    /// Spans, whose blocks are of one class.
    pub spans: usize,
    /// Large blocks.
    pub large_blocks: usize,
    /// Caches made; as many threads were alive at once.
    pub caches: usize,
    /// Calls that gave memory back to the system.
    pub purges: usize,
    /// Bytes they gave back.
    pub purged: usize,
    /// Settings that the system would not follow: huge pages, NUMA policies.
    pub fallbacks: usize,
    /// What the process may use, by setting and control group; `usize::MAX` without a limit.
    pub limit: usize,
}

/// A snapshot of the whole allocator. All 0 before its first block, which tells whether it is the one at work.
pub fn stats() -> Stats {
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
    stats.limit = settings::limit().min(os::memory_limit());
    stats
}

/// Blocks in caches and in the depot are not the program's.
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
