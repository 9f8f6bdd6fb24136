//! What buffers take of the machine's memory beside their bytes: what describes them, wherever their bytes are, and what lies
//! unused between them. The tier of memory is smaller by that, so that all together stays within what the user said.

use super::body::Body;
use super::handle::Handle;
use super::state::State;
use super::{Place, Shared};
use crate::ledger::{self, Event, Id, TierKind};
use std::sync::Arc;
use terrace_core::Slot;
use terrace_core::residence::Tier;
use terrace_file::{Frames, LINE};

/// Bytes that describe a buffer: its body with its counts, the user's handle, its names in the manager's table, and what the ledger
/// and the memory's allocator have of it.
pub(super) const DESCRIPTION: u64 =
    (size_of::<Body>() + 16 + HANDLE + size_of::<(Id, usize)>() + ledger::DESCRIPTION + size_of::<Slot>()) as u64;

/// A user's handle, with its counts.
const HANDLE: usize = size_of::<Handle>() + 16;

/// Of what memory may hold, descriptions may take no more than all but one part in so many.
const LEFT: u64 = 8;

/// The capacity follows descriptions in steps of one part in so many of what memory may hold, so that most calls change nothing;
const STEPS: u64 = 256;
/// but not in smaller ones.
const LEAST_STEP: u64 = 64 << 10;

/// While less than one part in so many lies unused between buffers, nothing is taken off for it.
const UNUSED: u64 = 64;

impl Place {
    /// What a copy takes is counted in multiples of so many bytes.
    pub(super) fn unit(&self) -> u64 {
        match self {
            Self::Memory(_) => LINE as u64,
            // What drivers align to.
            Self::Joint(_) | Self::Device(_) => 512,
            // What disks are written in.
            Self::File(_) => terrace_file::ALIGN as u64,
        }
    }
}

impl State {
    /// What a tier may hold, if it may take so much of what it is made of.
    pub(super) fn allowed(&self, shared: &Shared, tier: Tier, most: u64) -> u64 {
        if shared.memory() == Some(tier) { most.saturating_sub(self.described + self.unused) } else { most }
    }

    /// Follows the number of buffers.
    pub(super) fn describe(&mut self, shared: &Shared) -> Option<Event> {
        let tier = shared.memory()?;
        let most = self.most[usize::from(tier)];
        let described = self.bodies.len() as u64 * DESCRIPTION;
        if described.abs_diff(self.described) < (most / STEPS).max(LEAST_STEP) {
            return None;
        }
        self.described = described;
        Some(Event::Resize { tier, capacity: self.allowed(shared, tier, most) })
    }

    /// Whether one more can be described.
    pub(super) fn has_description(&self, shared: &Shared) -> bool {
        let most = shared.memory().map_or(u64::MAX, |tier| self.most[usize::from(tier)]);
        (self.bodies.len() as u64 + 1).saturating_mul(DESCRIPTION) <= most - most / LEFT
    }
}

impl Shared {
    /// The tier of the machine's memory.
    pub(super) fn memory(&self) -> Option<Tier> {
        self.tiers().find(|tier| self.kind(*tier) == TierKind::Memory)
    }

    /// What is free in the tier of memory is in pieces: sees to it that so many bytes leave it. False: none can.
    pub(super) fn clear(self: &Arc<Self>, tier: Tier, bytes: u64) -> bool {
        let mut state = self.state();
        let Some(before) = state.ledger.tier(tier) else { return false };
        state.crowded = true;
        if before.leaving == 0 {
            let _ = state.handle(self, Event::Resize { tier, capacity: before.used.saturating_sub(bytes) });
        }
        let after = state.ledger.tier(tier);
        self.unlock(state);
        // What was elsewhere too is gone already.
        after.is_some_and(|after| after.leaving > 0 || after.used < before.used)
    }

    /// Gives a tier back what [`clear`](Self::clear) took.
    pub(super) fn cleared(self: &Arc<Self>, tier: Tier) {
        let mut state = self.state();
        let capacity = state.allowed(self, tier, state.most[usize::from(tier)]);
        let _ = state.handle(self, Event::Resize { tier, capacity });
        self.unlock(state);
    }

    /// Gives the tier of memory back what [`clear`](Self::clear) took, but for what lies unused between buffers still.
    pub(super) fn settle_memory(self: &Arc<Self>) {
        let Some(tier) = self.memory() else { return };
        let Some(Place::Memory(frames)) = self.place(tier) else { return };
        if !self.state().crowded {
            return;
        }
        frames.trim();
        let unused = unused(frames);
        let mut state = self.state();
        let most = state.most[usize::from(tier)];
        state.crowded = unused > most / UNUSED;
        state.unused = if state.crowded { unused } else { 0 };
        let capacity = state.allowed(self, tier, most);
        let _ = state.handle(self, Event::Resize { tier, capacity });
        self.unlock(state);
    }
}

/// Bytes of pages that buffers have a part of, less those parts.
fn unused(frames: &Frames) -> u64 {
    frames.resident().saturating_sub(frames.usage().0) as u64
}
