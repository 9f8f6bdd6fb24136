//! Accounts for memory that buffers take beside their bytes: their metadata, wherever their bytes are, and unused bytes
//! between them. The memory tier's capacity is reduced by that, so that all together stays within the configured limit.
//!
//! From its request on a buffer counts with the most that its metadata can grow to: all its chunks in all file tiers,
//! and durable if it has a name. So what was allocated can be written and made durable, and what was durable can be
//! recovered.

use super::buffer_state::{BufferState, NameRecord};
use super::dormant::DormantBuffer;
use super::error::Error;
use super::handle::Handle;
use super::state::State;
use super::{ManagerShared, TierStorage};
use crate::ledger::{self, BufferId, LedgerEvent, Medium};
use std::sync::Arc;
use terrace_core::Slot;
use terrace_core::residence::Tier;
use terrace_file::{CACHE_LINE, FramePool, Object, Piece};

/// Bytes of metadata of every buffer: its state with reference counts, the user's handle, its entry in the manager's
/// table, and what the ledger and the memory's allocator keep for it.
const DESCRIPTION: u64 =
    (size_of::<BufferState>() + 16 + HANDLE + size_of::<(BufferId, usize)>() + ledger::DESCRIPTION + size_of::<Slot>())
        as u64;

/// Additional bytes of metadata of a named buffer: the record of its name and its entry in the manager's tables; in the
/// store, the object's entry (its number and itself), and the reference counts of the name and of the store's metadata. A
/// table of names that grows has up to four places for each, a table of objects is at least half full.
const NAMED: u64 = (size_of::<NameRecord>()
    + 4 * (size_of::<(Arc<str>, Option<BufferId>)>() + 1)
    + size_of::<DormantBuffer>()
    + 2 * size_of::<(u64, Object)>()
    + 2 * 16) as u64;

/// Number of copies of the name: in the manager, in the store's metadata.
const NAMES: u64 = 2;

/// Bytes of the first node of an object's table of parts: one part needs none.
const PARTS: u64 = 192;

/// Bytes that the version of a chunk takes.
const VERSION: u64 = size_of::<u64>() as u64;

/// Bytes of metadata of a chunk in a file tier: its entry in the copy, the piece (64 bytes) and its extent (80) with
/// their reference counts, and two slots of its slab, for the extent and for the free extent behind it.
const PIECE: u64 = (size_of::<Option<(Arc<Piece>, u64)>>() + 64 + 80 + 2 * size_of::<Slot>()) as u64;

/// Additional bytes of metadata of a durable chunk: its durable version, its entry in the object's parts (twice, as
/// these are at least half full), and the durable piece that remains while a newer one is written.
const DURABLE: u64 = VERSION + 2 * size_of::<(u32, Arc<Piece>)>() as u64 + PIECE;

/// Bytes of a user's handle with its reference counts.
const HANDLE: usize = size_of::<Handle>() + 16;

/// Bytes of metadata that do not reduce the memory tier's capacity, so that even a small memory tier has room for
/// buffers.
const BESIDE: u64 = 1 << 20;

/// Metadata beyond `BESIDE` may take all of the memory tier's limit except one part in this many.
const LEFT: u64 = 8;

/// The memory tier's capacity is adjusted to metadata in steps of one part in this many of its limit, so that most
/// calls do not change it.
const STEPS: u64 = 256;
/// The smallest step, in bytes, in which the memory tier's capacity is adjusted to metadata.
const LEAST_STEP: u64 = 64 << 10;

/// Unused bytes between buffers reduce the memory tier's capacity only above one part in this many of its limit.
const UNUSED: u64 = 64;

/// Free bytes that stay resident: for small and for other buffers, memory is mapped up to the end of a huge page of 2 MiB.
const MAPPED_AHEAD: u64 = 4 << 20;

impl TierStorage {
    /// The size of a copy in the tier is a multiple of this many bytes.
    pub(super) fn unit(&self) -> u64 {
        match self {
            Self::Memory(_) => CACHE_LINE as u64,
            // The alignment of drivers.
            Self::Joint(_) | Self::Device(_) => 512,
            // The unit of writes to disks.
            Self::File(_) => terrace_file::ALIGN as u64,
        }
    }
}

impl State {
    /// Returns the capacity that a tier has: its limit; the memory tier's is reduced by metadata and by unused bytes.
    pub(super) fn allowed(&self, shared: &ManagerShared, tier: Tier) -> u64 {
        let most = self.limits[usize::from(tier)];
        if shared.memory() == Some(tier) { most.saturating_sub(self.metadata_deducted + self.unused) } else { most }
    }

