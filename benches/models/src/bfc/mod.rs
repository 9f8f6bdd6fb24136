//! The policy of the best-fit-with-coalescing allocator of TensorFlow and XLA (`bfc_allocator.cc`, 2019 to 2026).
//!
//! Regions double from 2 MiB; free chunks lie in 21 power-of-two bins; an allocation takes the smallest chunk that
//! fits and splits it when half or more would be wasted, or 128 MiB; a free merges with both neighbours. Order of attempts:
//! bins, a new region (shrunk by a tenth until the source agrees), chunks whose fence is not open yet merged for their
//! own owner, wholly free regions given back and a new region once more. The original then waits up to ten seconds
//! for another thread's free; the model has one thread and fails at once.
//!
//! The original has one compute stream and, optionally, a timestamp on each free. The timestamp is the fence here: a
//! chunk freed before its owner's fence opens goes to its bin unmerged; its owner may take it at once, others once the
//! fence is open, and then it merges. A chunk whose fence fails is never used again.
//!
//! Promises upward: [`Allocator`]. `pooled` is what waits for a fence. `trim` gives wholly free regions back.
//! Asks from below: a source whose regions are aligned to 256. O(log n) an operation while no fence is pending.

mod bins;
mod grow;
mod options;
mod timestamps;

pub use options::{BINS, BfcOptions, FIRST_REGION, MAX_WASTE, MIN_CHUNK, bin_of};

use bins::Bins;
use std::collections::{BTreeMap, VecDeque};
use terrace_core::error::ensure;
use terrace_core::{
    AllocError, Allocator, Block, Cause, Fence, FenceState, FreeError, NoFence, Owner, Request, Source,
};
use terrace_core::{Stats, Violation};

use crate::chain::Chain;
use crate::chunks::State;
use crate::counters::Counters;
use crate::request::{padded, refusal};

/// BFC over a source and a fence. See the [module](self).
#[derive(Debug)]
pub struct Bfc<S, F = NoFence> {
    source: S,
    fence: F,
    options: BfcOptions,
    /// Every byte of every region. No two `Free` neighbours stay apart.
    chain: Chain,
    bins: Bins,
    /// (ticket, slot) of chunks that were held when queued, by owner; an entry counts only while its chunk is still held by that
    /// owner with that ticket. Every held chunk has an entry that counts.
    waiting: BTreeMap<Owner, VecDeque<(u64, u32)>>,
    /// Bytes of held and lost chunks.
    apart: u64,
    /// Size of the next region, a power of two times 2 MiB.
    next_region: u64,
    counters: Counters,
}

impl<S: Source> Bfc<S> {
    /// Growing regions up to the source's capacity.
    pub fn new(source: S) -> Self {
        Self::with(source, NoFence, BfcOptions::default())
    }
}

impl<S: Source, F: Fence> Bfc<S, F> {
    /// With options and a fence.
    pub fn with(source: S, fence: F, options: BfcOptions) -> Self {
        let mut model = Self {
            source,
            fence,
            options,
            chain: Chain::new(),
            bins: Bins::new(),
            waiting: BTreeMap::new(),
            apart: 0,
            next_region: FIRST_REGION,
            counters: Counters::default(),
        };
        if !options.allow_growth {
            model.next_region = model.limit().max(FIRST_REGION);
        }
        model
    }

    /// The source, to look at.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The source, to inject failures.
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Takes the best chunk that `owner` may use out of its bin.
    fn find(&mut self, bytes: u64, owner: Owner) -> Option<u32> {
        let (chain, fence) = (&self.chain, &mut self.fence);
        let slot = self.bins.find(bytes, |slot| {
            let chunk = &chain.chunks[slot];
            let ready = |fence: &mut F| fence.poll(chunk.owner, chunk.stamp) == FenceState::Ready;
            chunk.state == State::Free || chunk.owner == owner || ready(fence)
        })?;
        self.bins.remove(&self.chain, slot);
        Some(slot)
    }

    fn allocate_padded(&mut self, request: Request, bytes: u64) -> Result<Block, AllocError> {
        let bytes = bytes.next_multiple_of(MIN_CHUNK);
        if !self.waiting.is_empty() {
            self.merge_ready(false);
        }
        let (slot, hit) = match self.find(bytes, request.owner) {
            Some(slot) => (slot, true),
            None => match self.obtain(bytes, request.owner) {
                Ok(found) => found,
                Err(error) => {
                    return Err(refusal(error, request, bytes, self.source.usage(), self.bins.largest()));
                }
            },
        };
        self.split(slot, bytes);
        self.counters.handed_out(self.chain.chunks[slot].bytes, request.bytes, hit);
        Ok(self.chain.chunks.hand_out(slot, request))
    }

