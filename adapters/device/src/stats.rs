//! Counters of a device's pool; moments as serde values.
//!
//! Promises upward: the field names are the JSON keys (feature `serde`): fields are added, none is renamed.
//! Asks from below: statistics of the core.

use terrace_core::Stats;

/// Counters of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
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

/// What one maintenance of a device did. Sizes are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(default))]
#[non_exhaustive]
pub struct DeviceMaintenance {
    /// Blocks that left the streams' caches, where they merged with free memory.
    pub coalesced: u64,
    /// Memory that went back to the driver.
    pub returned: u64,
    /// Whether the sizes of the streams' caches were adapted to another level of pressure.
    pub adapted: bool,
}

/// Serialises the moment of an event as its age: the time from then to the serialisation.
#[cfg(feature = "serde")]
pub(crate) mod age {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::time::{Duration, Instant};

    pub(crate) fn serialize<S: Serializer>(moment: &Option<Instant>, to: S) -> Result<S::Ok, S::Error> {
        moment.map(|moment| moment.elapsed()).serialize(to)
    }

    /// An age from before this clock began is no moment of it.
    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<Instant>, D::Error> {
        Ok(Option::<Duration>::deserialize(from)?.and_then(|age| Instant::now().checked_sub(age)))
    }
}
