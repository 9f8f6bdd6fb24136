//! Blocks allocated from a chip's bytes.
//!
//! Promises upward: no read or write leaves its block; a block that is not live is refused before anything is sent.
//! Asks from below: [`Range`] to allocate addresses, [`LineCache`] to access bytes.

use terrace_core::{AllocError, Allocator, Block, FreeError, GoodFit, Owner, Range, Request, Slots, Stats, Violation};

use super::error::{AccessError, SpiError};
use super::line_cache::LineCache;
use super::memory::SpiMemory;

/// A chip whose bytes are allocated as blocks.
///
/// `S` lends the slots that record blocks, 32 bytes each: one slot more than the maximum number of live blocks. The
/// cache has `LINES` lines of `BYTES` bytes (a power of two); with 0 lines every access goes to the chip.
///
/// Written bytes are certain to be on the chip only after [`SpiRegion::flush`].
#[derive(Debug)]
pub struct SpiRegion<M, S, const LINES: usize, const BYTES: usize> {
    memory: M,
    /// Allocates addresses of the chip.
    range: Range<S, GoodFit>,
    cache: LineCache<LINES, BYTES>,
}

impl<M: SpiMemory, S: Slots, const LINES: usize, const BYTES: usize> SpiRegion<M, S, LINES, BYTES> {
    /// A region over a whole chip, all of it free.
    ///
    /// Blocks are multiples of `granule` bytes, a power of two; if `granule` is a multiple of `BYTES`, no two blocks
    /// share a line.
    ///
    /// # Errors
    /// [`AllocError`]: `granule` is no power of two, the capacity no multiple of `granule` and of `BYTES`, or there is
    /// no slot.
    pub fn new(memory: M, slots: S, granule: u64) -> Result<Self, AllocError> {
        let capacity = u64::from(memory.capacity());
        if !capacity.is_multiple_of(BYTES as u64) {
            return Err(AllocError::new(terrace_core::Cause::BadRequest, capacity));
        }
        let mut range = Range::new(slots, granule, GoodFit::new())?;
        range.add_region(0, capacity)?;
        Ok(Self { memory, range, cache: LineCache::new() })
    }

    /// Allocates a block, whose contents are unspecified. O(1).
    ///
    /// # Errors
    /// [`AllocError`] with the request and the largest free block.
    pub fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        self.range.allocate(request)
    }

    /// Frees a block; dirty lines within the block are dropped, not written back. O(lines).
    ///
    /// # Errors
    /// [`FreeError`] when the block is not live.
    pub fn free(&mut self, block: Block) -> Result<(), FreeError> {
        let recorded = self.range.recorded(&block)?;
        self.range.free(block, Owner(0))?;
        self.cache.invalidate(recorded.address, recorded.bytes);
        Ok(())
    }

    /// Resizes a block in place; returns its new handle. The old handle is stale then.
    ///
    /// # Errors
    /// [`Cause::NoRoom`](terrace_core::Cause::NoRoom), or that the block is not live.
    pub fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        self.range.resize(block, bytes)
    }

    /// Reads bytes of a block, from `offset` on. O(bytes + lines accessed * `LINES`).
    ///
    /// # Errors
    /// [`AccessError`]; after [`AccessError::Memory`] the contents of `bytes` are unspecified, and the call may be made again.
    pub fn read(&mut self, block: &Block, offset: u64, bytes: &mut [u8]) -> Result<(), AccessError<M::Error>> {
        let address = self.locate(block, offset, bytes.len())?;
        Ok(self.cache.read(&mut self.memory, address, bytes)?)
    }

    /// Writes bytes into a block, from `offset` on. O(bytes + lines accessed * `LINES`).
    ///
    /// # Errors
    /// [`AccessError`]; after [`AccessError::Memory`] some of the bytes may be written, nothing else has changed, and the call
    /// may be made again.
    pub fn write(&mut self, block: &Block, offset: u64, bytes: &[u8]) -> Result<(), AccessError<M::Error>> {
        let address = self.locate(block, offset, bytes.len())?;
        Ok(self.cache.write(&mut self.memory, address, bytes)?)
    }

    /// Address on the chip of `offset` in a block, after a check that `bytes` bytes from there on lie in the block.
    fn locate(&self, block: &Block, offset: u64, bytes: usize) -> Result<u32, AccessError<M::Error>> {
        // Uses the recorded address and size: the caller may have changed fields of the handle.
        let block = self.range.recorded(block)?;
        let outside = AccessError::OutsideBlock { offset, bytes, block: block.bytes };
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= block.bytes => u32::try_from(block.address + offset).map_err(|_| outside),
            _ => Err(outside),
        }
    }

    /// Writes all dirty lines to the chip. O(lines).
    ///
    /// # Errors
    /// The chip's error. Lines that were not written back stay dirty; the call may be made again.
    pub fn flush(&mut self) -> Result<(), SpiError<M::Error>> {
        self.cache.flush(&mut self.memory)
    }

    /// Flushes the cache and returns the chip and the slots.
    ///
    /// # Errors
    /// Returns the region with the chip's error, so that nothing is lost.
    #[expect(clippy::result_large_err, reason = "the region itself comes back, to be closed again")]
    #[expect(clippy::type_complexity, reason = "two pairs")]
    pub fn close(mut self) -> Result<(M, S), (Self, SpiError<M::Error>)> {
        match self.flush() {
            Ok(()) => Ok((self.memory, self.range.into_slots())),
            Err(error) => Err((self, error)),
        }
    }

    /// The chip. Written bytes are certain to be there only after [`SpiRegion::flush`].
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Statistics of the blocks, in bytes.
    pub fn stats(&self) -> Stats {
        self.range.stats()
    }

    /// Checks the records of blocks. O(blocks): for tests.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        self.range.check()
    }
}