    /// Cuts a chunk, out of its bin, when half of it or `max_waste` bytes would be lost. Leaves the rest in its bin.
    fn split(&mut self, slot: u32, bytes: u64) {
        let chunk = self.chain.chunks[slot];
        if chunk.bytes >= bytes * 2 || chunk.bytes - bytes >= self.options.max_waste {
            let rest = self.chain.split(slot, bytes);
            self.bins.insert(&self.chain, rest);
            if chunk.state == State::Held {
                // The rest still waits for the same fence.
                self.waiting.entry(chunk.owner).or_default().push_back((chunk.stamp, rest));
            }
        }
        if chunk.state == State::Held {
            self.apart -= self.chain.chunks[slot].bytes;
        }
    }

    /// Joins a free chunk, out of its bin, with its free neighbours and puts it into its bin.
    fn merge_and_insert(&mut self, slot: u32) -> u32 {
        let [prev, next] = self.chain.neighbours(slot, State::Free);
        let mut slot = slot;
        if let Some(next) = next {
            self.bins.remove(&self.chain, next);
            self.chain.join_next(slot);
        }
        if let Some(prev) = prev {
            self.bins.remove(&self.chain, prev);
            self.chain.join_next(prev);
            slot = prev;
        }
        self.bins.insert(&self.chain, slot);
        slot
    }
}

impl<S: Source, F: Fence> Allocator for Bfc<S, F> {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        let result = match padded(request, MIN_CHUNK) {
            Ok(_) if self.chain.chunks.full() => Err(AllocError::new(Cause::OutOfSlots, request.bytes)),
            Ok(bytes) => self.allocate_padded(request, bytes),
            Err(error) => Err(error),
        };
        self.counters.failed += u64::from(result.is_err());
        result
    }

    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        let slot = self.chain.chunks.live(block)?;
        let chunk = &mut self.chain.chunks[slot];
        let bytes = chunk.bytes;
        self.counters.taken_back(bytes, chunk.requested);
        let ticket = self.fence.record(owner);
        match self.fence.poll(owner, ticket) {
            FenceState::Ready => {
                chunk.state = State::Free;
                self.merge_and_insert(slot);
            }
            FenceState::Pending => self.hold(slot, owner, ticket),
            FenceState::Failed => {
                chunk.state = State::Lost;
                self.apart += bytes;
            }
        }
        Ok(())
    }

    fn trim(&mut self) -> u64 {
        self.merge_ready(true);
        self.release_free_regions()
    }

    fn stats(&self) -> Stats {
        let waiting: usize = self.waiting.values().map(VecDeque::len).sum();
        // A tree of B-tree nodes is at least half full: two entries of room for each held.
        let lists = 2 * self.bins.len() * bins::ENTRY_BYTES + waiting * size_of::<(u64, u32)>();
        Stats {
            pooled: self.apart,
            largest_free: self.bins.largest(),
            metadata: self.chain.metadata() + lists as u64,
            ..self.counters.stats(self.source.usage())
        }
    }

    fn check(&self) -> Result<(), Violation> {
        self.chain.check()?;
        self.chain.chunks.check(&self.counters)?;
        let (mut binned, mut apart, mut total) = (0, 0, 0);
        for (slot, chunk) in self.chain.chunks.iter() {
            total += chunk.bytes;
            if matches!(chunk.state, State::Free | State::Held) {
                binned += 1;
                ensure(self.bins.contains(&self.chain, slot), "a free or held chunk is in the bin of its size", slot)?;
            }
            if matches!(chunk.state, State::Held | State::Lost) {
                apart += chunk.bytes;
            }
            if chunk.state == State::Free {
                let merged = self.chain.neighbours(slot, State::Free) == [None, None];
                ensure(merged, "no two free neighbours stay apart", slot)?;
            }
        }
        ensure(self.bins.len() == binned, "bins hold nothing but free and held chunks", binned as u64)?;
        ensure(self.apart == apart, "apart is the bytes of held and lost chunks", apart)?;
        ensure(total == self.source.usage().reserved, "chunks add up to what the source gave", total)?;
        self.check_waiting()
    }
}
