//! The face that every allocator of terrace shows: ask, give back, resize, look.
//!
//! Promises upward: one trait for the core's structures, the layers around them, the models of peers and
//! out-of-tree allocators; one contract suite tests them all.
//! Asks from below: nothing.

use crate::error::{AllocError, Cause, FreeError, Violation};
use crate::stats::Stats;

/// The allocating or freeing party: a thread, a core, a stream. 0 is the default owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u32);

/// What is asked for. Build it with [`Request::new`] and the setters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes, at least 1.
    pub bytes: u64,
    /// Alignment of the address in bytes, a power of two.
    pub align: u64,
    /// The owner that will use the block.
    pub owner: Owner,
}

impl Request {
    /// `bytes` bytes, no particular alignment, for the default owner.
    pub const fn new(bytes: u64) -> Self {
        Self { bytes, align: 1, owner: Owner(0) }
    }

    /// The same request at an alignment (bytes, a power of two).
    pub const fn align(self, align: u64) -> Self {
        Self { align, ..self }
    }

    /// The same request for an owner.
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

/// A block that was handed out. It is a name, not an owner: `Copy`, like an address; give it back once.
///
/// `slot` and `ticket` are the allocator's own: a ticket is never used twice by one allocator, so a stale
/// name is always recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Address (bytes) in whatever space the allocator manages.
    pub address: u64,
    /// Bytes the block holds: the request rounded up to the allocator's granule.
    pub bytes: u64,
    /// The allocator's record of the block.
    pub slot: u32,
    /// The region (segment) the block lies in.
    pub region: u32,
    /// Distinguishes this block from every other that used the record.
    pub ticket: u64,
}

/// An allocator: core's structures, layers, models of peers, yours.
///
/// The contract, tested by one suite for all implementors:
/// 1. Live blocks never overlap, and each holds at least the bytes asked at the alignment asked.
/// 2. A refused call changes nothing.
/// 3. `free` of a block that is not live is refused.
/// 4. When everything has been freed and [`trim`](Allocator::trim) called, `stats().in_use` is 0.
pub trait Allocator {
    /// Hands out a block.
    ///
    /// # Errors
    /// What was asked, and the largest free block. See [`Cause`].
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError>;

    /// Frees a block on behalf of `owner`, which may differ from the owner that allocated it.
    ///
    /// # Errors
    /// [`FreeError`] when the block is not live; nothing changes then.
    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError>;

    /// Makes a live block `bytes` long without moving it; the old name is dead when this succeeds.
    ///
    /// # Errors
    /// [`Cause::NoRoom`] when it cannot be done in place (always, for allocators that never can).
    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        let _ = block;
        Err(AllocError::new(Cause::NoRoom, bytes))
    }

    /// Hands out a block for each request, or none at all. `blocks[i]` is the block of `requests[i]`.
    ///
    /// Requests of one size are served together, the largest size first: their blocks lie side by side where there is
    /// room. O(requests * distinct sizes), and an allocation each.
    ///
    /// # Errors
    /// [`Cause::BadRequest`] when the two slices differ in length; else the first request that failed, after everything
    /// that was handed out for the batch has been given back.
    fn allocate_batch(&mut self, requests: &[Request], blocks: &mut [Option<Block>]) -> Result<(), AllocError> {
        if requests.len() != blocks.len() {
            return Err(AllocError::new(Cause::BadRequest, 0));
        }
        blocks.fill(None);
        let mut below = u64::MAX;
        // Size by size, downwards: `below` is the size served last.
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

    /// Gives back what a batch handed out so far.
    #[doc(hidden)]
    fn undo_batch(&mut self, requests: &[Request], blocks: &mut [Option<Block>]) {
        for (request, block) in requests.iter().zip(blocks) {
            if let Some(block) = block.take() {
                // Handed out a moment ago to this very call: it cannot be refused.
                let _ = self.free(block, request.owner);
            }
        }
    }

    /// Takes blocks back, in order, up to the first that is refused.
    ///
    /// # Errors
    /// The index of the first block that was refused, and why. Blocks before it have been freed, it and those behind it
    /// have not.
    fn free_batch(&mut self, blocks: &[Block], owner: Owner) -> Result<(), (usize, FreeError)> {
        blocks.iter().enumerate().try_for_each(|(i, &block)| self.free(block, owner).map_err(|error| (i, error)))
    }

    /// Empties caches and gives unused memory back to the source. Returns the bytes given back.
    fn trim(&mut self) -> u64 {
        0
    }

    /// Counters and ratios, as of now.
    fn stats(&self) -> Stats;

    /// Walks everything and reports the first invariant that does not hold. O(n); for tests.
    ///
    /// # Errors
    /// The clause that is broken, and where.
    fn check(&self) -> Result<(), Violation> {
        Ok(())
    }
}
