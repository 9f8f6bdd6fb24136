//! Expandable segments: pages mapped under a reservation that is larger than the device.
//!
//! Promises upward: space is taken at the lowest address of the owner where free and unmapped neighbours together
//! suffice; pages mapped before a failure stay as free blocks.
//! Asks from below: a growing source whose pages divide 2 MiB.

use terrace_core::{Fence, Source, SourceError};

use super::options::{LARGE_SEGMENT, SMALL_POOL, SMALL_SEGMENT};
use super::{PyTorch, Want};
use crate::chunks::{NONE, State};

/// The most address space that is reserved at once: 16 TiB, far more than any device has.
const SPACE_MAX: u64 = 16 << 40;

/// Bytes that a pool maps and unmaps at once: 2 MiB for the small pool, 20 MiB for the large one.
pub(super) const fn page_of(pool: usize) -> u64 {
    if pool == SMALL_POOL { SMALL_SEGMENT } else { LARGE_SEGMENT }
}

impl<S: Source, F: Fence> PyTorch<S, F> {
    /// Maps what the request lacks; the chunk returned is free, in no pool, and large enough.
    pub(super) fn expand(&mut self, want: &Want) -> Result<u32, SourceError> {
        let mut slot = self.find_space(want)?;
        if self.chain.chunks[slot].state == State::Unmapped {
            slot = self.map_pages(slot, want.bytes)?;
        }
        while self.chain.chunks[slot].bytes < want.bytes {
            // `find_space` chose a run of free and unmapped chunks; mapped pages merge, so the next one is unmapped.
            let missing = want.bytes - self.chain.chunks[slot].bytes;
            let next = self.chain.chunks[slot].next;
            if next == NONE || self.chain.chunks[next].state != State::Unmapped {
                return Err(SourceError::Misuse("the space found has no room to grow"));
            }
            slot = self.map_pages(next, missing)?;
        }
        let pool = want.pool;
        self.pools[pool].remove(&self.chain, slot);
        Ok(slot)
    }

    /// The lowest run of free and unmapped chunks of the owner with room for the request, or a new reservation.
    fn find_space(&mut self, want: &Want) -> Result<u32, SourceError> {
        for unmapped in self.pools[want.pool].unmapped(want.owner) {
            // A free chunk right before belongs to the run.
            let [before, _] = self.chain.neighbours(unmapped, State::Free);
            let first = before.unwrap_or(unmapped);
            if self.has_room(first, want.bytes) {
                return Ok(first);
            }
        }
        let page = page_of(want.pool);
        let capacity = self.source.usage().capacity;
        // PyTorch reserves 9/8 of the device's memory.
        let space = if capacity == 0 { SPACE_MAX } else { capacity.saturating_add(capacity / 8) };
        let region = self.source.reserve(space.min(SPACE_MAX).max(want.bytes).next_multiple_of(page))?;
        let slot = self.chain.add_segment(region, want.owner, want.pool);
        self.chain.chunks[slot].state = State::Unmapped;
        self.pools[want.pool].insert(&mut self.chain, slot);
        Ok(slot)
    }

    /// Whether the chunks from `slot` on that are free or unmapped add up to `bytes`.
    fn has_room(&self, slot: u32, bytes: u64) -> bool {
        let (mut slot, mut room) = (slot, 0);
        while slot != NONE && room < bytes {
            let chunk = &self.chain.chunks[slot];
            if !matches!(chunk.state, State::Free | State::Unmapped) {
                return false;
            }
            room += chunk.bytes;
            slot = chunk.next;
        }
        room >= bytes
    }

    /// Maps the first `bytes` of an unmapped chunk, rounded up to pages and at most all of it, and merges the result
    /// with its free neighbours; returns the free chunk, which is in its pool.
    fn map_pages(&mut self, slot: u32, bytes: u64) -> Result<u32, SourceError> {
        let Some(segment) = self.chain.segment(slot) else {
            return Err(SourceError::Misuse("a chunk lies in a segment"));
        };
        let chunk = self.chain.chunks[slot];
        // Unmapped chunks begin and end on the pool's page grid.
        let page = page_of(segment.pool);
        let bytes = bytes.next_multiple_of(page).min(chunk.bytes);
        self.source.map(segment.region, chunk.address - segment.region.base, bytes)?;
        self.handles += bytes / page;
        self.driver_calls += 2 * (bytes / page) + 1;
        self.pools[segment.pool].remove(&self.chain, slot);
        if bytes < chunk.bytes {
            let rest = self.chain.split(slot, bytes);
            self.pools[segment.pool].insert(&mut self.chain, rest);
        }
        self.chain.chunks[slot].state = State::Free;
        Ok(self.merge_and_insert(slot))
    }
}
