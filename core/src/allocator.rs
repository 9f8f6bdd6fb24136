//! The face that every allocator of terrace shows: ask, give back, resize, look.
//!
//! Promises upward: one trait for the core's structures, the layers around them, the models of peers and
//! out-of-tree allocators; one contract suite tests them all.
//! Asks from below: nothing.

use crate::error::{AllocError, Cause, FreeError, Violation};
use crate::stats::Stats;

/// Who asks and who gives back: a thread, a core, a stream. 0 is the default owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(pub u32);

/// What is asked for. Build it with [`Request::new`] and the setters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Bytes, at least 1.
    pub bytes: u64,
    /// Alignment of the address in bytes, a power of two.
    pub align: u64,
    /// Who will use the block.
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

    /// Takes a block back from `owner` (who may differ from the one who allocated it).
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
