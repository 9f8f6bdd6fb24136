//! What each source of statistics is as samples.
//!
//! Promises upward: a field of bytes is a metric that ends in `_bytes`, a total one that ends in `_total`; a limit that does
//! not exist has no sample.
//! Asks from below: statistics of the core, the host's allocator, devices and managers.

use crate::families::{Families, Labels, MetricDescription};
use terrace_core::Stats;

/// Samples of an allocator's counters; `prefix` begins their names.
pub(crate) fn allocator(families: &mut Families, prefix: &str, labels: &Labels, stats: &Stats) {
    let name = |name: &str| format!("{prefix}_{name}");
    let mut level = |field: &str, help, value: u64| {
        families.add(MetricDescription::gauge(name(field), help).bytes(), labels, value);
    };
    if stats.capacity != 0 {
        level("capacity", "Bytes that the allocator may take from its source.", stats.capacity);
    }
    level("reserved", "Bytes taken from the source and not returned.", stats.reserved);
    level("peak_reserved", "The most bytes that were reserved at once.", stats.peak_reserved);
    level("in_use", "Bytes of live blocks, rounding included.", stats.in_use);
    level("peak_in_use", "The most bytes that were in use at once.", stats.peak_in_use);
    level("requested", "Bytes of live blocks as requested.", stats.requested);
    level("pooled", "Bytes in caches and behind pending fences.", stats.pooled);
    level("largest_free", "Bytes of the largest block that needs no call to the source.", stats.largest_free);
    level("metadata", "Bytes of the allocator's own records.", stats.metadata);
    let mut blocks =
        |field: &str, help, value: u64| families.add(MetricDescription::gauge(name(field), help), labels, value);
    blocks("live_blocks", "Blocks allocated and not freed.", stats.live_blocks);
    blocks("peak_live_blocks", "The most blocks that were live at once.", stats.peak_live_blocks);
    let mut total =
        |field: &str, help, value: u64| families.add(MetricDescription::counter(name(field), help), labels, value);
    total("allocations", "Calls that allocated a block.", stats.allocations);
    total("frees", "Calls that freed a block.", stats.frees);
    total("hits", "Allocations without a call to the source.", stats.hits);
    total("misses", "Allocations that needed a call to the source.", stats.misses);
    total("failed_allocations", "Allocations that failed.", stats.failed);
    total("fallbacks", "Allocations that a fallback served.", stats.fallbacks);
    total("returns", "Calls that returned memory to the source.", stats.returns);
    total("source_calls", "Calls to the source.", stats.source_calls);
    total("source_handles", "Handles that the source created.", stats.handles);
    let mut moved = |field: &str, help, value: u64| {
        families.add(MetricDescription::counter(name(field), help).bytes(), labels, value);
    };
    moved("allocated", "Bytes of all blocks allocated so far.", stats.allocated_bytes);
    moved("freed", "Bytes of all blocks freed so far.", stats.freed_bytes);
}

/// Samples of the allocator of the process.
#[cfg(feature = "host")]
pub(crate) fn host(families: &mut Families, labels: &Labels, stats: &terrace_host::Stats) {
    let mut level = |field: &str, help, value: usize| {
        families.add(MetricDescription::gauge(format!("terrace_host_{field}"), help).bytes(), labels, value);
    };
    level("in_use", "Bytes of blocks that the program holds, rounded up to size classes and pages.", stats.in_use);
    level("cached", "Free bytes in caches, not purged.", stats.cached);
    level("reserved", "Bytes of pages in use.", stats.reserved);
    level("peak_reserved", "The most bytes that were reserved at once.", stats.peak_reserved);
    level("dirty", "Bytes of pages in use, and of free pages that are not purged.", stats.dirty);
    level("mapped", "Bytes of addresses that are mapped.", stats.mapped);
    if stats.limit != usize::MAX {
        level("limit", "Bytes that may be held: by the setting or the control group, whichever is less.", stats.limit);
    }
    let mut number = |field: &str, help, value: usize| {
        families.add(MetricDescription::gauge(format!("terrace_host_{field}"), help), labels, value);
    };
    number("live_blocks", "Blocks that the program holds.", stats.live_blocks);
    number("large_blocks", "Large blocks that the program holds.", stats.large_blocks);
    number("spans", "Slices with blocks of one size class.", stats.spans);
    number("thread_caches", "Caches of threads that exist.", stats.caches);
    let purged = MetricDescription::counter("terrace_host_purged", "Bytes that were returned to the system.").bytes();
    families.add(purged, labels, stats.purged);
    families.add(
        MetricDescription::counter("terrace_host_purges", "Runs of pages returned to the system."),
        labels,
        stats.purges,
    );
    let refused =
        MetricDescription::counter("terrace_host_fallbacks", "Settings that the system refused for a mapping.");
    families.add(refused, labels, stats.fallbacks);
}

/// Samples of a device: its kinds of memory by the label `memory`.
#[cfg(feature = "device")]
pub(crate) fn device(families: &mut Families, labels: &Labels, stats: &terrace_device::DeviceStats) {
    let kinds = [("own", stats.pool), ("pinned", stats.pinned), ("managed", stats.managed), ("graphs", stats.graphs)];
    for (kind, stats) in kinds {
        let labels = [&labels[..], &[("memory", kind.into())]].concat();
        allocator(families, "terrace_device", &labels, &stats);
    }
    families.add(MetricDescription::gauge("terrace_device_streams", "Open streams."), labels, stats.streams);
    let held =
        MetricDescription::gauge("terrace_device_held_blocks", "Dropped blocks that wait for streams which use them.");
    families.add(held, labels, stats.held);
    families.add(MetricDescription::counter("terrace_device_events", "Events recorded so far."), labels, stats.events);
    let hits = MetricDescription::counter("terrace_device_cache_hits", "Allocations that a stream's cache served.");
    families.add(hits, labels, stats.cache_hits);
}
