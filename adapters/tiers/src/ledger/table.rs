//! The table of buffers, by index.
//!
//! Promises upward: an id is used once; indices are small and reused, last freed first.
//! Asks from below: nothing.

use super::error::Rejected;
use super::types::{BufferId, PlacementHint};
use std::ops::{Index, IndexMut};
use terrace_core::residence::{Residence, Tier};

/// The migration in progress of a buffer, which has at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Migration {
    Copy {
        from: Tier,
        to: Tier,
        /// Whether room in `to` was reserved for the copy: not if it overwrites a stale copy there.
        reserved: bool,
        /// Whether the copy in `from` is dropped after the copy to `to` is done.
        evict_source: bool,
    },
    Drop {
        tier: Tier,
    },
}

/// A requested move that has not ended; a buffer has at most one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MoveRequest {
    pub to: Tier,
    pub kind: MoveKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveKind {
    /// A promotion that a user requested.
    Promote,
    /// A promotion on a second touch. Its end is not reported to the user.
    SecondTouch,
    /// A promotion of a buffer that will be used soon: it evicts no other that was prefetched and not used yet.
    Prefetch,
    Demote,
    Replicate,
}

impl MoveRequest {
    /// Whether the move is a promotion, which waits while the ledger makes room for allocations.
    pub(super) fn is_promotion(self) -> bool {
        matches!(self.kind, MoveKind::Promote | MoveKind::SecondTouch | MoveKind::Prefetch)
    }

    /// Whether the end of the move is reported to the user.
    pub(super) fn is_reported(self) -> bool {
        self.kind != MoveKind::SecondTouch
    }
}

/// Why a buffer that arrived in a tier is spared until it is used, while others are enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// It was prefetched.
    Prefetch,
    /// A user had it promoted, or waits for it: if it left before its lease, it would be promoted again, without end.
    Promotion,
}

/// The ledger's record of one buffer.
#[derive(Clone, Debug)]
pub(super) struct BufferRecord {
    pub id: BufferId,
    pub bytes: u64,
    pub tenant: u16,
    pub hint: PlacementHint,
    pub residence: Residence,
    pub version: u64,
    /// The tier of the copy that survives a power cut, and the version of that copy.
    pub synced: Option<(Tier, u64)>,
    pub migration: Option<Migration>,
    pub pending_move: Option<MoveRequest>,
    /// Whether the buffer is in the queue of demotions and replications, and whether it is in the queue of promotions.
    pub queued: [bool; 2],
    /// Whether the buffer is not moved until the next tick, or until its lease is released. Implies `in_deferred_list`.
    pub deferred: bool,
    /// Whether the buffer is in the ledger's list of deferred buffers, which the next tick empties.
    pub in_deferred_list: bool,
    /// Whether the eviction plan that is being made has chosen the buffer, so that no second plan may choose it.
    pub selected: bool,
    /// Why the buffer is spared until it is used.
    pub awaited: Option<Awaited>,
    /// Whether the user freed the buffer during a migration; the buffer is forgotten when that ends.
    pub freed: bool,
    /// The time of the last touch; `None` if that was the second one within the window.
    pub last_touch: Option<u64>,
    /// The ticket of the buffer's request, until the buffer is first used.
    pub ticket: Option<u64>,
}

impl BufferRecord {
    /// A record of a new buffer.
    pub(super) fn new(bytes: u64, tenant: u16, hint: PlacementHint, residence: Residence, ticket: u64) -> Self {
        Self {
            id: BufferId { index: 0, generation: 0 },
            bytes,
            tenant,
            hint,
            residence,
            version: 0,
            synced: None,
            migration: None,
            pending_move: None,
            queued: [false; 2],
            deferred: false,
            in_deferred_list: false,
            selected: false,
            awaited: None,
            freed: false,
            last_touch: None,
            ticket: Some(ticket),
        }
    }

    /// Whether the copy in a tier can be dropped without losing bytes: another copy has them or they are stale, and
    /// this is not the copy that survives a power cut.
    pub(super) fn is_redundant(&self, tier: Tier) -> bool {
        let mut without = self.residence;
        let kept = self.synced.is_some_and(|(synced, _)| synced == tier);
        !kept && without.apply(terrace_core::residence::Transition::Evict(tier)).is_ok()
    }
}

/// Records by index; some indices are free.
#[derive(Debug, Default)]
pub(super) struct BufferTable {
    entries: Vec<Option<BufferRecord>>,
    /// The generation of the next id at each index.
    generations: Vec<u32>,
    free: Vec<u32>,
    live: usize,
}

impl BufferTable {
    /// Inserts a record and assigns its id.
    pub(super) fn insert(&mut self, mut buffer: BufferRecord) -> BufferId {
        let index = self.free.pop().unwrap_or(self.entries.len() as u32);
        if index as usize == self.entries.len() {
            self.entries.push(None);
            self.generations.push(0);
        }
        let id = BufferId { index, generation: self.generations[index as usize] };
        buffer.id = id;
        self.entries[index as usize] = Some(buffer);
        self.live += 1;
        id
    }

    /// Removes a record. An index whose generations are used up is not reused.
    pub(super) fn remove(&mut self, index: u32) {
        self.entries[index as usize] = None;
        self.live -= 1;
        if let Some(next) = self.generations[index as usize].checked_add(1) {
            self.generations[index as usize] = next;
            self.free.push(index);
        }
    }

    /// Whether one more record fits. The index 2^32 - 1 is not used, as policies use it for "none".
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.entries.len() < u32::MAX as usize
    }

    /// Returns the index of a buffer that is not freed.
    pub(super) fn find(&self, id: BufferId) -> Result<u32, Rejected> {
        match self.get(id.index) {
            Some(buffer) if buffer.id == id && !buffer.freed => Ok(id.index),
            _ => Err(Rejected::Stale),
        }
    }

    /// A record by index, also of a buffer that was freed during a migration.
    pub(super) fn get(&self, index: u32) -> Option<&BufferRecord> {
        self.entries.get(index as usize)?.as_ref()
    }

    /// All records.
    pub(super) fn iter(&self) -> impl Iterator<Item = &BufferRecord> {
        self.entries.iter().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.live
    }
}

impl Index<u32> for BufferTable {
    type Output = BufferRecord;

    /// Panics if the index has no record; the caller must know that it has one.
    fn index(&self, index: u32) -> &BufferRecord {
        self.entries[index as usize].as_ref().expect("a number in a list of the ledger is that of a buffer")
    }
}

impl IndexMut<u32> for BufferTable {
    fn index_mut(&mut self, index: u32) -> &mut BufferRecord {
        self.entries[index as usize].as_mut().expect("a number in a list of the ledger is that of a buffer")
    }
}

/// Bytes that the table takes for each buffer.
pub(super) const RECORD_BYTES: usize = size_of::<Option<BufferRecord>>() + size_of::<u32>();
