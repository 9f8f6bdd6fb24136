//! Formats of the records of free blocks, inside the free memory.
//!
//! Promises upward: a free block of one granule has room for two links, and all others for their size at both ends too.
//! Asks from below: [`HeapMemory`]; every place passed must be that of a free block.
//!
//! ```text
//! Narrow   8 bytes   | size  next  prev  size |             16 bits each: 2^16 granules, 512 KiB
//! Packed   8 bytes   | next prev | size ... | size |        32 bits each: 2^32 - 1 granules, 32 GiB
//! Wide    16 bytes   | size  next  prev  size |             32 bits each: 2^32 - 1 granules, 64 GiB
//! ```
//!
//! Places and sizes are in granules. Places start at [`HeapLists::FIRST`](super::lists::HeapLists::FIRST), so 0 means no
//! block. The first block of list `i` has `i` as its previous block.

use core::marker::PhantomData;

use super::memory::{HeapMemory, Plain};

/// A format of the records of free blocks.
pub trait Records {
    /// log2 of the granule in bytes.
    const GRANULE: u32;
    /// Maximum number of granules in a region. Starts and sizes of free blocks are below it, because the tables come
    /// first.
    const MAX_GRANULES: usize;
    /// Number of bits of a size in granules.
    const SIZE_BITS: u32;
    /// Number of bytes of a list head that is a number.
    const HEAD_BYTES: usize;
    /// Whether a block of one granule says its size, as all others do; else its two edges say it.
    const SAYS_ONE: bool;

    /// Writes the record of a free block.
    fn write(memory: HeapMemory, at: usize, size: usize, next: usize, prev: usize);
    /// Reads the size of the free block that starts at `at`.
    fn size(memory: HeapMemory, at: usize) -> usize;
    /// Reads the size of the free block that ends at `end`.
    fn size_before(memory: HeapMemory, end: usize) -> usize;
    /// Reads the next and the previous block of the list.
    fn links(memory: HeapMemory, at: usize) -> (usize, usize);
    /// Reads the link to the next block, which may be all that was written of a record.
    fn next(memory: HeapMemory, at: usize) -> usize;
    /// Writes the link to the next block.
    fn set_next(memory: HeapMemory, at: usize, next: usize);
    /// Writes the link to the previous block.
    fn set_prev(memory: HeapMemory, at: usize, prev: usize);
    /// Reads the first block of list `i`.
    fn head(heads: HeapMemory, i: usize) -> usize;
    /// Writes the first block of list `i`.
    fn set_head(heads: HeapMemory, i: usize, at: usize);
}

/// Records of four numbers of one width, in granules of four times that width.
#[derive(Clone, Copy, Debug)]
pub struct FourFields<T>(PhantomData<T>);

/// Records of four 16-bit numbers, in granules of 8 bytes.
pub type Narrow = FourFields<u16>;
/// Records of four 32-bit numbers, in granules of 16 bytes.
pub type Wide = FourFields<u32>;

/// The number type of [`FourFields`].
pub trait Field: Plain {
    /// Number of values of the type; for `u32` one less, so that the number fits into 32 bits.
    const VALUES: usize;
    /// Truncates a number, which must be in range.
    fn cut(value: usize) -> Self;
    /// Converts to `usize`.
    fn wide(self) -> usize;
}

impl Field for u16 {
    const VALUES: usize = 1 << u16::BITS;

    #[inline(always)]
    fn cut(value: usize) -> Self {
        value as u16
    }

    #[inline(always)]
    fn wide(self) -> usize {
        self.into()
    }
}

impl Field for u32 {
    const VALUES: usize = u32::MAX as usize;

    #[inline(always)]
    fn cut(value: usize) -> Self {
        value as u32
    }

    #[inline(always)]
    fn wide(self) -> usize {
        self as usize
    }
}

impl<T: Field> FourFields<T> {
    /// Offset of field `i` from the start of granule `at`; field -1 is the last one of the granule before.
    #[inline(always)]
    fn field(at: usize, i: isize) -> usize {
        (at * (4 * size_of::<T>())).wrapping_add_signed(i * size_of::<T>() as isize)
    }
}

