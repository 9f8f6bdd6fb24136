//! The buffers, by number.
//!
//! Promises upward: a name is given once; numbers are small and used again, the last one freed first.
//! Asks from below: nothing.

use super::error::Rejected;
use super::types::{BufferId, PlacementHint};
use std::ops::{Index, IndexMut};
use terrace_core::residence::{Residence, Tier};

/// What is under way with a buffer: at most one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Migration {
    Copy {
        from: Tier,
        to: Tier,
        /// Room in the target was taken for it.
        reserved: bool,
        /// The copy in `from` is dropped after it.
        evict_source: bool,
    },
    Drop {
        tier: Tier,
    },
}

/// What is wanted of a buffer: at most one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MoveRequest {
    pub to: Tier,
    pub kind: MoveKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveKind {
    /// The user's promotion.
    Promote,
    /// That of a second touch: nobody is told what became of it.
    SecondTouch,
    /// As [`MoveKind::SecondTouch`], if there is room.
    Prefetch,
    Demote,
    Replicate,
}

impl MoveRequest {
    /// Whether it waits behind allocations.
    pub(super) fn is_promotion(self) -> bool {
        matches!(self.kind, MoveKind::Promote | MoveKind::SecondTouch | MoveKind::Prefetch)
    }

    /// Whether the user is told what became of it.
    pub(super) fn is_reported(self) -> bool {
        !matches!(self.kind, MoveKind::SecondTouch | MoveKind::Prefetch)
    }
}

/// One buffer.
#[derive(Clone, Debug)]
pub(super) struct BufferRecord {
    pub id: BufferId,
    pub bytes: u64,
    pub tenant: u16,
    pub hint: PlacementHint,
    pub residence: Residence,
    pub version: u64,
    /// The tier of the copy that survives a power cut, and its version.
    pub synced: Option<(Tier, u64)>,
    pub migration: Option<Migration>,
    pub pending_move: Option<MoveRequest>,
    /// Whether it stands in the queue of wishes that lead down, and of those that lead up.
    pub queued: [bool; 2],
    /// Not moved until the next tick, or until its lease is given back. Only while it stands in the ledger's list.
    pub deferred: bool,
    /// It stands in the list of those that rest, where it stays until the next tick.
    pub in_deferred_list: bool,
    /// In a plan that is being made: in no second one.
    pub selected: bool,
    /// Freed while something is under way: forgotten when that ends.
    pub freed: bool,
    /// When it was touched last, unless it was promoted for that.
    pub last_touch: Option<u64>,
    /// Its request, until it is used.
    pub ticket: Option<u64>,
}

impl BufferRecord {
    /// A new one.
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
            freed: false,
            last_touch: None,
            ticket: Some(ticket),
        }
    }

    /// Whether the copy in a tier may be dropped as far as its bytes go: they are elsewhere or old, and not what is
    /// left after a power cut.
    pub(super) fn is_redundant(&self, tier: Tier) -> bool {
        let mut without = self.residence;
        let kept = self.synced.is_some_and(|(synced, _)| synced == tier);
        !kept && without.apply(terrace_core::residence::Transition::Evict(tier)).is_ok()
    }
}

/// Buffers, some of whose numbers are free.
#[derive(Debug, Default)]
pub(super) struct BufferTable {
    entries: Vec<Option<BufferRecord>>,
    /// Each number's next generation.
    generations: Vec<u32>,
    free: Vec<u32>,
    live: usize,
}

impl BufferTable {
    /// Takes a buffer in and names it.
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

    /// Takes one out. A number whose generations are used up is not given again.
    pub(super) fn remove(&mut self, index: u32) {
        self.entries[index as usize] = None;
        self.live -= 1;
        if let Some(next) = self.generations[index as usize].checked_add(1) {
            self.generations[index as usize] = next;
            self.free.push(index);
        }
    }

    /// Whether there is a number for one more. The last number is kept out: policies use it for nobody.
    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty() || self.entries.len() < u32::MAX as usize
    }

    /// The number of a buffer that was not freed.
    pub(super) fn find(&self, id: BufferId) -> Result<u32, Rejected> {
        match self.get(id.index) {
            Some(buffer) if buffer.id == id && !buffer.freed => Ok(id.index),
            _ => Err(Rejected::Stale),
        }
    }

    /// A buffer by number, doomed ones too.
    pub(super) fn get(&self, index: u32) -> Option<&BufferRecord> {
        self.entries.get(index as usize)?.as_ref()
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &BufferRecord> {
        self.entries.iter().flatten()
    }

    pub(super) fn len(&self) -> usize {
        self.live
    }
}

impl Index<u32> for BufferTable {
    type Output = BufferRecord;

    /// The caller knows it is there.
    fn index(&self, index: u32) -> &BufferRecord {
        self.entries[index as usize].as_ref().expect("a number in a list of the ledger is that of a buffer")
    }
}

impl IndexMut<u32> for BufferTable {
    fn index_mut(&mut self, index: u32) -> &mut BufferRecord {
        self.entries[index as usize].as_mut().expect("a number in a list of the ledger is that of a buffer")
    }
}

/// Bytes of the table for each buffer.
pub(super) const RECORD_BYTES: usize = size_of::<Option<BufferRecord>>() + size_of::<u32>();
