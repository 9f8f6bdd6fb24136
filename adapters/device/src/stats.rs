//! Counters of a device's pool.

use terrace_core::Stats;

/// Counters of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// The device's own memory: streams' caches and arena together. `fallbacks` counts requests that pinned memory
    /// served.
    pub pool: Stats,
    /// Pinned host memory: requested as such, or given in place of the device's own.
    pub pinned: Stats,
    /// Managed memory that was requested as such.
    pub managed: Stats,
    /// The private pools of all graphs together.
    pub graphs: Stats,
    /// Number of open streams.
    pub streams: u64,
    /// Number of dropped blocks that wait for the streams which use them.
    pub held: u64,
    /// Number of events recorded so far.
    pub events: u64,
    /// Number of allocations that a stream's cache served.
    pub cache_hits: u64,
}
