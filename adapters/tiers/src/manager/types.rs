//! Options of allocations; lists of buffers and tiers; counters of moves.

use super::buffer_state::BufferState;
use super::{Error, Manager, ManagerShared};
use crate::detect;
use crate::ledger::{CopyOutcome, LedgerEvent, PlacementHint, TierView};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_file::{Store, StoreStats};

/// Options of an allocation.
#[derive(Clone, Debug, Default)]
pub struct BufferOptions {
    /// Name of the buffer; only a named buffer can be made durable.
    pub name: Option<String>,
    /// Its tenant.
    pub tenant: u16,
    /// Preferences for its placement.
    pub hint: PlacementHint,
    /// Whether to wait until other users free buffers: first come, first served. Leases are granted meanwhile, as those
    /// users may need them before they can free; the request waits as long as they keep their buffers.
    pub wait: bool,
}

/// The current state of one buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferInfo {
    /// Its name.
    pub name: Option<String>,
    /// Name of the mapped file, if the buffer is one, as in error messages.
    pub file: Option<String>,
    /// Its size in bytes.
    pub bytes: u64,
    /// The best tier that has the buffer's newest bytes; for a mapped file, the number after the last tier's.
    pub tier: Tier,
    /// Whether the buffer's newest bytes survive a power cut.
    pub durable: bool,
    /// Whether a lease is held.
    pub leased: bool,
}

/// The current state of one tier.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TierInfo {
    /// Its number: 0 is the best.
    pub tier: Tier,
    /// The tier's kind, if known without measuring.
    pub kind: Option<detect::TierKind>,
    /// Where the tier's bytes are: `cuda:0`, `cpu`, or a directory.
    pub device: String,
    /// The tier's capacity and use.
    pub view: TierView,
    /// Counters of the tier's store, if it is a file tier.
    pub files: Option<StoreStats>,
}

/// Counters of moves since the manager was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MoveStats {
    /// Number of copies to better tiers.
    pub up: u64,
    /// Bytes of the copies to better tiers.
    pub bytes_up: u64,
    /// Number of copies to lower tiers.
    pub down: u64,
    /// Bytes of the copies to lower tiers, including chunks that the target had already.
    pub bytes_down: u64,
    /// Number of redundant copies that were dropped.
    pub dropped: u64,
    /// Number of copies that failed or found no room.
    pub failed: u64,
}

impl MoveStats {
    pub(super) fn count(&mut self, event: &LedgerEvent, bytes: u64) {
        match event {
            LedgerEvent::CopyEnded { from, to, outcome: CopyOutcome::Done, .. } if to < from => {
                self.up += 1;
                self.bytes_up += bytes;
            }
            LedgerEvent::CopyEnded { outcome: CopyOutcome::Done, .. } => {
                self.down += 1;
                self.bytes_down += bytes;
            }
            LedgerEvent::CopyEnded {
                outcome: CopyOutcome::Full | CopyOutcome::Failed | CopyOutcome::SourceFailed,
                ..
            } => self.failed += 1,
            LedgerEvent::DropEnded { done: true, .. } => self.dropped += 1,
            _ => {}
        }
    }
}

impl ManagerShared {
    /// The state of all tiers.
    pub(super) fn tier_infos(&self) -> Vec<TierInfo> {
        let state = self.state();
        let of = |tier| {
            let (made, view) = (&self.tiers[usize::from(tier)], state.ledger.tier(tier)?);
            let files = self.store(tier).ok().map(Store::stats);
            Some(TierInfo { tier, kind: made.kind, device: made.device.clone(), view, files })
        };
        self.tiers().filter_map(of).collect()
    }
}

impl Manager {
    /// Lists all buffers.
    pub fn list(&self) -> Vec<BufferInfo> {
        if self.shared.check_process().is_err() {
            return Vec::new();
        }
        let state = self.shared.state();
        let listed = |buffer: &Arc<BufferState>| {
            let view = state.ledger.view(buffer.id).ok()?;
            Some(BufferInfo {
                name: buffer.name().map(Into::into),
                file: None,
                bytes: buffer.bytes,
                tier: view.residence.best(),
                durable: view.synced.is_some_and(|(_, version)| version == view.version),
                leased: buffer.lease.is_held(),
            })
        };
        let files = self.shared.listed_files(&state.mapped);
        let dormant = state.listed_dormant(&self.shared);
        state.buffers.values().filter_map(listed).chain(dormant).chain(files).collect()
    }

    /// Lists the tiers, best first.
    pub fn tiers(&self) -> Vec<TierInfo> {
        if self.shared.check_process().is_err() {
            return Vec::new();
        }
        self.shared.tier_infos()
    }

    /// The best tier of a kind.
    ///
    /// # Errors
    /// [`Error::Absent`].
    pub fn tier(&self, kind: detect::TierKind) -> Result<Tier, Error> {
        self.shared.check_process()?;
        let of = |tier: &Tier| self.shared.tiers[usize::from(*tier)].kind == Some(kind);
        self.shared.tiers().find(of).ok_or(Error::Absent(kind))
    }

    /// Counters of moves so far.
    pub fn move_stats(&self) -> MoveStats {
        self.shared.check_process().map_or_else(|_| MoveStats::default(), |()| self.shared.state().moves)
    }
}