    /// Returns the event that resizes the memory tier, if metadata has grown or shrunk by at least a step since the
    /// last one.
    pub(super) fn metadata_resize(&mut self, shared: &ManagerShared) -> Option<LedgerEvent> {
        let tier = shared.memory()?;
        let most = self.limits[usize::from(tier)];
        let metadata_deducted = self.metadata.saturating_sub(BESIDE);
        if metadata_deducted.abs_diff(self.metadata_deducted) < (most / STEPS).max(LEAST_STEP) {
            return None;
        }
        self.metadata_deducted = metadata_deducted;
        Some(LedgerEvent::Resize { tier, capacity: self.allowed(shared, tier) })
    }

    /// # Errors
    /// [`Error::TooMany`] if `more` further bytes of metadata do not fit into the memory tier's limit.
    pub(super) fn check_metadata_room(&self, shared: &ManagerShared, more: u64) -> Result<(), Error> {
        let most = shared.memory().map_or(u64::MAX, |tier| self.limits[usize::from(tier)]);
        let fits = self.metadata.saturating_add(more) <= (most - most / LEFT).saturating_add(BESIDE);
        if fits { Ok(()) } else { Err(Error::TooMany { buffers: self.buffers.len() + self.dormant.len() }) }
    }
}

impl ManagerShared {
    /// Returns the most bytes of metadata that a buffer with chunks of this size can take.
    pub(super) fn metadata_bytes(&self, bytes: u64, chunk: usize, name: Option<&str>) -> u64 {
        let files = self.tiers().filter(|tier| self.medium(*tier) == Medium::File).count() as u64;
        let durable = if name.is_some() && files > 0 { DURABLE } else { 0 };
        let chunks = bytes.div_ceil(chunk as u64).saturating_mul(VERSION + files * PIECE + durable);
        let parts = if bytes > chunk as u64 { PARTS } else { 0 };
        let named = name.map_or(0, |name| NAMED + NAMES * name.len() as u64 + parts);
        (DESCRIPTION + named).saturating_add(chunks)
    }

    /// The tier of the machine's memory, if there is one.
    pub(super) fn memory(&self) -> Option<Tier> {
        self.tiers().find(|tier| self.medium(*tier) == Medium::Memory)
    }

    /// Evicts `bytes` bytes from the memory tier, whose free bytes are fragmented, by reducing its capacity for a
    /// while. Returns false if none can leave.
    pub(super) fn evict_for_space(self: &Arc<Self>, tier: Tier, bytes: u64) -> bool {
        let mut state = self.state();
        let Some(before) = state.ledger.tier(tier) else { return false };
        state.fragmented = true;
        if before.leaving == 0 {
            let _ = state.handle(self, LedgerEvent::Budget { tier, bytes: before.used.saturating_sub(bytes) });
        }
        let after = state.ledger.tier(tier);
        self.unlock(state);
        // Redundant copies are dropped at once, which reduces `used`.
        after.is_some_and(|after| after.leaving > 0 || after.used < before.used)
    }

    /// Restores the capacity that [`evict_for_space`](Self::evict_for_space) took.
    pub(super) fn restore_capacity(self: &Arc<Self>, tier: Tier) {
        let mut state = self.state();
        let bytes = state.budget(tier);
        let _ = state.handle(self, LedgerEvent::Budget { tier, bytes });
        self.unlock(state);
    }

    /// Restores the capacity that [`evict_for_space`](Self::evict_for_space) took, less the bytes that still lie unused
    /// between buffers.
    pub(super) fn reclaim_unused_memory(self: &Arc<Self>) {
        let Some(tier) = self.memory() else { return };
        let Some(TierStorage::Memory(frames)) = self.storage(tier) else { return };
        let (fragmented, capacity) = {
            let state = self.state();
            (state.fragmented, state.ledger.tier(tier).map_or(0, |view| view.capacity))
        };
        // What metadata takes of the tier's capacity goes back to the system: free pages stay resident otherwise.
        if fragmented || frames.resident() as u64 > capacity && unused(frames) > MAPPED_AHEAD {
            frames.trim();
        }
        if !fragmented {
            return;
        }
        let unused = unused(frames);
        let mut state = self.state();
        let most = state.limits[usize::from(tier)];
        state.fragmented = unused > most / UNUSED;
        state.unused = if state.fragmented { unused } else { 0 };
        let (capacity, bytes) = (state.allowed(self, tier), state.budget(tier));
        let _ = state.handle(self, LedgerEvent::Resize { tier, capacity });
        let _ = state.handle(self, LedgerEvent::Budget { tier, bytes });
        self.unlock(state);
    }
}

/// Bytes of memory pages that are in use only in part, less the bytes that buffers use in them.
fn unused(frames: &FramePool) -> u64 {
    frames.resident().saturating_sub(frames.usage().0) as u64
}
