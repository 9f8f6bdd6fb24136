//! The lists of free blocks, and the edges by which neighbours are found.
//!
//! Promises upward: flips the two edges of a block, and returns their old values, in a dozen instructions; adds, removes and
//! finds a block of a list in constant time.
//! Asks from below: [`HeapMemory`], [`Records`], the bins.
//!
//! ```text
//! region  | edges | (starts) | map | heads | granules LISTS, LISTS + 1 ... ...................... |
//!           1 bit   checked    lists          live   | free  | live | free         | live
//! edges                                       0 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 0 0 0 1 0 0
//! ```
//!
//! Free blocks in lists never touch, so a set bit is either the start or the end of one, never both. Allocating or freeing
//! `p..q` flips bits `p` and `q`, whatever its neighbours are; when freeing, a bit that was set means that the neighbour on
//! that side is free.

use core::marker::PhantomData;
use core::ptr::NonNull;

use super::bins::{LISTS, WORD, bin, ceil_bin, words};
use super::config::HeapConfig;
use super::deferred::QUICK_SIZES;
use super::memory::HeapMemory;
use super::records::Records;

/// Where the lists of a region are.
///
/// Its methods take a copy, which stays in registers: a reference would be read again after each write into the region.
#[derive(Debug)]
pub struct HeapLists<C> {
    /// The region's memory, with its base where place 0 would be: before the region, or in its tables.
    pub memory: HeapMemory,
    /// The heads of the lists, those of the quick lists first. The words of the bitmap of lists precede them: bit `i` is
    /// set iff list `i` is not empty.
    pub heads: HeapMemory,
    /// Bit `p` is set iff a free block in a list starts or ends at place `p`. The base is where bit 0 would be, before the
    /// region: the table starts with the bit of the lowest place.
    pub edges: HeapMemory,
    /// The word of the bitmap of lists behind those that the region's lists use. It is never 0, so that a search needs
    /// no other end.
    pub last: usize,
    config: PhantomData<C>,
}

impl<C> Clone for HeapLists<C> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for HeapLists<C> {}

impl<C: HeapConfig> HeapLists<C> {
    /// No lists; must not be used.
    pub const NONE: Self = Self {
        memory: HeapMemory::NONE,
        heads: HeapMemory::NONE,
        edges: HeapMemory::NONE,
        last: 0,
        config: PhantomData,
    };

    /// Number of words of the bitmap of lists, for the largest region and the word that ends it.
    ///
    /// Where one path serves all requests, no word ends it.
    pub const MAP: usize = words(C::Records::SIZE_BITS, C::EXACT) + if C::ONE_PATH { 0 } else { 1 };
    /// The lowest place of a block, above the number of any list.
    pub const FIRST: usize = if C::ONE_PATH { Self::MAP * WORD } else { LISTS };
    /// Bytes of the tables before the edges.
    ///
    /// Where one path serves all requests, bit `i` of the bitmap of lists is bit `i` of the table of edges, so that one
    /// function flips both.
    pub const BEFORE: usize = if C::ONE_PATH { Self::FIRST / 8 } else { 0 };
    /// Number of quick lists, the one of size 0 included.
    pub const QUICK: usize = if C::DEFERS { QUICK_SIZES } else { 0 };

    /// Whether a free block in a list starts or ends at `at`.
    #[inline(always)]
    pub fn edge(self, at: usize) -> bool {
        bit(self.edges, at)
    }

    /// Flips the edge bit at a place.
    #[inline(always)]
    pub fn flip(self, at: usize) {
        flip(self.edges, at);
    }

    /// Flips the edges at both ends of a block of `size` granules.
    ///
    /// Returns their old values, non-zero for a set edge; `None` if neither was set.
    #[inline]
    pub fn flip_ends(self, at: usize, size: usize) -> Option<[usize; 2]> {
        // A load of eight bytes at the byte of the first bit contains both bits: at most 7 bits precede the first,
        // which leaves 57.
        if cfg!(all(target_pointer_width = "64", target_endian = "little")) && size < 57 {
            let (word, both) = (self.edges.load_anywhere(at / 8), (1 | 1 << size) << (at % 8));
            self.edges.store_anywhere(at / 8, word ^ both);
            let (set, start) = ((word & both) as usize, 1 << (at % 8));
            return (set != 0).then_some([set & start, set & !start]);
        }
        let ends = [flip(self.edges, at), flip(self.edges, at + size)];
        (ends != [0; 2]).then_some(ends)
    }

