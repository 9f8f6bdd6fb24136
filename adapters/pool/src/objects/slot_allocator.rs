//! The slots of a pool as an [`Allocator`], so that calls wait for one in the queue in which all of terrace waits.
//!
//! Promises upward: a block is a slot: `slot` its number, `region` its [`origin`].
//! Asks from below: [`Places`]. Every function may be called under the lock of the queue: none calls what a user supplied.

use crate::places::{Places, SlotOrigin};
use std::sync::Arc;
use terrace_core::{AllocError, Allocator, Block, Cause, FreeError, Owner, Request, Stats, Violation};

/// Slots by their origins, which are the regions of blocks.
const ORIGINS: [SlotOrigin; 3] = [SlotOrigin::Shared, SlotOrigin::Front, SlotOrigin::Vacant];

/// Where the slot of a block was before it was allocated.
pub fn origin(block: &Block) -> SlotOrigin {
    ORIGINS.into_iter().find(|origin| *origin as u32 == block.region).unwrap_or(SlotOrigin::Vacant)
}

/// Allocates slots.
#[derive(Debug)]
pub struct SlotAllocator(pub Arc<Places>);

impl Allocator for SlotAllocator {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        let places = &self.0;
        if places.is_closed() {
            return Err(AllocError::new(Cause::SourceFailed, request.bytes));
        }
        let block =
            |(slot, origin)| Block { address: u64::from(slot), bytes: 1, slot, region: origin as u32, ticket: 0 };
        places.take().map(block).ok_or(AllocError::new(Cause::OutOfMemory, request.bytes))
    }

    fn free(&mut self, block: Block, _: Owner) -> Result<(), FreeError> {
        match origin(&block) {
            SlotOrigin::Vacant => self.0.put_vacant(block.slot),
            _ => self.0.put(block.slot, false),
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
