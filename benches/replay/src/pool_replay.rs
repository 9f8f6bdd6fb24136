//! The replay of a trace on one pool.
//!
//! Promises upward: each operation is timed by one reading of the clock; the time of an event runs from reading to reading, so that it
//! holds the loop's own cost too, about 20 ns.
//! Asks from below: an allocator; chunks in order.

use crate::histogram::TickHistogram;
use crate::operation::{Chunk, Operation};
use crate::pool_blocks::{EMPTY, PoolBlocks};
use crate::pools::{PoolFactory, PoolSetup, SourceKind};
use crate::results::{Latencies, PoolRow};
use quanta::Clock;
use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use terrace_core::{AllocError, Owner};

/// A pool that broke its contract, or could not be created.
#[derive(Debug)]
pub struct PoolFailure {
    /// The pool's name.
    pub pool: &'static str,
    /// What the pool did wrong.
    pub what: String,
}

impl fmt::Display for PoolFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool {}: {}; this is a fault of the pool, please report it", self.pool, self.what)
    }
}

impl std::error::Error for PoolFailure {}

/// A pool during the replay of a trace.
pub struct PoolReplay {
    name: &'static str,
    source: SourceKind,
    blocks: PoolBlocks,
    /// The number of the current event, which is the fence's clock.
    now: Rc<Cell<u64>>,
    ticks: TickHistogram,
    /// Bytes reserved at each point of the timeline.
    reserved: Vec<u64>,
}

impl PoolReplay {
    /// Creates a pool.
    pub fn new(factory: &PoolFactory, setup: &PoolSetup) -> Result<Self, PoolFailure> {
        let fail = |what: String| PoolFailure { pool: factory.name, what };
        Ok(Self {
            name: factory.name,
            source: setup.source,
            blocks: PoolBlocks::new((factory.make)(setup).map_err(fail)?, 0),
            now: setup.clock(),
            ticks: TickHistogram::new().map_err(|error| fail(error.to_string()))?,
            reserved: Vec::new(),
        })
    }

    /// The pool's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Bytes reserved at each point of the timeline.
    pub fn reserved_mut(&mut self) -> &mut Vec<u64> {
        &mut self.reserved
    }

    /// Number of failed allocations, and of the first its event and error; `None` if none failed.
    pub fn failed(&self) -> Option<(u64, u64, AllocError)> {
        self.blocks.first_failure.map(|(event, error)| (self.blocks.failed, event, error))
    }

    /// Replays a chunk whose first operation is event number `first`.
    pub fn replay(&mut self, chunk: &Chunk, first: u64, clock: &Clock) -> Result<(), PoolFailure> {
        let slots = &mut self.blocks.blocks;
        slots.resize(chunk.slots.max(slots.len()), EMPTY);
        let mut begin = 0;
        for &sample in &chunk.samples {
            // Sampling the pool is not timed, because `replay_operations` reads the clock afresh.
            self.replay_operations(&chunk.operations[begin..=sample], first + begin as u64, clock)?;
            self.reserved.push(self.blocks.pool.stats().reserved);
            begin = sample + 1;
        }
        self.replay_operations(&chunk.operations[begin..], first + begin as u64, clock)
    }

    /// Replays operations, the first of which is event number `first`, and records the latency of each.
    fn replay_operations(&mut self, operations: &[Operation], first: u64, clock: &Clock) -> Result<(), PoolFailure> {
        let mut last = clock.raw();
        for (event, operation) in (first..).zip(operations) {
            self.now.set(event);
            if let Err(error) = self.blocks.execute(operation, event) {
                return Err(PoolFailure { pool: self.name, what: format!("event {event}: refused a free: {error}") });
            }
            let now = clock.raw();
            self.ticks.record(now.saturating_sub(last));
            last = now;
        }
        Ok(())
    }

    /// Frees all blocks and trims the pool, to measure what stays reserved; returns the row of the table.
    pub fn finish(mut self, trace: &str, events: u64, clock: &Clock) -> Result<PoolRow, PoolFailure> {
        let PoolBlocks { pool, blocks, peak_live, failed, .. } = &mut self.blocks;
        let stats = pool.stats();
        // At this time all fences have passed, so that all freed memory can be trimmed.
        self.now.set(u64::MAX);
        for slot in blocks.iter_mut().filter(|slot| slot.bytes > 0) {
            slot.bytes = 0;
            pool.free(slot.block, Owner(0)).map_err(|error| PoolFailure {
                pool: self.name,
                what: format!("after the last event: refused a free: {error}"),
            })?;
        }
        pool.trim();
        let after = pool.stats().reserved;
        let (ticks, longest) = self.ticks.finish();
        let times = Latencies::new(&ticks, longest, clock);
        let counts = (*peak_live, *failed);
        Ok(PoolRow::new(trace, self.name, self.source, events, counts, &stats, after, &times))
    }
}