impl<T: Field> Records for FourFields<T> {
    const GRANULE: u32 = (4 * size_of::<T>()).ilog2();
    const MAX_GRANULES: usize = T::VALUES;
    const SIZE_BITS: u32 = u8::BITS * size_of::<T>() as u32;
    const HEAD_BYTES: usize = size_of::<T>();
    const SAYS_ONE: bool = true;

    #[inline(always)]
    fn write(memory: HeapMemory, at: usize, size: usize, next: usize, prev: usize) {
        memory.store(Self::field(at, 1), T::cut(next));
        memory.store(Self::field(at, 2), T::cut(prev));
        memory.store(Self::field(at, 0), T::cut(size));
        memory.store(Self::field(at + size, -1), T::cut(size));
    }

    #[inline(always)]
    fn size(memory: HeapMemory, at: usize) -> usize {
        memory.load::<T>(Self::field(at, 0)).wide()
    }

    #[inline(always)]
    fn size_before(memory: HeapMemory, end: usize) -> usize {
        memory.load::<T>(Self::field(end, -1)).wide()
    }

    #[inline(always)]
    fn links(memory: HeapMemory, at: usize) -> (usize, usize) {
        (memory.load::<T>(Self::field(at, 1)).wide(), memory.load::<T>(Self::field(at, 2)).wide())
    }

    #[inline(always)]
    fn next(memory: HeapMemory, at: usize) -> usize {
        memory.load::<T>(Self::field(at, 1)).wide()
    }

    #[inline(always)]
    fn set_next(memory: HeapMemory, at: usize, new: usize) {
        memory.store(Self::field(at, 1), T::cut(new));
    }

    #[inline(always)]
    fn set_prev(memory: HeapMemory, at: usize, new: usize) {
        memory.store(Self::field(at, 2), T::cut(new));
    }

    #[inline(always)]
    fn head(heads: HeapMemory, i: usize) -> usize {
        heads.load::<T>(i * Self::HEAD_BYTES).wide()
    }

    #[inline(always)]
    fn set_head(heads: HeapMemory, i: usize, at: usize) {
        heads.store(i * Self::HEAD_BYTES, T::cut(at));
    }
}

/// Records of two links of 32 bits in a granule of 8 bytes.
///
/// The size stands in the second granule and in the last, which are one in a block of two. A block of one granule does
/// not say its size: its two edges do.
#[derive(Clone, Copy, Debug)]
pub struct Packed;

impl Records for Packed {
    const GRANULE: u32 = 3;
    const MAX_GRANULES: usize = u32::MAX as usize;
    const SIZE_BITS: u32 = u32::BITS;
    const HEAD_BYTES: usize = 4;
    const SAYS_ONE: bool = false;

    #[inline(always)]
    fn write(memory: HeapMemory, at: usize, size: usize, next: usize, prev: usize) {
        memory.store(at * 8, next as u32);
        memory.store(at * 8 + 4, prev as u32);
        if size > 1 {
            memory.store(at * 8 + 8, size as u32);
            memory.store((at + size) * 8 - 8, size as u32);
        }
    }

    #[inline(always)]
    fn size(memory: HeapMemory, at: usize) -> usize {
        memory.load::<u32>(at * 8 + 8) as usize
    }

    #[inline(always)]
    fn size_before(memory: HeapMemory, end: usize) -> usize {
        memory.load::<u32>(end * 8 - 8) as usize
    }

    #[inline(always)]
    fn links(memory: HeapMemory, at: usize) -> (usize, usize) {
        (memory.load::<u32>(at * 8) as usize, memory.load::<u32>(at * 8 + 4) as usize)
    }

    #[inline(always)]
    fn next(memory: HeapMemory, at: usize) -> usize {
        memory.load::<u32>(at * 8) as usize
    }

    #[inline(always)]
    fn set_next(memory: HeapMemory, at: usize, next: usize) {
        memory.store(at * 8, next as u32);
    }

    #[inline(always)]
    fn set_prev(memory: HeapMemory, at: usize, prev: usize) {
        memory.store(at * 8 + 4, prev as u32);
    }

    #[inline(always)]
    fn head(heads: HeapMemory, i: usize) -> usize {
        heads.load::<u32>(i * Self::HEAD_BYTES) as usize
    }

    #[inline(always)]
    fn set_head(heads: HeapMemory, i: usize, at: usize) {
        heads.store(i * Self::HEAD_BYTES, at as u32);
    }
}