    /// The list of a size.
    #[inline(always)]
    pub fn list(size: usize) -> usize {
        if C::ONE_PATH { Self::list_apart(size) } else { bin(size, C::EXACT) }
    }

    /// [`HeapLists::list`] as a function of its own, for less code.
    #[inline(never)]
    fn list_apart(size: usize) -> usize {
        bin(size, C::EXACT)
    }

    /// Adds a free block, whose edges are set, at the head of its list.
    #[inline]
    pub fn insert(self, at: usize, size: usize) {
        let list = Self::list(size);
        let next = self.first(list);
        C::Records::write(self.memory, at, size, next, list);
        C::Records::set_head(self.heads, Self::QUICK + list, at);
        if next == 0 {
            self.flip_map(list);
        } else {
            C::Records::set_prev(self.memory, next, at);
        }
    }

    /// The first block of a list, 0 for none.
    #[inline(always)]
    pub fn first(self, list: usize) -> usize {
        C::Records::head(self.heads, Self::QUICK + list)
    }

    /// The size of the free block in a list that starts at `at`.
    #[inline(always)]
    pub fn size(self, at: usize) -> usize {
        if !C::Records::SAYS_ONE && self.edge(at + 1) { 1 } else { C::Records::size(self.memory, at) }
    }

    /// The size of the free block in a list that ends at `end`.
    #[inline(always)]
    pub fn size_before(self, end: usize) -> usize {
        if !C::Records::SAYS_ONE && self.edge(end - 1) { 1 } else { C::Records::size_before(self.memory, end) }
    }

    /// Removes a block from its list.
    #[inline]
    pub fn unlink(self, at: usize) {
        let (next, prev) = C::Records::links(self.memory, at);
        if next != 0 {
            C::Records::set_prev(self.memory, next, prev);
        }
        if prev >= Self::FIRST {
            return C::Records::set_next(self.memory, prev, next);
        }
        C::Records::set_head(self.heads, Self::QUICK + prev, next);
        if next == 0 {
            self.flip_map(prev);
        }
    }

    /// Removes the free block that ends at `end` from its list; returns its start.
    #[inline(always)]
    pub fn detach_before(self, end: usize) -> usize {
        let at = end - self.size_before(end);
        self.unlink(at);
        at
    }

    /// Removes the free block that starts at `at` from its list; returns its end.
    #[inline(always)]
    pub fn detach_behind(self, at: usize) -> usize {
        let size = self.size(at);
        self.unlink(at);
        at + size
    }

    /// Removes the first block of a list, which must not be empty; returns its start and end.
    ///
    /// Its edges stay set.
    #[inline(always)]
    pub fn take_first(self, list: usize) -> [usize; 2] {
        let at = self.first(list);
        // All blocks of an exact list have one size.
        let size = if list < C::EXACT { list } else { C::Records::size(self.memory, at) };
        let (next, _) = C::Records::links(self.memory, at);
        C::Records::set_head(self.heads, Self::QUICK + list, next);
        if next == 0 {
            self.flip_map(list);
        } else {
            C::Records::set_prev(self.memory, next, list);
        }
        [at, at + size]
    }

    /// The first block of the quick list of a size, 0 for none.
    #[inline(always)]
    pub fn quick(self, size: usize) -> usize {
        C::Records::head(self.heads, size)
    }

    /// Sets the first block of the quick list of a size.
    #[inline(always)]
    pub fn set_quick(self, size: usize, at: usize) {
        C::Records::set_head(self.heads, size, at);
    }

