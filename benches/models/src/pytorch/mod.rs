//! The policy of PyTorch's CUDA caching allocator (`c10/cuda/CUDACachingAllocator.cpp`, 2024 to 2026).
//!
//! Two pools, small (rounded size at most 1 MiB) and large; in each, free blocks ordered by (stream, size,
//! address). An allocation takes the smallest block of its stream that fits; without one, a segment is taken from
//! the source; when that fails, everything that is cached whole is released and the source asked once more. A free
//! merges with free neighbours of the same segment and never calls the device. With `expandable`, one reservation
//! a stream and pool grows page by page instead.
//!
//! A free by another owner than the allocating one stands for `record_stream` and a free: the block is held until
//! the fence of that other owner opens, which is looked at whenever something is allocated. A block whose fence
//! fails is never used again.
//!
//! Promises upward: [`Allocator`]; the golden vectors and scenarios in the tests. `pooled` is all that is reserved and not
//! in use, since every free block belongs to one stream for ever. `metadata` is this model's own records (PyTorch's are
//! about three times larger). A refused allocation leaves every live block alone, but the last resort may have
//! released cached segments, as in PyTorch. Not modelled: graph pools, snapshots, memory-freeing callbacks.
//! Asks from below: a source; for `expandable` a growing one. O(log n) an operation, but O(n) in the last resort.

mod allocate;
mod check;
mod expand;
mod options;
mod pools;
mod release;

pub use options::{
    BadOption, LARGE_FROM, LARGE_SEGMENT, LARGE_STEP, MIN_BLOCK, PyTorchOptions, SMALL, SMALL_SEGMENT, segment_bytes,
};

use pools::Pool;
use std::collections::{BTreeMap, VecDeque};
use terrace_core::{AllocError, Allocator, Block, Cause, FreeError, NoFence, Owner, Request, Source, Stats, Violation};
use terrace_core::{Fence, FenceState};

use crate::chain::Chain;
use crate::chunks::State;
use crate::counters::Counters;
use crate::request::padded;

/// PyTorch's caching allocator over a source and a fence. See the [module](self).
#[derive(Debug)]
pub struct PyTorch<S, F = NoFence> {
    source: S,
    fence: F,
    options: PyTorchOptions,
    /// Every byte of every segment. No two free neighbours stay apart.
    chain: Chain,
    /// Free and unmapped chunks: the small pool and the large one.
    pools: [Pool; 2],
    /// Held chunks with the ticket each waits for, in order, by the owner that freed them.
    waiting: BTreeMap<Owner, VecDeque<(u64, u32)>>,
    counters: Counters,
    /// Allocations that needed the last resort.
    retries: u64,
    /// Expandable segments: handles of the driver, one for each page of the pool (2 or 20 MiB) that was mapped.
    handles: u64,
    /// Expandable segments: calls of the driver. A handle is made and mapped by two, and unmapped and released by two; a range that
    /// was mapped is opened by one.
    driver_calls: u64,
}

/// What an allocation looks for.
#[derive(Clone, Copy, Debug)]
struct Want {
    owner: Owner,
    /// Rounded.
    bytes: u64,
    pool: usize,
}

impl<S: Source> PyTorch<S> {
    /// PyTorch's defaults: whole segments, no limits, nothing in flight.
    pub fn new(source: S) -> Self {
        Self::build(source, NoFence, PyTorchOptions::default())
    }
}

impl<S: Source, F: Fence> PyTorch<S, F> {
    /// With options and a fence.
    ///
    /// # Errors
    /// [`BadOption`] names what is out of range or beyond the source.
    pub fn with(source: S, fence: F, options: PyTorchOptions) -> Result<Self, BadOption> {
        let options = options.validate(source.page_bytes())?;
        Ok(Self::build(source, fence, options))
    }

    fn build(source: S, fence: F, options: PyTorchOptions) -> Self {
        Self {
            source,
            fence,
            options,
            chain: Chain::new(),
            pools: [Pool::default(), Pool::default()],
            waiting: BTreeMap::new(),
            counters: Counters::default(),
            retries: 0,
            handles: 0,
            driver_calls: 0,
        }
    }

    /// The source, to look at.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The source, to inject failures.
    pub fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Expandable segments: calls of the driver so far, where the source counts a range as one.
    pub fn driver_calls(&self) -> u64 {
        self.driver_calls
    }

    /// Allocations that found the source empty and released everything cached before they tried again.
    pub fn retries(&self) -> u64 {
        self.retries
    }

    /// Whether blocks of this size are never split.
    fn oversize(&self, bytes: u64) -> bool {
        bytes >= self.options.max_split_size
    }

    /// Returns the blocks whose fences opened to their pools; stops at the first pending one of each owner.
    fn process_events(&mut self, wait: bool) {
        // Taken out while frees change the rest; nothing in between adds to it.
        let mut waiting = std::mem::take(&mut self.waiting);
        for (&owner, queue) in &mut waiting {
            while let Some(&(ticket, slot)) = queue.front() {
                let state = if wait { self.fence.wait(owner, ticket) } else { self.fence.poll(owner, ticket) };
                match state {
                    FenceState::Pending => break,
                    FenceState::Ready => self.release_block(slot),
                    FenceState::Failed => self.chain.chunks[slot].state = State::Lost,
                }
                queue.pop_front();
            }
        }
        waiting.retain(|_, queue| !queue.is_empty());
        self.waiting = waiting;
    }
}

impl<S: Source, F: Fence> Allocator for PyTorch<S, F> {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        let result = match padded(request, MIN_BLOCK) {
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
        self.counters.taken_back(chunk.bytes, chunk.requested);
        if chunk.owner == owner {
            self.release_block(slot);
        } else {
            chunk.state = State::Held;
            let ticket = self.fence.record(owner);
            self.waiting.entry(owner).or_default().push_back((ticket, slot));
        }
        Ok(())
    }

    fn trim(&mut self) -> u64 {
        let before = self.source.usage().reserved;
        self.release_cached();
        before - self.source.usage().reserved
    }

    fn stats(&self) -> Stats {
        let usage = self.source.usage();
        let entries: usize = self.pools.iter().map(Pool::len).sum();
        let waiting: usize = self.waiting.values().map(VecDeque::len).sum();
        // A tree of B-tree nodes is at least half full: two entries of room for each held.
        let lists = 2 * entries * pools::ENTRY_BYTES + waiting * size_of::<(u64, u32)>();
        Stats {
            pooled: usage.reserved - self.counters.in_use,
            largest_free: self.largest_free(),
            metadata: self.chain.metadata() + lists as u64,
            handles: if self.options.expandable { self.handles } else { usage.handles },
            ..self.counters.stats(usage)
        }
    }

    fn check(&self) -> Result<(), Violation> {
        self.check_all()
    }
}
