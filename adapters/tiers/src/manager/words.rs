//! How a buffer is asked for; how buffers and tiers are listed; what was moved.

use super::body::Body;
use super::{Error, Manager};
use crate::detect;
use crate::ledger::{Event, Hint, Outcome, TierView};
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_file::{Store, StoreStats};

/// How a buffer is allocated.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// What it is called: then it can be made durable.
    pub name: Option<String>,
    /// For whom.
    pub tenant: u16,
    /// Where it should live.
    pub hint: Hint,
    /// Whether to wait for what others may free: first come, first served. Leases go on meanwhile, as those others may
    /// need them; it waits as long as they keep the room.
    pub wait: bool,
}

/// One buffer, as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What it is called.
    pub name: Option<String>,
    /// The file that it maps, as errors name it.
    pub file: Option<String>,
    /// Its size.
    pub bytes: u64,
    /// The best tier that has its newest bytes; of a mapped file, the number after the last tier's.
    pub tier: Tier,
    /// Whether its newest bytes survive a power cut.
    pub durable: bool,
    /// Whether a lease is held.
    pub leased: bool,
}

/// One tier, as it is now.
#[derive(Clone, Debug)]
pub struct ListedTier {
    /// Its number: 0 is the best.
    pub tier: Tier,
    /// What it is, as far as that can be said without measuring.
    pub kind: Option<detect::TierKind>,
    /// What it lies on: `cuda:0`, `cpu`, a directory.
    pub device: String,
    /// What it may hold, and holds.
    pub view: TierView,
    /// Its files, where it has any.
    pub files: Option<StoreStats>,
}

/// What was moved since the manager was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moves {
    /// Copies to better tiers.
    pub up: u64,
    /// Bytes of them.
    pub bytes_up: u64,
    /// Copies to tiers below.
    pub down: u64,
    /// Bytes of them, those that were there already included.
    pub bytes_down: u64,
    /// Copies that were given up without moving anything, as the bytes were elsewhere.
    pub dropped: u64,
    /// Copies that failed, or found no room.
    pub failed: u64,
}

impl Moves {
    pub(super) fn count(&mut self, event: &Event, bytes: u64) {
        match event {
            Event::Moved { from, to, outcome: Outcome::Done, .. } if to < from => {
                self.up += 1;
                self.bytes_up += bytes;
            }
            Event::Moved { outcome: Outcome::Done, .. } => {
                self.down += 1;
                self.bytes_down += bytes;
            }
            Event::Moved { outcome: Outcome::Full | Outcome::Failed | Outcome::Unread, .. } => self.failed += 1,
            Event::Dropped { done: true, .. } => self.dropped += 1,
            _ => {}
        }
    }
}

impl Manager {
    /// All buffers.
    pub fn list(&self) -> Vec<Listed> {
        if self.shared.is_here().is_err() {
            return Vec::new();
        }
        let state = self.shared.state();
        let listed = |body: &Arc<Body>| {
            let view = state.ledger.view(body.id).ok()?;
            Some(Listed {
                name: body.name().map(Into::into),
                file: None,
                bytes: body.bytes,
                tier: view.residence.best(),
                durable: view.synced.is_some_and(|(_, version)| version == view.version),
                leased: body.lease.is_held(),
            })
        };
        let files = self.shared.listed_files(&state.mapped);
        state.bodies.values().filter_map(listed).chain(files).collect()
    }

    /// The tiers, best first.
    pub fn tiers(&self) -> Vec<ListedTier> {
        if self.shared.is_here().is_err() {
            return Vec::new();
        }
        let state = self.shared.state();
        let of = |tier| {
            let (made, view) = (&self.shared.places[usize::from(tier)], state.ledger.tier(tier)?);
            let files = self.shared.store(tier).ok().map(Store::stats);
            Some(ListedTier { tier, kind: made.kind, device: made.device.clone(), view, files })
        };
        self.shared.tiers().filter_map(of).collect()
    }

    /// The best tier that is one of these.
    ///
    /// # Errors
    /// [`Error::Absent`].
    pub fn tier(&self, kind: detect::TierKind) -> Result<Tier, Error> {
        self.shared.is_here()?;
        let of = |tier: &Tier| self.shared.places[usize::from(*tier)].kind == Some(kind);
        self.shared.tiers().find(of).ok_or(Error::Absent(kind))
    }

    /// What was moved so far.
    pub fn moves(&self) -> Moves {
        self.shared.is_here().map_or_else(|_| Moves::default(), |()| self.shared.state().moves)
    }
}