    /// The word of the bitmap of lists that has a list's bit.
    #[inline(always)]
    fn map(word: usize) -> usize {
        word.wrapping_sub(Self::MAP).wrapping_mul(size_of::<usize>())
    }

    /// Whether the bitmap says that a list is not empty.
    pub fn has(self, list: usize) -> bool {
        if C::ONE_PATH {
            return self.edge(list);
        }
        self.heads.load::<usize>(Self::map(list / WORD)) >> (list % WORD) & 1 != 0
    }

    /// Sets where a search ends, in a region with lists below `lists`.
    pub fn set_last(&mut self, lists: usize) {
        self.last = lists / WORD + 1;
        self.heads.store(Self::map(self.last), 1_usize);
    }

    /// Flips a list's bit in the bitmap of lists.
    #[inline(always)]
    fn flip_map(self, list: usize) {
        flip(self.heads.moved(Self::map(0)), list % LISTS.next_power_of_two());
    }

    /// The first list whose blocks all have at least `size` granules and which is not empty.
    ///
    /// The size must not be 0, and not be above that of the region.
    #[inline(always)]
    pub fn find_list(self, size: usize) -> Option<usize> {
        self.find_from(ceil_bin(size, C::EXACT))
    }

    /// The first list that is not empty, from one on; at most one behind the last of the region.
    #[inline(always)]
    pub fn find_from(self, from: usize) -> Option<usize> {
        let mut word = from / WORD;
        let mut bits = self.heads.load::<usize>(Self::map(word)) >> (from % WORD) << (from % WORD);
        if bits == 0 {
            while bits == 0 {
                word += 1;
                bits = self.heads.load(Self::map(word));
            }
            if word == self.last {
                return None;
            }
        }
        Some(word * WORD + bits.trailing_zeros() as usize)
    }

    /// Allocates `size` granules at `at` in a free block, which has edges and is in no list.
    ///
    /// What remains of the free block before and after them becomes free blocks.
    #[inline(always)]
    pub fn cut(self, [from, to]: [usize; 2], at: usize, size: usize) -> NonNull<u8> {
        self.flip_ends(at, size);
        if from != at {
            self.insert(from, at - from);
        }
        if at + size != to {
            self.insert(at + size, to - at - size);
        }
        self.memory.pointer(at << C::Records::GRANULE)
    }
}

/// Bytes of a bitmap with a bit for each place of `granules` granules, and for the end.
///
/// Enough bytes follow them for a load of eight bytes from any byte.
pub fn table(granules: usize) -> usize {
    (granules / WORD + 2) * size_of::<usize>()
}

/// Offset of the word that has bit `at`. A place has at most 32 bits, on 32-bit targets 29; stating this lets x86-64 and
/// ARMv7 mask the offset in one instruction.
#[inline(always)]
fn word_of(at: usize) -> usize {
    let at = if usize::BITS == 64 { at % (1 << 32) } else { at };
    let at = if cfg!(all(target_arch = "arm", target_has_atomic = "ptr")) { at % (1 << 29) } else { at };
    at / WORD * size_of::<usize>()
}

#[inline(always)]
pub fn bit(table: HeapMemory, at: usize) -> bool {
    table.load::<usize>(word_of(at)) >> (at % WORD) & 1 != 0
}

/// Whether any bit of `from..to` is set. Reads a word at a time.
pub fn any(table: HeapMemory, from: usize, to: usize) -> bool {
    let mut at = from;
    while at < to {
        let next = (at | (WORD - 1)) + 1;
        let word: usize = table.load(word_of(at));
        // Shifts out the bits below `at`, and those from `to` on.
        let above = next.saturating_sub(to);
        if (word >> (at % WORD) << (at % WORD)) << above != 0 {
            return true;
        }
        at = next;
    }
    false
}

/// Flips a bit; returns non-zero if it was set.
#[inline(always)]
pub fn flip(table: HeapMemory, at: usize) -> usize {
    let (word, bit): (usize, _) = (table.load(word_of(at)), 1 << (at % WORD));
    table.store(word_of(at), word ^ bit);
    word & bit
}
