//! What the ledger tells about buffers, tiers and prefetches.

use super::types::Medium;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use terrace_core::pressure::Level;
use terrace_core::residence::{Residence, Tier};

/// The state of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferView {
    /// Its size in bytes.
    pub bytes: u64,
    /// Its tenant.
    pub tenant: u16,
    /// The tiers that have copies.
    pub residence: Residence,
    /// Number of writes so far.
    pub version: u64,
    /// The tier of the copy that survives a power cut, and the version of that copy.
    pub synced: Option<(Tier, u64)>,
    /// Whether a copy or a drop is in progress.
    pub moving: bool,
    /// Whether a move of the buffer met a lease or a failure. The buffer is then not moved until the lease is released,
    /// or until the next tick.
    pub deferred: bool,
}

/// What became of prefetches that have ended. A use is seen when the ledger next considers the buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PrefetchStats {
    /// Buffers that were used after they had arrived.
    pub met: u64,
    /// Buffers that a user asked for before they had arrived.
    pub late: u64,
    /// Buffers that were evicted or freed before they were used.
    pub wasted: u64,
    /// Prefetches for which no room could be made, or whose copy failed.
    pub unmet: u64,
}

/// Why buffers were evicted from a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EvictionCause {
    /// An allocation needed the room.
    Allocation,
    /// A user's promotion, or that of a second touch, needed it.
    Promotion,
    /// A prefetch needed it.
    Prefetch,
    /// Room was made ahead, for all that waits at once or for the demand of late.
    Ahead,
    /// A tick emptied a tier that was nearly full.
    Maintenance,
    /// The tier shrank.
    Resize,
}

impl EvictionCause {
    /// All causes.
    pub const ALL: [Self; 6] =
        [Self::Allocation, Self::Promotion, Self::Prefetch, Self::Ahead, Self::Maintenance, Self::Resize];

    /// The cause's name in JSON and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Allocation => "allocation",
            Self::Promotion => "promotion",
            Self::Prefetch => "prefetch",
            Self::Ahead => "ahead",
            Self::Maintenance => "maintenance",
            Self::Resize => "resize",
        }
    }
}

/// Evictions that have begun, by their cause: copies to lower tiers and drops of redundant copies.
///
/// Serialised as a map from each cause to the number of its evictions and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "EvictionMap", into = "EvictionMap")]
pub struct EvictionStats([(u64, u64); 6]);

/// The serialised form of [`EvictionStats`].
type EvictionMap = BTreeMap<EvictionCause, EvictionCount>;

/// Evictions for one cause, as serialised.
#[derive(Serialize, Deserialize)]
struct EvictionCount {
    evictions: u64,
    bytes: u64,
}

impl From<EvictionStats> for EvictionMap {
    fn from(stats: EvictionStats) -> Self {
        let count = |cause| stats.of(cause);
        EvictionCause::ALL.map(|cause| (cause, count(cause).into())).into()
    }
}

impl From<(u64, u64)> for EvictionCount {
    fn from((evictions, bytes): (u64, u64)) -> Self {
        Self { evictions, bytes }
    }
}

impl From<EvictionMap> for EvictionStats {
    fn from(map: EvictionMap) -> Self {
        let mut stats = Self::default();
        map.iter().for_each(|(cause, count)| stats.0[*cause as usize] = (count.evictions, count.bytes));
        stats
    }
}

impl EvictionStats {
    /// Number of evictions for a cause, and their bytes.
    pub fn of(&self, cause: EvictionCause) -> (u64, u64) {
        self.0[cause as usize]
    }

    pub(super) fn count(&mut self, cause: EvictionCause, bytes: u64) {
        let (number, sum) = &mut self.0[cause as usize];
        (*number, *sum) = (*number + 1, *sum + bytes);
    }
}

/// The state of a tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TierView {
    /// What the tier stores bytes in.
    pub medium: Medium,
    /// Bytes that the tier may hold now.
    pub capacity: u64,
    /// Its configured capacity, of which others may need a part for now.
    pub limit: u64,
    /// Bytes of the tier's copies, and of copies in progress to it.
    pub used: u64,
    /// Bytes of copies that migrations in progress will remove.
    pub leaving: u64,
    /// Its pressure level.
    pub level: Level,
    /// When the suspension ends, in the unit of [`LedgerEvent::Tick`](super::LedgerEvent::Tick), if the tier is suspended.
    /// [`LedgerEvent::TierRecovered`](super::LedgerEvent::TierRecovered) ends it earlier.
    pub suspended_until: Option<u64>,
}
