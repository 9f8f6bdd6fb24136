//! A pool during a replay, with its block for each slot of the trace.
//!
//! Promises upward: each operation is one call (a reallocation that cannot be done in place: two). What a failed allocation leaves out
//! is left out at its reallocation and its free too.
//! Asks from below: an allocator; operations in order.

use crate::operation::{Operation, OperationKind};
use terrace_core::{AllocError, Allocator, Block, FreeError, Request};

/// The block that the pool has allocated for a slot of the trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiveBlock {
    /// The block; without meaning when the slot is empty.
    pub block: Block,
    /// Bytes requested; 0 when the slot is empty or its allocation failed.
    pub bytes: u64,
}

/// A slot without a block.
pub(crate) const EMPTY: LiveBlock =
    LiveBlock { block: Block { address: 0, bytes: 0, slot: 0, region: 0, ticket: 0 }, bytes: 0 };

/// A pool and its blocks.
pub struct PoolBlocks {
    /// The pool.
    pub pool: Box<dyn Allocator>,
    /// The pool's block for each slot of the trace.
    pub(crate) blocks: Vec<LiveBlock>,
    /// Sum of `bytes` over `blocks`.
    live: u64,
    /// The most that `live` was.
    pub peak_live: u64,
    /// Number of allocations that failed.
    pub failed: u64,
    /// The first failed allocation: the number of its event, and its error. `Some` iff `failed > 0`.
    pub(crate) first_failure: Option<(u64, AllocError)>,
}

impl PoolBlocks {
    /// A pool without blocks, for a trace with so many slots at first.
    pub fn new(pool: Box<dyn Allocator>, slots: usize) -> Self {
        Self { pool, blocks: vec![EMPTY; slots], live: 0, peak_live: 0, failed: 0, first_failure: None }
    }

    /// Executes one operation, which is event number `event`. Fails only if the pool refuses a free.
    #[inline]
    pub fn execute(&mut self, operation: &Operation, event: u64) -> Result<(), FreeError> {
        let slot = operation.slot as usize;
        let old = self.blocks[slot];
        match operation.kind {
            OperationKind::Allocate => {
                if let Some(new) = self.allocate(operation, event) {
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
                if let Some(new) = self.reallocate(old, operation, event)? {
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
    fn allocate(&mut self, operation: &Operation, event: u64) -> Option<LiveBlock> {
        let request = Request::new(operation.bytes).align(1 << operation.align_log2).owner(operation.owner);
        match self.pool.allocate(request) {
            Ok(block) => Some(LiveBlock { block, bytes: operation.bytes }),
            Err(error) => {
                self.failed += 1;
                self.first_failure.get_or_insert((event, error));
                None
            }
        }
    }

    /// Resizes a block in place if its address has the alignment and the pool can do so; else allocates a new block and
    /// frees the old one.
    ///
    /// Returns `None` if the allocation fails: the old block then stays, as with `realloc`.
    fn reallocate(
        &mut self,
        old: LiveBlock,
        operation: &Operation,
        event: u64,
    ) -> Result<Option<LiveBlock>, FreeError> {
        let aligned = old.block.address.trailing_zeros() >= operation.align_log2.into();
        if aligned && let Ok(block) = self.pool.resize(old.block, operation.bytes) {
            return Ok(Some(LiveBlock { block, bytes: operation.bytes }));
        }
        let new = self.allocate(operation, event);
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

    /// Slots whose blocks are live, with the blocks.
    pub fn live(&self) -> impl Iterator<Item = (u32, Block)> {
        (0..).zip(&self.blocks).filter(|(_, slot)| slot.bytes > 0).map(|(at, slot)| (at, slot.block))
    }
}
