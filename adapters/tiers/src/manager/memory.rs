//! What buffers take of the machine's memory beside their bytes: what describes them, wherever their bytes are, and
//! what lies unused between them. The tier of memory is smaller by that, so that all together stays within what the
//! user said.
//!
//! A buffer counts from its request on with the most that its description can come to: all its chunks in all tiers of
//! files, and durable if it has a name. So what was allocated can be written and made durable, and what was durable can
//! be found again.

use super::body::{Body, Named};
use super::error::Error;
use super::handle::Handle;
use super::state::State;
use super::{Place, Shared};
use crate::ledger::{self, Event, Id, TierKind};
use std::sync::Arc;
use terrace_core::Slot;
use terrace_core::residence::Tier;
use terrace_file::{CACHE_LINE, FramePool, Piece};

/// Bytes that describe any buffer: its body with its counts, the user's handle, its entry in the manager's table, and
/// what the ledger and the memory's allocator have of it.
const DESCRIPTION: u64 =
    (size_of::<Body>() + 16 + HANDLE + size_of::<(Id, usize)>() + ledger::DESCRIPTION + size_of::<Slot>()) as u64;

/// A buffer with a name: the name's own record and its entry in the manager's table; in the store, the object's entry
/// (its number and 40 bytes) with the counts of its meta data, and the first node of its parts (176 bytes). Tables of
/// names and objects are half full at least.
const NAMED: u64 = (size_of::<Named>() + 2 * size_of::<(String, Option<Id>)>() + 2 * 48 + 16 + 176) as u64;

/// Where its name stands: in the buffer, in the manager's table, in the store's meta data.
const NAMES: u64 = 3;

/// The version of a chunk.
const VERSION: u64 = size_of::<u64>() as u64;

/// A chunk in a tier of files: its place in the copy, the piece (64 bytes) and its extent (80) with their counts, and
/// two slots of its slab, for the extent and for what is free behind it.
const PIECE: u64 = (size_of::<Option<(Arc<Piece>, u64)>>() + 64 + 80 + 2 * size_of::<Slot>()) as u64;

/// A durable chunk: its version then, its entry in the object's parts, which are half full at least, and the piece that
/// is durable while a newer one is written.
const DURABLE: u64 = VERSION + 2 * size_of::<(u32, Arc<Piece>)>() as u64 + PIECE;

/// A user's handle, with its counts.
const HANDLE: usize = size_of::<Handle>() + 16;

/// Bytes of descriptions that are beside the tier of memory, as what bytes go through is: a small tier is still one for
/// bytes.
const BESIDE: u64 = 1 << 20;

/// Of what memory may hold, other descriptions may take no more than all but one part in so many.
const LEFT: u64 = 8;

/// The capacity follows descriptions in steps of one part in so many of what memory may hold, so that most calls change
/// nothing;
const STEPS: u64 = 256;
/// but not in smaller ones.
const LEAST_STEP: u64 = 64 << 10;

/// While less than one part in so many lies unused between buffers, nothing is taken off for it.
const UNUSED: u64 = 64;

impl Place {
    /// What a copy takes is counted in multiples of so many bytes.
    pub(super) fn unit(&self) -> u64 {
        match self {
            Self::Memory(_) => CACHE_LINE as u64,
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

    /// Follows what describes buffers.
    pub(super) fn describe(&mut self, shared: &Shared) -> Option<Event> {
        let tier = shared.memory()?;
        let most = self.most[usize::from(tier)];
        let described = self.descriptions.saturating_sub(BESIDE);
        if described.abs_diff(self.described) < (most / STEPS).max(LEAST_STEP) {
            return None;
        }
        self.described = described;
        Some(Event::Resize { tier, capacity: self.allowed(shared, tier, most) })
    }

    /// # Errors
    /// [`Error::TooMany`]: so many bytes more cannot describe a buffer.
    pub(super) fn has_description(&self, shared: &Shared, more: u64) -> Result<(), Error> {
        let most = shared.memory().map_or(u64::MAX, |tier| self.most[usize::from(tier)]);
        let fits = self.descriptions.saturating_add(more) <= (most - most / LEFT).saturating_add(BESIDE);
        if fits { Ok(()) } else { Err(Error::TooMany { buffers: self.bodies.len() }) }
    }
}

impl Shared {
    /// Bytes that describe a buffer with chunks of so many bytes, at most.
    pub(super) fn description(&self, bytes: u64, chunk: usize, name: Option<&str>) -> u64 {
        let files = self.tiers().filter(|tier| self.kind(*tier) == TierKind::File).count() as u64;
        let durable = if name.is_some() && files > 0 { DURABLE } else { 0 };
        let chunks = bytes.div_ceil(chunk as u64).saturating_mul(VERSION + files * PIECE + durable);
        let named = name.map_or(0, |name| NAMED + NAMES * name.len() as u64);
        (DESCRIPTION + named).saturating_add(chunks)
    }

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
fn unused(frames: &FramePool) -> u64 {
    frames.resident().saturating_sub(frames.usage().0) as u64
}
