//! One pool that replays a trace, event by event.
//!
//! Promises upward: what a failed allocation leaves out is left out at its free too.
//! Asks from below: the arena, over simulated sources without memory.

use super::trace::{EventKind, TraceEvent};
use crate::failure::Failure;
use crate::pools::SourceKind;
use terrace::engine::arena::ArenaSettings;
use terrace::engine::{Allocator, Arena, ArenaCapacity, Block, Owner, Request, Stats, heap_parts};
use terrace_core::{AnyFit, Fit};
use terrace_models::{Delay, Growing, Segments};

/// Capacity of the sources: more than any machine has.
const CAPACITY: u64 = 1 << 50;

/// An arena, and the block of each slot.
pub struct ReplayedPool {
    pool: Box<dyn Allocator>,
    blocks: Vec<Option<Block>>,
    /// Number of allocations that failed.
    pub failed: u64,
}

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
        Ok(Self { pool, blocks: vec![None; slots], failed: 0 })
    }

    /// Allocates and frees a block, as `Device::warm_up` does.
    pub fn warm_up(&mut self, bytes: u64) -> Result<(), Failure> {
        let block = if bytes > 0 { self.pool.allocate(Request::new(bytes)).ok() } else { None };
        block.map_or(Ok(()), |block| self.free(block))
    }

    /// Does what an event did.
    pub fn replay(&mut self, event: &TraceEvent) -> Result<(), Failure> {
        let slot = event.slot as usize;
        match (event.kind, self.blocks[slot]) {
            (EventKind::Allocate, _) => self.blocks[slot] = self.allocate(event),
            (EventKind::Resize, Some(old)) => {
                let aligned = old.address.trailing_zeros() >= event.align_log2.into();
                let resized = if aligned { self.pool.resize(old, event.bytes).ok() } else { None };
                let moved = resized.is_none().then(|| self.allocate(event)).flatten();
                if moved.is_some() {
                    self.free(old)?;
                }
                self.blocks[slot] = resized.or(moved).or(Some(old));
            }
            (EventKind::Free, Some(block)) => {
                self.blocks[slot] = None;
                self.free(block)?;
            }
            (EventKind::Resize | EventKind::Free, None) => {}
        }
        Ok(())
    }

    fn allocate(&mut self, event: &TraceEvent) -> Option<Block> {
        let block = self.pool.allocate(Request::new(event.bytes).align(1 << event.align_log2)).ok();
        self.failed += u64::from(block.is_none());
        block
    }

    fn free(&mut self, block: Block) -> Result<(), Failure> {
        let refused = |error| Failure::Pool { pool: "terrace", what: format!("refused a free: {error}") };
        self.pool.free(block, Owner(0)).map_err(refused)
    }

    /// The pool's statistics.
    pub fn stats(&self) -> Stats {
        self.pool.stats()
    }

    /// Slots whose blocks are live, with the blocks.
    pub fn live(&self) -> impl Iterator<Item = (u32, Block)> {
        (0..).zip(&self.blocks).filter_map(|(slot, block)| block.map(|block| (slot, block)))
    }
}
