//! The replay of a trace on one pool.
//!
//! Promises upward: each operation is one call (a reallocation that cannot be done in place: two), timed by one reading of
//! the clock; the time of an event runs from reading to reading, so that it holds the loop's own cost too, about 20 ns.
//! Asks from below: an allocator; chunks in order.

use super::histogram::TickHistogram;
use crate::failure::Failure;
use crate::operations::{Chunk, Operation, OperationKind};
use crate::output::format_thousands;
use crate::pools::{PoolFactory, PoolSetup, SourceKind};
use crate::results::{Latencies, PoolRow};
use quanta::Clock;
use std::cell::Cell;
use std::rc::Rc;
use terrace::engine::{AllocError, Allocator, Block, FreeError, Owner, Request};

/// The block that the pool has allocated for a slot of the trace.
#[derive(Clone, Copy, Debug)]
struct LiveBlock {
    block: Block,
    /// Bytes requested; 0 when the slot is empty or its allocation failed.
    bytes: u64,
}

const EMPTY: LiveBlock = LiveBlock { block: Block { address: 0, bytes: 0, slot: 0, region: 0, ticket: 0 }, bytes: 0 };

/// A pool during the replay of a trace.
pub struct PoolReplay {
    name: &'static str,
    pool: Box<dyn Allocator>,
    /// The number of the current event, which is the fence's clock.
    now: Rc<Cell<u64>>,
    /// The pool's block for each slot of the trace.
    blocks: Vec<LiveBlock>,
    /// Sum of `bytes` over `blocks`.
    live: u64,
    peak_live: u64,
    failed: u64,
    /// The first failed allocation: the number of its event, and its error. `Some` iff `failed > 0`.
    first_failure: Option<(u64, AllocError)>,
    ticks: TickHistogram,
    /// Bytes reserved at each point of the timeline.
    reserved: Vec<u64>,
}

impl PoolReplay {
    /// Creates a pool.
    pub fn new(factory: &PoolFactory, setup: &PoolSetup) -> Result<Self, Failure> {
        let fail = |what: String| Failure::Pool { pool: factory.name, what };
        Ok(Self {
            name: factory.name,
            pool: (factory.make)(setup).map_err(fail)?,
            now: setup.clock(),
            blocks: Vec::new(),
            live: 0,
            peak_live: 0,
            failed: 0,
            first_failure: None,
            ticks: TickHistogram::new().map_err(|error| fail(error.to_string()))?,
            reserved: Vec::new(),
        })
    }

    /// Bytes reserved at each point of the timeline.
    pub fn reserved_mut(&mut self) -> &mut Vec<u64> {
        &mut self.reserved
    }

    /// A message with the number of failed allocations and the first error; `None` if none failed.
    pub fn failure(&self) -> Option<String> {
        let (event, error) = self.first_failure?;
        Some(format!("{}: {} failed, the first at event {event}: {error}", self.name, format_thousands(self.failed)))
    }

    /// Replays a chunk whose first operation is event number `first`.
    pub fn replay(&mut self, chunk: &Chunk, first: u64, clock: &Clock) -> Result<(), Failure> {
        self.blocks.resize(chunk.slots.max(self.blocks.len()), EMPTY);
        let mut begin = 0;
        for &sample in &chunk.samples {
            // Sampling the pool is not timed, because `replay_operations` reads the clock afresh.
            self.replay_operations(&chunk.operations[begin..=sample], first + begin as u64, clock)?;
            self.reserved.push(self.pool.stats().reserved);
            begin = sample + 1;
        }
        self.replay_operations(&chunk.operations[begin..], first + begin as u64, clock)
    }

    /// Replays operations, the first of which is event number `first`, and records the latency of each.
    fn replay_operations(&mut self, operations: &[Operation], first: u64, clock: &Clock) -> Result<(), Failure> {
        let mut last = clock.raw();
        for (event, operation) in (first..).zip(operations) {
            self.now.set(event);
            if let Err(error) = self.execute(operation) {
                return Err(Failure::Pool { pool: self.name, what: format!("event {event}: refused a free: {error}") });
            }
            let now = clock.raw();
            self.ticks.record(now.saturating_sub(last));
            last = now;
        }
        Ok(())
    }

