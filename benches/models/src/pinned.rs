//! The policy of PyTorch's pinned host allocator (`CachingHostAllocator`, 2023 to 2025).
//!
//! Every request is rounded up to a power of two and is one allocation of the driver; a block is never split, merged or given
//! back by itself. Freed, it goes to the list of its size as soon as the events of the streams that used it have happened,
//! and the next request of that size takes it, whatever its stream. So a request of 20.4 GiB pins 32 GiB
//! (sgl-project/sglang PR 36562), 5 GiB pin 8 GiB (LMCache issue 1147), and vLLM's offload pinned 1.9 times what it asked for
//! (vllm issue 56410); pytorch PR 171662 adds a threshold above which sizes are not rounded, which is not modelled.
//!
//! Promises upward: [`Allocator`]. `pooled` is what lies on lists or waits for a fence; `trim` is PyTorch's
//! `_host_emptyCache`: it waits for events and gives back what lies on lists.
//! Asks from below: a source whose regions are aligned to 4096, as pinned memory is. O(1) an operation, and O(waiting) once
//! an allocation for the events.

use std::collections::{BTreeMap, VecDeque};
use terrace_core::error::ensure;
use terrace_core::{
    AllocError, Allocator, Block, Cause, Fence, FenceState, FreeError, NoFence, Owner, Region, Request,
};
use terrace_core::{Source, Stats, Violation};

use crate::chunks::{Chunk, Chunks, State};
use crate::counters::Counters;
use crate::request::{padded, refusal};

/// Alignment of pinned memory: it comes in pages.
const PAGE: u64 = 4096;

/// PyTorch's pinned host allocator over a source and a fence. See the [module](self).
#[derive(Debug)]
pub struct PinnedCache<S, F = NoFence> {
    source: S,
    fence: F,
    /// Every allocation of the driver, each with its region: live, on a list, held, lost.
    chunks: Chunks,
    regions: BTreeMap<u32, Region>,
    /// Free chunks by size, a power of two; the last one freed is taken first.
    lists: BTreeMap<u64, Vec<u32>>,
    /// Chunks that were freed and may be in use, oldest first.
    held: VecDeque<u32>,
    counters: Counters,
}

impl<S: Source> PinnedCache<S> {
    /// One that starts empty, over memory that is free when it is freed.
    pub fn new(source: S) -> Self {
        Self::with(source, NoFence)
    }
}

impl<S: Source, F: Fence> PinnedCache<S, F> {
    /// With a fence.
    pub fn with(source: S, fence: F) -> Self {
        let (regions, lists, held) = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
        Self { source, fence, chunks: Chunks::new(), regions, lists, held, counters: Counters::default() }
    }

    /// The source, to look at.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The source, to inject failures.
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Puts what is done on its list. PyTorch polls each stream's events in order; owners are its streams.
    fn process_events(&mut self, wait: bool) {
        let mut pending: Vec<Owner> = Vec::new();
        for slot in std::mem::take(&mut self.held) {
            let Chunk { owner, stamp, bytes, .. } = self.chunks[slot];
            let state = match () {
                () if pending.contains(&owner) => FenceState::Pending,
                () if wait => self.fence.wait(owner, stamp),
                () => self.fence.poll(owner, stamp),
            };
            match state {
                FenceState::Ready => {
                    self.chunks[slot].state = State::Free;
                    self.lists.entry(bytes).or_default().push(slot);
                }
                FenceState::Failed => self.chunks[slot].state = State::Lost,
                FenceState::Pending => {
                    pending.push(owner);
                    self.held.push_back(slot);
                }
            }
        }
    }

    fn allocate_padded(&mut self, request: Request, bytes: u64) -> Result<Block, AllocError> {
        self.process_events(false);
        let bytes = bytes.next_power_of_two().max(PAGE);
        let listed = self.lists.get_mut(&bytes).and_then(Vec::pop);
        let slot = match listed {
            Some(slot) => slot,
            None => {
                let taken = self.source.take(bytes);
                let region =
                    taken.map_err(|error| refusal(error, request, bytes, self.source.usage(), self.largest_free()))?;
                let slot = self.chunks.add(Chunk::new(region.base, bytes, request.owner, 0));
                self.chunks[slot].segment = slot;
                self.regions.insert(slot, region);
                slot
            }
        };
        self.counters.handed_out(bytes, request.bytes, listed.is_some());
        Ok(self.chunks.hand_out(slot, request))
    }

    fn largest_free(&self) -> u64 {
        let sizes = self.lists.iter().filter(|(_, list)| !list.is_empty());
        sizes.map(|(bytes, _)| *bytes).next_back().unwrap_or(0)
    }
}

impl<S: Source, F: Fence> Allocator for PinnedCache<S, F> {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        let result = match padded(request, PAGE) {
            Ok(_) if self.chunks.full() => Err(AllocError::new(Cause::OutOfSlots, request.bytes)),
            Ok(bytes) => self.allocate_padded(request, bytes),
            Err(error) => Err(error),
        };
        self.counters.failed += u64::from(result.is_err());
        result
    }

    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        let slot = self.chunks.live(block)?;
        let stamp = self.fence.record(owner);
        let chunk = &mut self.chunks[slot];
        (chunk.state, chunk.owner, chunk.stamp) = (State::Held, owner, stamp);
        self.counters.taken_back(chunk.bytes, chunk.requested);
        self.held.push_back(slot);
        Ok(())
    }

    fn trim(&mut self) -> u64 {
        let before = self.source.usage().reserved;
        self.process_events(true);
        for (bytes, list) in std::mem::take(&mut self.lists) {
            for slot in list {
                let given = self.regions.get(&slot).is_some_and(|region| self.source.give_back(*region).is_ok());
                if given {
                    self.counters.returns += 1;
                    self.regions.remove(&slot);
                    self.chunks.remove(slot);
                } else {
                    self.lists.entry(bytes).or_default().push(slot);
                }
            }
        }
        before - self.source.usage().reserved
    }

    fn stats(&self) -> Stats {
        let usage = self.source.usage();
        let records = self.held.len() * size_of::<u32>() + self.regions.len() * size_of::<(u32, Region)>();
        Stats {
            pooled: usage.reserved - self.counters.in_use,
            largest_free: self.largest_free(),
            metadata: self.chunks.metadata() + records as u64,
            ..self.counters.stats(usage)
        }
    }

    fn check(&self) -> Result<(), Violation> {
        self.chunks.check(&self.counters)?;
        let mut bytes = 0;
        for (slot, chunk) in self.chunks.iter() {
            ensure(chunk.bytes.is_power_of_two() && chunk.bytes >= PAGE, "sizes are powers of two", slot)?;
            ensure(self.regions.contains_key(&slot), "each chunk is a region of its own", slot)?;
            let listed = self.lists.get(&chunk.bytes).is_some_and(|list| list.contains(&slot));
            ensure(listed == (chunk.state == State::Free), "what is free is on the list of its size", slot)?;
            ensure(self.held.contains(&slot) == (chunk.state == State::Held), "what waits is held", slot)?;
            bytes += chunk.bytes;
        }
        ensure(bytes == self.source.usage().reserved, "chunks add up to what the source gave", bytes)
    }
}
