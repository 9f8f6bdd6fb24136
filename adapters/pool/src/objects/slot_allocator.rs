//! The slots of a pool as an [`Allocator`], so that calls wait for one in the queue in which all of terrace waits.
//!
//! Promises upward: a block is a slot: `slot` its number, `region` whether it holds an object ([`IDLE`]) or none ([`VACANT`]).
//! Asks from below: [`Places`]. Every function may be called under the lock of the queue: none calls what a user supplied.

use crate::places::Places;
use std::sync::Arc;
use terrace_core::{AllocError, Allocator, Block, Cause, FreeError, Owner, Request, Stats, Violation};

/// The region of a block whose slot holds an idle object.
pub const IDLE: u32 = 0;
/// The region of a block whose slot is vacant.
pub const VACANT: u32 = 1;

/// Allocates slots.
#[derive(Debug)]
pub struct SlotAllocator(pub Arc<Places>);

fn block(slot: u32, region: u32) -> Block {
    Block { address: u64::from(slot), bytes: 1, slot, region, ticket: 0 }
}

impl Allocator for SlotAllocator {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        let places = &self.0;
        if places.is_closed() {
            return Err(AllocError::new(Cause::SourceFailed, request.bytes));
        }
        let vacant = || places.take_vacant().map(|slot| block(slot, VACANT));
        let idle = places.take_idle().map(|slot| block(slot, IDLE));
        let found = idle.or_else(vacant).or_else(|| places.steal().map(|slot| block(slot, IDLE)));
        found.ok_or(AllocError::new(Cause::OutOfMemory, request.bytes))
    }

    fn free(&mut self, block: Block, _: Owner) -> Result<(), FreeError> {
        match block.region {
            IDLE => self.0.put(block.slot, false),
            _ => self.0.put_vacant(block.slot),
        }
        Ok(())
    }

    /// Refusals always pass: objects that are out come back.
    fn stats(&self) -> Stats {
        Stats { live_blocks: 1, ..Stats::default() }
    }

    fn check(&self) -> Result<(), Violation> {
        Ok(())
    }
}
