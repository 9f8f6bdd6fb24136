//! Formats of the records of free blocks, inside the free memory.
//!
//! Promises upward: a free block of one granule has room for its size at both ends and for two links.
//! Asks from below: [`HeapMemory`]; every place passed must be that of a free block.
//!
//! ```text
//! Narrow   8 bytes   | size  next  prev  size |             16 bits each: 2^16 granules, 512 KiB
//! Packed   8 bytes   | size:22 next:21 prev:21 | ... size | 64 bits: 2^21 granules, 16 MiB; for 64-bit targets
//! Wide    16 bytes   | size  next  prev  size |             32 bits each: 2^32 - 1 granules, 64 GiB
//! ```
//!
//! Places and sizes are in granules. Places start at [`LISTS`](super::bins::LISTS), so 0 means no block. The first block of
//! list `i` has `i` as its previous block if the format is [`NAMED`](Records::NAMED), else 0.

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
    /// Number of bytes of a list head.
    const HEAD_BYTES: usize;
    /// Whether the record of a list's first block names the list as its previous block; else it has 0 there. If so,
    /// removing the block need not compute its list (twice in the longest call), but adding a block writes one more
    /// number.
    const NAMED: bool;

    /// Writes the record of a free block.
    fn write(memory: HeapMemory, at: usize, size: usize, next: usize, prev: usize);
    /// Reads the size of the free block that starts at `at`.
    fn size(memory: HeapMemory, at: usize) -> usize;
    /// Reads the size of the free block that ends at `end`.
    fn size_before(memory: HeapMemory, end: usize) -> usize;
    /// Reads the next and the previous block of the list.
    fn links(memory: HeapMemory, at: usize) -> (usize, usize);
    /// Replaces the link to the next block, which must be `old`.
    fn set_next(memory: HeapMemory, at: usize, old: usize, new: usize);
    /// Replaces the link to the previous block, which must be `old`.
    fn set_prev(memory: HeapMemory, at: usize, old: usize, new: usize);
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
    const NAMED: bool = true;

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
    fn set_next(memory: HeapMemory, at: usize, _: usize, new: usize) {
        memory.store(Self::field(at, 1), T::cut(new));
    }

    #[inline(always)]
    fn set_prev(memory: HeapMemory, at: usize, _: usize, new: usize) {
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

/// Records of three numbers in one 64-bit word, which is the granule.
///
/// The last granule of a larger block holds only the size; in a block of one granule, record and last granule are one
/// word.
#[derive(Clone, Copy, Debug)]
pub struct Packed;

/// The size takes the lowest bits of the word; then come the links to the next and the previous block.
const SIZE_BITS: u32 = 22;
const LINK_BITS: u32 = 21;
const _: () = assert!(SIZE_BITS + 2 * LINK_BITS == u64::BITS);

impl Packed {
    #[inline(always)]
    fn size_of(word: u64) -> usize {
        word as usize & ((1 << SIZE_BITS) - 1)
    }

    #[inline(always)]
    fn flip(memory: HeapMemory, at: usize, bits: u64) {
        memory.store(at * 8, memory.load::<u64>(at * 8) ^ bits);
    }
}

impl Records for Packed {
    const GRANULE: u32 = 3;
    const MAX_GRANULES: usize = 1 << LINK_BITS;
    const SIZE_BITS: u32 = LINK_BITS;
    const HEAD_BYTES: usize = 4;
    /// `true` would add 3 instructions to the mean of 58, and save 18 of 164 in the longest free.
    const NAMED: bool = false;

    #[inline(always)]
    fn write(memory: HeapMemory, at: usize, size: usize, next: usize, prev: usize) {
        memory.store((at + size) * 8 - 8, size as u64);
        // In a block of one granule this overwrites the word that the line above wrote, with the same size.
        memory.store(at * 8, size as u64 | (next as u64) << SIZE_BITS | (prev as u64) << (SIZE_BITS + LINK_BITS));
    }

    #[inline(always)]
    fn size(memory: HeapMemory, at: usize) -> usize {
        Self::size_of(memory.load(at * 8))
    }

    #[inline(always)]
    fn size_before(memory: HeapMemory, end: usize) -> usize {
        Self::size_of(memory.load(end * 8 - 8))
    }

    #[inline(always)]
    fn links(memory: HeapMemory, at: usize) -> (usize, usize) {
        let word = memory.load::<u64>(at * 8);
        ((word >> SIZE_BITS) as usize & (Self::MAX_GRANULES - 1), (word >> (SIZE_BITS + LINK_BITS)) as usize)
    }

    #[inline(always)]
    fn set_next(memory: HeapMemory, at: usize, old: usize, new: usize) {
        Self::flip(memory, at, ((old ^ new) as u64) << SIZE_BITS);
    }

    #[inline(always)]
    fn set_prev(memory: HeapMemory, at: usize, old: usize, new: usize) {
        Self::flip(memory, at, ((old ^ new) as u64) << (SIZE_BITS + LINK_BITS));
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
