//! One pool, driven through a trace.
//!
//! Promises upward: each operation is one call (a reallocation that cannot be done in place: two), timed by one reading of
//! the clock; the time of an event runs from reading to reading, so that it holds the loop's own cost too, about 20 ns.
//! Asks from below: an allocator; chunks in order.

use super::histogram::TickHistogram;
use crate::failure::Failure;
use crate::operations::{Chunk, Operation, OperationKind};
use crate::output::format_thousands;
use crate::pools::SourceKind;
use crate::pools::{PoolFactory, PoolSetup};
use crate::results::{Latencies, PoolRow};
use quanta::Clock;
use std::cell::Cell;
use std::rc::Rc;
use terrace::{AllocError, Allocator, Block, FreeError, Owner, Request};

/// What a pool gave for a slot.
#[derive(Clone, Copy, Debug)]
struct LiveBlock {
    block: Block,
    /// Bytes asked for; 0 when the slot is empty or its allocation failed.
    bytes: u64,
}

const EMPTY: LiveBlock = LiveBlock { block: Block { address: 0, bytes: 0, slot: 0, region: 0, ticket: 0 }, bytes: 0 };

/// One pool on its way through a trace.
pub struct PoolReplay {
    name: &'static str,
    pool: Box<dyn Allocator>,
    /// The number of the event, for the fence.
    now: Rc<Cell<u64>>,
    held: Vec<LiveBlock>,
    /// Sum of `bytes` over `held`.
    live: u64,
    peak_live: u64,
    failed: u64,
    /// The first failure: number of the event, and why. `Some` iff `failed > 0`.
    first: Option<(u64, AllocError)>,
    ticks: TickHistogram,
    /// Bytes reserved at each point of the timeline.
    reserved: Vec<u64>,
}

impl PoolReplay {
    /// A fresh pool.
    pub fn new(entry: &PoolFactory, setup: &PoolSetup) -> Result<Self, Failure> {
        let fail = |what: String| Failure::Pool { pool: entry.name, what };
        Ok(Self {
            name: entry.name,
            pool: (entry.make)(setup).map_err(fail)?,
            now: setup.clock(),
            held: Vec::new(),
            live: 0,
            peak_live: 0,
            failed: 0,
            first: None,
            ticks: TickHistogram::new().map_err(|error| fail(error.to_string()))?,
            reserved: Vec::new(),
        })
    }

    /// Bytes reserved at each point of the timeline.
    pub fn reserved_mut(&mut self) -> &mut Vec<u64> {
        &mut self.reserved
    }

    /// When and why it failed first, for people; `None` when it never did.
    pub fn failure(&self) -> Option<String> {
        let (event, error) = self.first?;
        Some(format!("{}: {} failed, the first at event {event}: {error}", self.name, format_thousands(self.failed)))
    }

    /// Replays a chunk whose first operation is event number `first`.
    pub fn replay(&mut self, chunk: &Chunk, first: u64, clock: &Clock) -> Result<(), Failure> {
        self.held.resize(chunk.slots.max(self.held.len()), EMPTY);
        let mut begin = 0;
        for &sample in &chunk.samples {
            // Looking at the pool is not timed: the clock is read anew after it.
            self.replay_operations(&chunk.operations[begin..=sample], first + begin as u64, clock)?;
            self.reserved.push(self.pool.stats().reserved);
            begin = sample + 1;
        }
        self.replay_operations(&chunk.operations[begin..], first + begin as u64, clock)
    }

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

    #[inline]
    fn execute(&mut self, operation: &Operation) -> Result<(), FreeError> {
        let slot = operation.slot as usize;
        let held = self.held[slot];
        match operation.kind {
            OperationKind::Allocate => {
                if let Some(held) = self.allocate(operation) {
                    self.held[slot] = held;
                    self.grow(0, operation.bytes);
                }
            }
            OperationKind::Free if held.bytes > 0 => {
                self.held[slot].bytes = 0;
                self.live -= held.bytes;
                self.pool.free(held.block, operation.owner)?;
            }
            OperationKind::Reallocate if held.bytes > 0 => {
                if let Some(new) = self.reallocate(held, operation)? {
                    self.held[slot] = new;
                    self.grow(held.bytes, operation.bytes);
                }
            }
            // The allocation failed on this pool: there is nothing to resize or free.
            OperationKind::Free | OperationKind::Reallocate => {}
        }
        Ok(())
    }

    fn allocate(&mut self, operation: &Operation) -> Option<LiveBlock> {
        let request = Request::new(operation.bytes).align(1 << operation.align_log2).owner(operation.owner);
        match self.pool.allocate(request) {
            Ok(block) => Some(LiveBlock { block, bytes: operation.bytes }),
            Err(error) => {
                self.failed += 1;
                self.first.get_or_insert((self.now.get(), error));
                None
            }
        }
    }

    /// In place where the address suits and the pool can; else a new block, then the old one goes. When that fails
    /// the old one stays, as with `realloc`.
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

    fn grow(&mut self, old: u64, new: u64) {
        self.live = self.live - old + new;
        self.peak_live = self.peak_live.max(self.live);
    }

    /// The row of the table; then frees everything and trims, to see what stays reserved.
    pub fn finish(mut self, trace: &str, source: SourceKind, events: u64, clock: &Clock) -> Result<PoolRow, Failure> {
        let stats = self.pool.stats();
        // All fences are open from here on.
        self.now.set(u64::MAX);
        for held in self.held.iter_mut().filter(|held| held.bytes > 0) {
            held.bytes = 0;
            self.pool.free(held.block, Owner(0)).map_err(|error| Failure::Pool {
                pool: self.name,
                what: format!("after the last event: refused a free: {error}"),
            })?;
        }
        self.pool.trim();
        let after = self.pool.stats().reserved;
        let (ticks, longest) = self.ticks.finish();
        let times = Latencies::new(&ticks, longest, clock);
        Ok(PoolRow::new(trace, self.name, source, events, (self.peak_live, self.failed), &stats, after, &times))
    }
}

#[cfg(test)]
mod tests;
