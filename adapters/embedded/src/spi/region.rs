//! Blocks of a chip's bytes.
//!
//! Promises upward: no read or write leaves its block; a block that is not live is refused before anything is sent.
//! Asks from below: [`Range`] for the places, [`LineCache`] for the bytes.

use terrace_core::{AllocError, Allocator, Block, FreeError, GoodFit, Owner, Range, Request, Slots, Stats, Violation};

use super::line_cache::LineCache;
use super::{AccessError, SpiError, SpiMemory};

/// A chip whose bytes are given out as blocks.
///
/// `S` is where the records of blocks lie: 32 bytes each, lent by you; one more than blocks live at once. `LINES` lines of
/// `BYTES` bytes (a power of two) are kept and written back late; with no lines every access goes to the chip.
///
/// What was written is on the chip after [`SpiRegion::flush`], not before.
#[derive(Debug)]
pub struct SpiRegion<M, S, const LINES: usize, const BYTES: usize> {
    memory: M,
    /// Of addresses on the chip.
    range: Range<S, GoodFit>,
    cache: LineCache<LINES, BYTES>,
}

impl<M: SpiMemory, S: Slots, const LINES: usize, const BYTES: usize> SpiRegion<M, S, LINES, BYTES> {
    /// All of a chip, free. Blocks are multiples of `granule` bytes (a power of two); with the lines' size or a multiple of
    /// it no two blocks share a line.
    ///
    /// # Errors
    /// [`AllocError`]: the granule is no power of two, the chip not a multiple of it and of the line, or no slot was lent.
    pub fn new(memory: M, slots: S, granule: u64) -> Result<Self, AllocError> {
        let capacity = u64::from(memory.capacity());
        if !capacity.is_multiple_of(BYTES as u64) {
            return Err(AllocError::new(terrace_core::Cause::BadRequest, capacity));
        }
        let mut range = Range::new(slots, granule, GoodFit::new())?;
        range.add_region(0, capacity)?;
        Ok(Self { memory, range, cache: LineCache::new() })
    }

    /// Hands out a block; what it holds is anything. O(1).
    ///
    /// # Errors
    /// What was asked, and what could have been had.
    pub fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        self.range.allocate(request)
    }

    /// Takes a block back; what it held and the chip does not have yet is never sent. O(lines).
    ///
    /// # Errors
    /// [`FreeError`] when it is not live.
    pub fn free(&mut self, block: Block) -> Result<(), FreeError> {
        let recorded = self.range.recorded(&block)?;
        self.range.free(block, Owner(0))?;
        self.cache.invalidate(recorded.address, recorded.bytes);
        Ok(())
    }

    /// Makes a block longer or shorter where it is. The old name is dead then.
    ///
    /// # Errors
    /// [`Cause::NoRoom`](terrace_core::Cause::NoRoom), or that it is not live.
    pub fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        self.range.resize(block, bytes)
    }

    /// Reads from `offset` bytes into a block on. O(bytes), and a look at every line for each one touched.
    ///
    /// # Errors
    /// [`AccessError`]; after [`AccessError::Memory`], `bytes` holds anything and the call may be made again.
    pub fn read(&mut self, block: &Block, offset: u64, bytes: &mut [u8]) -> Result<(), AccessError<M::Error>> {
        let address = self.locate(block, offset, bytes.len())?;
        Ok(self.cache.read(&mut self.memory, address, bytes)?)
    }

    /// Writes from `offset` bytes into a block on. O(bytes), and a look at every line for each one touched.
    ///
    /// # Errors
    /// [`AccessError`]; after [`AccessError::Memory`], some of the bytes may have been written, nothing else has changed,
    /// and the call may be made again.
    pub fn write(&mut self, block: &Block, offset: u64, bytes: &[u8]) -> Result<(), AccessError<M::Error>> {
        let address = self.locate(block, offset, bytes.len())?;
        Ok(self.cache.write(&mut self.memory, address, bytes)?)
    }

    /// Where on the chip something of a block lies.
    fn locate(&self, block: &Block, offset: u64, bytes: usize) -> Result<u32, AccessError<M::Error>> {
        // Not what the name says: that may have been altered.
        let block = self.range.recorded(block)?;
        let outside = AccessError::OutsideBlock { offset, bytes, block: block.bytes };
        match offset.checked_add(bytes as u64) {
            Some(end) if end <= block.bytes => u32::try_from(block.address + offset).map_err(|_| outside),
            _ => Err(outside),
        }
    }

    /// Gives the chip everything that was written. O(lines).
    ///
    /// # Errors
    /// The chip's. What it did not get is kept; the call may be made again.
    pub fn flush(&mut self) -> Result<(), SpiError<M::Error>> {
        self.cache.flush(&mut self.memory)
    }

    /// Flushes, and gives the chip and the slots back.
    ///
    /// # Errors
    /// The region itself, with what the chip said: nothing is lost.
    #[expect(clippy::result_large_err, reason = "the region itself comes back, to be closed again")]
    #[expect(clippy::type_complexity, reason = "two pairs")]
    pub fn close(mut self) -> Result<(M, S), (Self, SpiError<M::Error>)> {
        match self.flush() {
            Ok(()) => Ok((self.memory, self.range.into_slots())),
            Err(error) => Err((self, error)),
        }
    }

    /// The chip. What was written is there after [`SpiRegion::flush`] only.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// What is given out, in bytes.
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
