//! The interface of every allocator of terrace: allocate, free, resize, trim, statistics.
//!
//! Promises upward: one trait for the core's structures, the layers around them, models of other allocators, and
//! allocators of users; one contract suite tests them all.
//! Asks from below: nothing.

use crate::error::{AllocError, Cause, FreeError, Violation};
use crate::stats::Stats;

/// The allocating or freeing party: a thread, a core, a stream. 0 is the default owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u32);

/// Size, alignment and owner of a block to allocate; built by [`Request::new`] and the setters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Size in bytes, at least 1.
    pub bytes: u64,
    /// Alignment of the address in bytes, a power of two.
    pub align: u64,
    /// The owner that will use the block.
    pub owner: Owner,
}

impl Request {
    /// A request for `bytes` bytes at any alignment, for the default owner.
    pub const fn new(bytes: u64) -> Self {
        Self { bytes, align: 1, owner: Owner(0) }
    }

    /// The same request at an alignment (bytes, a power of two).
    pub const fn align(self, align: u64) -> Self {
        Self { align, ..self }
    }

    /// The same request, for the given owner.
    pub const fn owner(self, owner: Owner) -> Self {
        Self { owner, ..self }
    }

    /// Refuses zero bytes and alignments that are not powers of two.
    ///
    /// # Errors
    /// [`Cause::BadRequest`].
    pub const fn validate(self) -> Result<Self, AllocError> {
        if self.bytes == 0 || !self.align.is_power_of_two() {
            return Err(AllocError::new(Cause::BadRequest, self.bytes));
        }
        Ok(self)
    }
}

/// The handle of an allocated block: `Copy`, like an address; free it once.
///
/// `slot` and `ticket` are for the allocator alone. An allocator never issues a ticket twice, so it always detects a
/// stale handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Address in the space that the allocator manages, in bytes.
    pub address: u64,
    /// Size of the block in bytes: the request, rounded up by the allocator.
    pub bytes: u64,
    /// Index of the allocator's record of the block.
    pub slot: u32,
    /// Number of the region (segment) that contains the block.
    pub region: u32,
    /// Distinguishes this block from all earlier and later blocks in the same slot.
    pub ticket: u64,
}

/// An allocator: a structure of the core, a layer, a model of another allocator, or your own.
///
/// The contract, tested by one suite for all implementors:
/// 1. Live blocks never overlap, and each has at least the size and the alignment requested.
/// 2. A refused call changes nothing.
/// 3. `free` of a block that is not live is refused.
/// 4. When everything has been freed and [`trim`](Allocator::trim) called, `stats().in_use` is 0.
pub trait Allocator {
    /// Allocates a block.
    ///
    /// # Errors
    /// The cause, the bytes requested and the largest free block. See [`Cause`].
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError>;

    /// Frees a block on behalf of `owner`, which may differ from the owner that allocated it.
    ///
    /// # Errors
    /// [`FreeError`] when the block is not live; nothing changes then.
    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError>;

    /// Resizes a live block to `bytes` bytes in place; on success the old handle is stale.
    ///
    /// # Errors
    /// [`Cause::NoRoom`] when the block cannot be resized in place (always, for allocators that never can).
    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        let _ = block;
        Err(AllocError::new(Cause::NoRoom, bytes))
    }

    /// Allocates a block for each request, or none at all. `blocks[i]` is the block of `requests[i]`.
    ///
    /// Requests of one size are allocated together, the largest size first, so that their blocks are adjacent where
    /// possible. O(requests * distinct sizes), and an allocation each.
    ///
    /// # Errors
    /// [`Cause::BadRequest`] when the two slices differ in length; else the error of the first request that failed, after
    /// all blocks of the batch have been freed.
    fn allocate_batch(&mut self, requests: &[Request], blocks: &mut [Option<Block>]) -> Result<(), AllocError> {
        if requests.len() != blocks.len() {
            return Err(AllocError::new(Cause::BadRequest, 0));
        }
        blocks.fill(None);
        let mut below = u64::MAX;
        // In descending order of sizes: `below` is the size allocated last.
        while let Some(bytes) = requests.iter().map(|request| request.bytes).filter(|&bytes| bytes < below).max() {
            below = bytes;
            for (request, block) in requests.iter().zip(blocks.iter_mut()).filter(|(request, _)| request.bytes == bytes)
            {
                *block = match self.allocate(*request) {
                    Ok(block) => Some(block),
                    Err(error) => {
                        self.undo_batch(requests, blocks);
                        return Err(error);
                    }
                };
            }
        }
        Ok(())
    }

    /// Frees the blocks that a failed batch has allocated so far.
    #[doc(hidden)]
    fn undo_batch(&mut self, requests: &[Request], blocks: &mut [Option<Block>]) {
        for (request, block) in requests.iter().zip(blocks) {
            if let Some(block) = block.take() {
                // The free is never refused: the failed batch allocated this block, and no other code has its handle.
                let _ = self.free(block, request.owner);
            }
        }
    }

    /// Frees blocks in order, up to the first that is refused.
    ///
    /// # Errors
    /// The index of the first block that was refused, and the reason. The blocks before it are freed; it and the blocks
    /// after it are not.
    fn free_batch(&mut self, blocks: &[Block], owner: Owner) -> Result<(), (usize, FreeError)> {
        blocks.iter().enumerate().try_for_each(|(i, &block)| self.free(block, owner).map_err(|error| (i, error)))
    }

    /// Empties caches and returns unused memory to the source; returns the number of bytes given back.
    fn trim(&mut self) -> u64 {
        0
    }

    /// Counters and ratios at this moment.
    fn stats(&self) -> Stats;

    /// Checks all invariants and reports the first that does not hold. O(n); for tests.
    ///
    /// # Errors
    /// The invariant that is broken, and where.
    fn check(&self) -> Result<(), Violation> {
        Ok(())
    }
}
