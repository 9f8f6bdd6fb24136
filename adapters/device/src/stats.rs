//! What a device's pool did and holds.

use terrace_core::Stats;

/// Counters of one device. Bytes unless named otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceStats {
    /// The pool: streams' caches and arena together. `fallbacks` counts what pinned memory served instead.
    pub pool: Stats,
    /// Pinned host memory: what was asked for as such, and what was given in place of the device's.
    pub pinned: Stats,
    /// Managed memory that was asked for as such.
    pub managed: Stats,
    /// The private pools of graphs.
    pub graphs: Stats,
    /// Streams that are open.
    pub streams: u64,
    /// Blocks dropped while another stream still uses them.
    pub held: u64,
    /// Events recorded so far.
    pub events: u64,
    /// Blocks whose home stream's cache served them.
    pub cache_hits: u64,
}