    /// Executes one operation on the pool. Fails only if the pool refuses a free.
    #[inline]
    fn execute(&mut self, operation: &Operation) -> Result<(), FreeError> {
        let slot = operation.slot as usize;
        let old = self.blocks[slot];
        match operation.kind {
            OperationKind::Allocate => {
                if let Some(new) = self.allocate(operation) {
                    self.blocks[slot] = new;
                    self.count_live(0, operation.bytes);
                }
            }
            OperationKind::Free if old.bytes > 0 => {
                self.blocks[slot].bytes = 0;
                self.live -= old.bytes;
                self.pool.free(old.block, operation.owner)?;
            }
            OperationKind::Reallocate if old.bytes > 0 => {
                if let Some(new) = self.reallocate(old, operation)? {
                    self.blocks[slot] = new;
                    self.count_live(old.bytes, operation.bytes);
                }
            }
            // Skip it: the block's allocation failed on this pool, so the slot is empty.
            OperationKind::Free | OperationKind::Reallocate => {}
        }
        Ok(())
    }

    /// Allocates a block; if that fails, counts the failure and returns `None`.
    fn allocate(&mut self, operation: &Operation) -> Option<LiveBlock> {
        let request = Request::new(operation.bytes).align(1 << operation.align_log2).owner(operation.owner);
        match self.pool.allocate(request) {
            Ok(block) => Some(LiveBlock { block, bytes: operation.bytes }),
            Err(error) => {
                self.failed += 1;
                self.first_failure.get_or_insert((self.now.get(), error));
                None
            }
        }
    }

    /// Resizes a block in place if its address has the alignment and the pool can do so; else allocates a new block and
    /// frees the old one.
    ///
    /// Returns `None` if the allocation fails: the old block then stays, as with `realloc`.
    fn reallocate(&mut self, old: LiveBlock, operation: &Operation) -> Result<Option<LiveBlock>, FreeError> {
        let aligned = old.block.address.trailing_zeros() >= operation.align_log2.into();
        if aligned && let Ok(block) = self.pool.resize(old.block, operation.bytes) {
            return Ok(Some(LiveBlock { block, bytes: operation.bytes }));
        }
        let new = self.allocate(operation);
        if new.is_some() {
            self.pool.free(old.block, operation.owner)?;
        }
        Ok(new)
    }

    /// Updates the live bytes and their peak for a block that had `old` bytes and now has `new`.
    fn count_live(&mut self, old: u64, new: u64) {
        self.live = self.live - old + new;
        self.peak_live = self.peak_live.max(self.live);
    }

    /// Frees all blocks and trims the pool, to measure what stays reserved; returns the row of the table.
    pub fn finish(mut self, trace: &str, source: SourceKind, events: u64, clock: &Clock) -> Result<PoolRow, Failure> {
        let (stats, failure) = (self.pool.stats(), self.failure());
        // At this time all fences have passed, so that all freed memory can be trimmed.
        self.now.set(u64::MAX);
        for slot in self.blocks.iter_mut().filter(|slot| slot.bytes > 0) {
            slot.bytes = 0;
            self.pool.free(slot.block, Owner(0)).map_err(|error| Failure::Pool {
                pool: self.name,
                what: format!("after the last event: refused a free: {error}"),
            })?;
        }
        self.pool.trim();
        let after = self.pool.stats().reserved;
        let (ticks, longest) = self.ticks.finish();
        let times = Latencies::new(&ticks, longest, clock);
        let counts = (self.peak_live, self.failed);
        Ok(PoolRow { failure, ..PoolRow::new(trace, self.name, source, events, counts, &stats, after, &times) })
    }
}

#[cfg(test)]
mod tests;
