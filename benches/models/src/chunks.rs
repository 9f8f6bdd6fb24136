//! Records of pieces of memory, in slots that are used again, and the names of the live ones.
//!
//! Promises upward: slots stay valid until removed; a ticket is never given twice, so a stale name is recognised
//! even when its slot describes another block.
//! Asks from below: nothing.

use terrace_core::error::ensure;
use terrace_core::{Block, FreeError, Owner, Request, Violation};

use crate::counters::Counters;

/// "No slot".
pub(crate) const NONE: u32 = u32::MAX;

/// What a piece of memory is good for at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The slot describes nothing.
    Spare,
    /// Handed out.
    Live,
    /// On a free list of its model.
    Free,
    /// Freed, but a fence must open first (for all, or for all but one owner: the model's rule).
    Held,
    /// Freed, but its fence failed: never used again.
    Lost,
    /// Address space without memory under it.
    Unmapped,
}

/// One piece of a segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub address: u64,
    /// At least 1, but in a spare slot.
    pub bytes: u64,
    /// Bytes asked for, while live.
    pub requested: u64,
    /// Ticket of the last hand-out, 0 before the first.
    pub ticket: u64,
    /// The model's own: age (PyTorch), ticket of the fence (BFC).
    pub stamp: u64,
    /// Whose it is: the allocating owner, or the freeing one while held.
    pub owner: Owner,
    pub segment: u32,
    /// Neighbours in the segment by address, `NONE` at its ends.
    pub prev: u32,
    pub next: u32,
    pub state: State,
}

impl Chunk {
    /// A free piece without neighbours.
    pub(crate) fn new(address: u64, bytes: u64, owner: Owner, segment: u32) -> Self {
        let state = State::Free;
        Self { address, bytes, requested: 0, ticket: 0, stamp: 0, owner, segment, prev: NONE, next: NONE, state }
    }

    /// First address after the piece.
    pub(crate) fn end(&self) -> u64 {
        self.address + self.bytes
    }
}

/// A slab of chunks.
#[derive(Clone, Debug)]
pub(crate) struct Chunks {
    all: Vec<Chunk>,
    /// Exactly the slots whose state is `Spare`.
    spare: Vec<u32>,
    /// Greater than every ticket given.
    next_ticket: u64,
}

impl Chunks {
    pub(crate) fn new() -> Self {
        Self { all: Vec::new(), spare: Vec::new(), next_ticket: 1 }
    }

    /// Whether an operation that needs up to eight new slots might not find them.
    pub(crate) fn full(&self) -> bool {
        self.spare.len() < 8 && self.all.len() >= NONE as usize - 8
    }

    pub(crate) fn add(&mut self, chunk: Chunk) -> u32 {
        match self.spare.pop() {
            Some(slot) => {
                self.all[slot as usize] = chunk;
                slot
            }
            None => {
                self.all.push(chunk);
                // Below `NONE`: models ask `full` before they begin.
                (self.all.len() - 1) as u32
            }
        }
    }

    pub(crate) fn remove(&mut self, slot: u32) {
        self[slot].state = State::Spare;
        self.spare.push(slot);
    }

    /// Marks the chunk live for `request` and names it. The chunk holds the request and its alignment padding.
    pub(crate) fn hand_out(&mut self, slot: u32, request: Request) -> Block {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let chunk = &mut self[slot];
        chunk.state = State::Live;
        chunk.ticket = ticket;
        chunk.requested = request.bytes;
        chunk.owner = request.owner;
        let address = chunk.address.next_multiple_of(request.align);
        Block { address, bytes: chunk.end() - address, slot, region: chunk.segment, ticket }
    }

    /// The slot that `block` names, when it is live.
    pub(crate) fn live(&self, block: Block) -> Result<u32, FreeError> {
        let address = block.address;
        let known = block.ticket != 0 && block.ticket < self.next_ticket;
        let Some(chunk) = self.all.get(block.slot as usize).filter(|_| known) else {
            return Err(FreeError::Foreign { address });
        };
        if chunk.state != State::Live || chunk.ticket != block.ticket {
            return Err(FreeError::Stale { address });
        }
        let inside = address >= chunk.address && address.checked_add(block.bytes) == Some(chunk.end());
        if inside { Ok(block.slot) } else { Err(FreeError::Foreign { address }) }
    }

    /// Every slot in use, with its chunk.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Chunk)> {
        let slots = self.all.iter().enumerate().map(|(slot, chunk)| (slot as u32, chunk));
        slots.filter(|(_, chunk)| chunk.state != State::Spare)
    }

    /// Slots in use.
    pub(crate) fn len(&self) -> usize {
        self.all.len() - self.spare.len()
    }

    /// Bytes of the records.
    pub(crate) fn metadata(&self) -> u64 {
        (self.all.len() * size_of::<Chunk>() + self.spare.len() * size_of::<u32>()) as u64
    }

    /// Verifies the spare list and compares the live records with `counters`.
    pub(crate) fn check(&self, counters: &Counters) -> Result<(), Violation> {
        let (mut live, mut in_use, mut requested, mut used) = (0, 0, 0, 0);
        for (slot, chunk) in self.iter() {
            used += 1;
            ensure(chunk.bytes > 0, "a chunk has at least one byte", slot)?;
            ensure(chunk.ticket < self.next_ticket, "next_ticket is greater than every ticket", slot)?;
            if chunk.state == State::Live {
                (live, in_use, requested) = (live + 1, in_use + chunk.bytes, requested + chunk.requested);
                ensure(chunk.requested <= chunk.bytes, "a live chunk holds what was asked for", slot)?;
            }
        }
        ensure(used == self.len(), "spare names exactly the spare slots", used as u64)?;
        counters.check(live, in_use, requested)
    }
}

impl std::ops::Index<u32> for Chunks {
    type Output = Chunk;

    fn index(&self, slot: u32) -> &Chunk {
        &self.all[slot as usize]
    }
}

impl std::ops::IndexMut<u32> for Chunks {
    fn index_mut(&mut self, slot: u32) -> &mut Chunk {
        &mut self.all[slot as usize]
    }
}
