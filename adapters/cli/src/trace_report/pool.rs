//! One pool that replays a trace, event by event.
//!
//! Promises upward: the pool's answers to the trace's operations, of all streams as one.
//! Asks from below: the arena, over simulated sources without memory; operations executed on it.

use super::trace::TraceEvent;
use crate::failure::Failure;
use crate::operations::Operation;
use crate::pool_blocks::PoolBlocks;
use crate::pools::SourceKind;
use terrace::engine::arena::ArenaSettings;
use terrace::engine::{Allocator, Arena, ArenaCapacity, Block, FreeError, Owner, Request, Stats, heap_parts};
use terrace_core::{AnyFit, Fit};
use terrace_models::{Delay, Growing, Segments};

/// Capacity of the sources: more than any machine has.
const CAPACITY: u64 = 1 << 50;

/// An arena, and its blocks. Streams are not told apart.
pub struct ReplayedPool(PoolBlocks);

impl ReplayedPool {
    /// Makes an arena with room for the slots of a trace.
    pub fn new(source: SourceKind, settings: ArenaSettings, strategy: Fit, slots: usize) -> Result<Self, Failure> {
        let room = ArenaCapacity::default();
        let records = (4 * slots).max(room.slots);
        let segments = room.segments * records.div_ceil(room.slots);
        let parts =
            heap_parts(ArenaCapacity { slots: records, segments, ..room }, |branches| AnyFit::new(strategy, branches));
        let fence = Delay::new(0);
        let pool: Result<Box<dyn Allocator>, _> = match source {
            SourceKind::Growing => {
                Arena::new(Growing::new(CAPACITY), fence, parts, settings).map(|pool| Box::new(pool) as _)
            }
            SourceKind::Segments => {
                Arena::new(Segments::new(CAPACITY), fence, parts, settings).map(|pool| Box::new(pool) as _)
            }
        };
        let pool = pool.map_err(|error| Failure::Pool { pool: "terrace", what: error.to_string() })?;
        Ok(Self(PoolBlocks::new(pool, slots)))
    }

    /// Allocates and frees a block, as `Device::warm_up` does.
    pub fn warm_up(&mut self, bytes: u64) -> Result<(), Failure> {
        let pool = &mut self.0.pool;
        let block = if bytes > 0 { pool.allocate(Request::new(bytes)).ok() } else { None };
        block.map_or(Ok(()), |block| pool.free(block, Owner(0)).map_err(refused))
    }

    /// Does what an event did.
    pub fn replay(&mut self, event: &TraceEvent) -> Result<(), Failure> {
        self.0.execute(&Operation { owner: Owner(0), ..event.operation }, 0).map_err(refused)
    }

    /// The pool's statistics.
    pub fn stats(&self) -> Stats {
        self.0.pool.stats()
    }

    /// Number of allocations that failed.
    pub fn failed(&self) -> u64 {
        self.0.failed
    }

    /// Slots whose blocks are live, with the blocks.
    pub fn live(&self) -> impl Iterator<Item = (u32, Block)> {
        self.0.live()
    }
}

fn refused(error: FreeError) -> Failure {
    Failure::Pool { pool: "terrace", what: format!("refused a free: {error}") }
}
