//! Segments cut into chunks that know their neighbours: what PyTorch's allocator and BFC share.
//!
//! Promises upward: the chunks of a segment tile it, in address order; splitting keeps the low part in its slot,
//! joining keeps the lower chunk's slot; nothing ever joins across segments.
//! Asks from below: [`Chunks`].

use terrace_core::{Owner, Region, Violation};

use crate::chunks::{Chunk, Chunks, NONE, State};
use terrace_core::error::ensure;

/// One region of the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub region: Region,
    /// Slot of the chunk at the region's base. It stays the same while the segment lives.
    pub first: u32,
    /// Which of the model's pools it belongs to.
    pub pool: usize,
}

/// Segments and their chunks.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub chunks: Chunks,
    /// Indexed by `Chunk::segment`.
    segments: Vec<Option<Segment>>,
    /// Exactly the indices of `segments` that are `None`.
    spare: Vec<u32>,
}

impl Chain {
    pub(crate) fn new() -> Self {
        Self { chunks: Chunks::new(), segments: Vec::new(), spare: Vec::new() }
    }

    /// Adds a region as one free chunk of `owner`; returns its slot.
    pub(crate) fn add_segment(&mut self, region: Region, owner: Owner, pool: usize) -> u32 {
        let index = self.spare.pop().unwrap_or_else(|| {
            self.segments.push(None);
            (self.segments.len() - 1) as u32
        });
        let first = self.chunks.add(Chunk::new(region.base, region.bytes, owner, index));
        self.segments[index as usize] = Some(Segment { region, first, pool });
        first
    }

    /// Forgets the segment that `slot` fills alone.
    pub(crate) fn remove_segment(&mut self, slot: u32) {
        let index = self.chunks[slot].segment;
        self.segments[index as usize] = None;
        self.spare.push(index);
        self.chunks.remove(slot);
    }

    /// The segment a chunk lies in.
    pub(crate) fn segment(&self, slot: u32) -> Option<Segment> {
        self.segments.get(self.chunks[slot].segment as usize).copied().flatten()
    }

    /// All segments.
    pub(crate) fn segments(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().flatten()
    }

    /// Whether a chunk fills its segment alone.
    pub(crate) fn is_whole(&self, slot: u32) -> bool {
        let chunk = &self.chunks[slot];
        chunk.prev == NONE && chunk.next == NONE
    }

    /// Cuts a chunk after `low` bytes (fewer than it has); the high part, in the same state, gets a new slot.
    pub(crate) fn split(&mut self, slot: u32, low: u64) -> u32 {
        let chunk = &mut self.chunks[slot];
        let (address, bytes, old_next) = (chunk.address + low, chunk.bytes - low, chunk.next);
        let high = Chunk { address, bytes, requested: 0, ticket: 0, prev: slot, ..*chunk };
        chunk.bytes = low;
        let high = self.chunks.add(high);
        self.chunks[slot].next = high;
        if old_next != NONE {
            self.chunks[old_next].prev = high;
        }
        high
    }

    /// Lets a chunk swallow its next neighbour, which it has.
    pub(crate) fn join_next(&mut self, slot: u32) {
        let next = self.chunks[slot].next;
        let Chunk { bytes, next: after, .. } = self.chunks[next];
        let chunk = &mut self.chunks[slot];
        chunk.bytes += bytes;
        chunk.next = after;
        if after != NONE {
            self.chunks[after].prev = slot;
        }
        self.chunks.remove(next);
    }

    /// The neighbours (previous, next) that are in `state`.
    pub(crate) fn neighbours(&self, slot: u32, state: State) -> [Option<u32>; 2] {
        let chunk = &self.chunks[slot];
        [chunk.prev, chunk.next].map(|near| (near != NONE && self.chunks[near].state == state).then_some(near))
    }

    /// Bytes of the records.
    pub(crate) fn metadata(&self) -> u64 {
        self.chunks.metadata() + (self.segments.len() * size_of::<Option<Segment>>()) as u64
    }

    /// Verifies that the chunks tile their segments and that every chunk lies in one.
    pub(crate) fn check(&self) -> Result<(), Violation> {
        let mut visited = 0;
        for (index, segment) in self.segments.iter().enumerate() {
            let Some(segment) = segment else { continue };
            let (mut slot, mut prev, mut address) = (segment.first, NONE, segment.region.base);
            while slot != NONE {
                let chunk = &self.chunks[slot];
                ensure(chunk.state != State::Spare, "a chain holds no spare slots", slot)?;
                ensure(chunk.address == address, "chunks tile their segment", address)?;
                ensure(chunk.prev == prev, "prev and next mirror each other", slot)?;
                ensure(chunk.segment as usize == index, "a chunk names the segment it lies in", slot)?;
                visited += 1;
                ensure(visited <= self.chunks.len(), "chains have no loops", slot)?;
                (prev, address, slot) = (slot, chunk.end(), chunk.next);
            }
            let end = segment.region.base + segment.region.bytes;
            ensure(address == end, "chunks fill their segment", address)?;
        }
        ensure(visited == self.chunks.len(), "every chunk lies in a segment", visited as u64)?;
        let free = self.segments.iter().filter(|segment| segment.is_none()).count();
        ensure(free == self.spare.len(), "spare names exactly the unused segment records", free as u64)
    }
}
