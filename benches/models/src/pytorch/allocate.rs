//! Allocation: search, the source, the last resort, the split; and what a free does to the neighbours.
//!
//! Promises upward: PyTorch's order of attempts; a chunk out of a pool is either handed out or put back.
//! Asks from below: the pools, and [`Chain`](crate::chain::Chain) for neighbours.

use terrace_core::{AllocError, Block, Fence, Request, Source, SourceError};

use super::options::{LARGE_POOL, MIN_BLOCK, SMALL, SMALL_POOL, segment_bytes};
use super::{PyTorch, Want};
use crate::chunks::State;
use crate::request::refusal;

impl<S: Source, F: Fence> PyTorch<S, F> {
    /// Serves a request that needs `bytes` with its padding.
    pub(super) fn allocate_padded(&mut self, request: Request, bytes: u64) -> Result<Block, AllocError> {
        if !self.waiting.is_empty() {
            self.process_events(false);
        }
        let bytes = self.options.round(bytes);
        let pool = if bytes <= SMALL { SMALL_POOL } else { LARGE_POOL };
        let want = Want { owner: request.owner, bytes, pool };
        let (slot, hit) = match self.find(&want) {
            Some(slot) => (slot, true),
            None => match self.obtain(&want) {
                Ok(slot) => (slot, false),
                Err(error) => {
                    return Err(refusal(error, request, bytes, self.source.usage(), self.largest_free()));
                }
            },
        };
        self.split(slot, &want);
        self.counters.handed_out(self.chain.chunks[slot].bytes, request.bytes, hit);
        Ok(self.chain.chunks.hand_out(slot, request))
    }

    /// Asks the source, releasing more and more. Only lack of memory is a reason to release; other failures end it.
    fn obtain(&mut self, want: &Want) -> Result<u32, SourceError> {
        self.collect_garbage();
        match self.ask_source(want) {
            Err(SourceError::OutOfMemory { .. }) => {}
            other => return other,
        }
        if self.options.max_split_size != u64::MAX && self.release_available(want) {
            match self.ask_source(want) {
                Err(SourceError::OutOfMemory { .. }) => {}
                other => return other,
            }
        }
        self.release_cached();
        self.retries += 1;
        if self.options.search_after_release
            && let Some(slot) = self.find(want)
        {
            return Ok(slot);
        }
        self.ask_source(want)
    }

    /// One try: a new segment, or pages under a reservation. The chunk returned is in no pool.
    fn ask_source(&mut self, want: &Want) -> Result<u32, SourceError> {
        let bytes = segment_bytes(want.bytes);
        let usage = self.source.usage();
        if let Some(allowed) = self.allowed()
            && usage.reserved.saturating_add(bytes) > allowed
        {
            return Err(SourceError::OutOfMemory { available: allowed.saturating_sub(usage.reserved) });
        }
        if self.options.expandable {
            return self.expand(want);
        }
        let region = self.source.take(bytes)?;
        Ok(self.chain.add_segment(region, want.owner, want.pool))
    }

    /// Bytes that the fraction allows to reserve; `None` without a fraction or a capacity.
    pub(super) fn allowed(&self) -> Option<u64> {
        let capacity = self.source.usage().capacity;
        let fraction = self.options.fraction.filter(|_| capacity != 0)?;
        Some((capacity as f64 * fraction) as u64)
    }

    /// Cuts the chunk down to the request where the rules allow it; the high part becomes free.
    fn split(&mut self, slot: u32, want: &Want) {
        let remaining = self.chain.chunks[slot].bytes - want.bytes;
        let splits = if want.pool == SMALL_POOL || self.options.expandable {
            remaining >= MIN_BLOCK
        } else {
            !self.oversize(want.bytes) && remaining > SMALL
        };
        if splits {
            let rest = self.chain.split(slot, want.bytes);
            self.chain.chunks[rest].state = State::Free;
            self.pools[want.pool].insert(&mut self.chain, rest);
        }
    }

    /// Makes a live or held chunk free, merges it with its free neighbours and puts it into its pool.
    pub(super) fn release_block(&mut self, slot: u32) {
        self.chain.chunks[slot].state = State::Free;
        self.merge_and_insert(slot);
    }

    /// Joins a chunk that is in no set with its neighbours in the same state, then inserts it; returns its slot.
    pub(super) fn merge_and_insert(&mut self, slot: u32) -> u32 {
        let pool = self.pool_of(slot);
        let [prev, next] = self.chain.neighbours(slot, self.chain.chunks[slot].state);
        let mut slot = slot;
        if let Some(next) = next {
            self.pools[pool].remove(&self.chain, next);
            self.chain.join_next(slot);
        }
        if let Some(prev) = prev {
            self.pools[pool].remove(&self.chain, prev);
            self.chain.join_next(prev);
            slot = prev;
        }
        self.pools[pool].insert(&mut self.chain, slot);
        slot
    }

    /// The pool of the segment a chunk lies in.
    pub(super) fn pool_of(&self, slot: u32) -> usize {
        self.chain.segment(slot).map_or(SMALL_POOL, |segment| segment.pool)
    }
}
