//! A region of a heap: its tables, and a bitmap of the edges of free blocks.
//!
//! Promises upward: flips the two edges of a block, and returns their old values, in a dozen instructions.
//! Asks from below: [`HeapMemory`], [`Records`], the bins.
//!
//! ```text
//! region  | edges | (starts) | heads | granules LISTS, LISTS + 1 ... ...................... |
//!           1 bit   checked    lists    live   | free  | live | free         | live
//! edges                                 0 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 0 0 0 1 0 0
//! ```
//!
//! Free blocks never touch, so a set bit is either the start or the end of a free block, never both. Allocating or freeing
//! `p..q` flips bits `p` and `q`, whatever its neighbours are; when freeing, a bit that was set means that the neighbour on
//! that side is free.

use core::marker::PhantomData;
use core::ptr::NonNull;

use super::bins::{BinMap, EXACT, LISTS, bin, words};
use super::config::HeapConfig;
use super::memory::HeapMemory;
use super::records::Records;

/// Bits of a word of the tables.
const WORD: usize = usize::BITS as usize;

/// A region of a heap. Places and sizes are in granules; the lowest place is [`LISTS`].
#[derive(Debug)]
pub struct HeapRegion<C> {
    /// The region's memory, with its base where place 0 would be: before the region, or in its tables.
    pub memory: HeapMemory,
    /// The heads of the lists; list 0 is always empty.
    heads: HeapMemory,
    /// Bit `p` is set iff a free block other than the victim starts or ends at place `p`. The base is where bit 0 would be,
    /// before the region: the table starts with the bit of the lowest place.
    edges: HeapMemory,
    /// Number of granules after the tables; 0 for no region.
    pub granules: usize,
    /// Sizes below this have a list of their own: EXACT, or less in a small region.
    pub exact: usize,
    /// Start and end of the *victim* (Lea's designated victim): a free block without a record and without bits in
    /// `edges`, from which small requests are cut. No other free block touches it. Empty when both are equal.
    pub victim: [usize; 2],
    /// Start and end of the block freed last, which has its bits in `edges` but no record. Empty when both are equal.
    pub last: [usize; 2],
    /// Bitmap of the lists that are not empty.
    pub map: BinMap,
    config: PhantomData<C>,
}

impl<C: HeapConfig> HeapRegion<C> {
    /// No region: every request fails.
    pub const NONE: Self = Self {
        memory: HeapMemory::NONE,
        heads: HeapMemory::NONE,
        edges: HeapMemory::NONE,
        granules: 0,
        exact: 0,
        victim: [0; 2],
        last: [0; 2],
        map: BinMap::EMPTY,
        config: PhantomData,
    };

    /// Bytes of a granule.
    pub const GRANULE: usize = 1 << C::Records::GRANULE;

    /// Initializes the tables in memory of `granules` granules; the rest becomes free.
    ///
    /// Returns false, without effect, if the tables leave no granule. `memory` must be aligned to the granule and to 8.
    pub fn initialize(&mut self, memory: HeapMemory, granules: usize) -> bool {
        let bits = if C::CHECKED { 2 * table(granules) } else { table(granules) };
        let tables = (bits + (bin(granules) + 1) * C::Records::HEAD_BYTES).div_ceil(Self::GRANULE);
        if tables >= granules {
            return false;
        }
        memory.clear(Self::offset(tables));
        // Every place fits into a record: places begin at LISTS, but the tables of the largest region take more than
        // LISTS granules.
        self.memory = memory.moved(Self::offset(tables).wrapping_sub(Self::offset(LISTS)));
        self.heads = memory.moved(bits);
        self.edges = memory.moved((LISTS / 8).wrapping_neg());
        self.granules = granules - tables;
        self.exact = EXACT.min(granules);
        let all = [LISTS, self.end()];
        if C::VICTIM {
            self.victim = all;
        } else {
            self.insert_free(all);
        }
        true
    }

    /// The first place after the region.
    #[inline(always)]
    pub fn end(&self) -> usize {
        LISTS + self.granules
    }

    /// The address of the region, at which its tables start.
    pub fn start_address(&self) -> usize {
        self.edges.address().wrapping_add(LISTS / 8)
    }

    /// Whether an address is in the region, after the tables.
    #[inline(always)]
    pub fn contains(&self, address: NonNull<u8>) -> bool {
        self.place(address).wrapping_sub(LISTS) < self.granules
    }

    /// A size in granules, rounded up; a size of 0 becomes more granules than any region has.
    #[inline(always)]
    pub fn granules(bytes: usize) -> usize {
        (bytes.wrapping_sub(1) >> C::Records::GRANULE) + 1
    }

    /// The offset of a place in bytes.
    #[inline(always)]
    pub const fn offset(at: usize) -> usize {
        at << C::Records::GRANULE
    }

    /// The place of a block.
    #[inline(always)]
    pub fn place(&self, block: NonNull<u8>) -> usize {
        self.memory.offset_of(block) >> C::Records::GRANULE
    }

    /// The table after the edges, in a checked heap: bit `p` is set iff a live block starts at place `p`.
    fn starts(&self) -> HeapMemory {
        self.edges.moved((self.heads.address() - self.start_address()) / 2)
    }

    /// Marks a block as live, if the heap is checked.
    #[inline(always)]
    pub fn mark(&mut self, block: NonNull<u8>) -> NonNull<u8> {
        if C::CHECKED {
            flip(self.starts(), self.place(block));
        }
        block
    }

    /// Unmarks a block that is freed or moved, if the heap is checked.
    #[inline(always)]
    pub fn unmark(&mut self, at: usize) {
        if C::CHECKED {
            flip(self.starts(), at);
        }
    }

    /// The lowest granule at or above `at` whose address is a multiple of the alignment.
    ///
    /// The alignment is `mask + 1` granules, a power of two.
    #[inline(always)]
    pub fn align_up(&self, at: usize, mask: usize) -> usize {
        let skew = (self.memory.address() >> C::Records::GRANULE) & mask;
        ((at + skew + mask) & !mask) - skew
    }

    /// Whether a free block other than the victim starts or ends at `at`.
    #[inline(always)]
    pub fn edge(&self, at: usize) -> bool {
        bit(self.edges, at)
    }

    /// Flips the edge bit at a place.
    #[inline(always)]
    pub fn flip(&mut self, at: usize) {
        flip(self.edges, at);
    }

    /// Flips the edges at both ends of a block of `size` granules.
    ///
    /// Returns their old values, non-zero for a set edge; `None` if neither was set.
    #[inline]
    pub fn flip_ends(&mut self, at: usize, size: usize) -> Option<[usize; 2]> {
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

    /// Whether a live block starts at `at` and ends `size` granules further.
    ///
    /// That is: no block, live or free, starts or ends in between, and one does (or the region ends) at the end. O(size
    /// / bits of a word). Caller must have checked that the region ends at `at + size` or later.
    pub fn is_live(&self, at: usize, size: usize) -> bool {
        if !bit(self.starts(), at) {
            return false;
        }
        let (from, to) = (at + 1, at + size);
        let between = [self.starts(), self.edges].into_iter().any(|table| any(table, from, to));
        let is_boundary = bit(self.starts(), to) || self.edge(to) || to == self.end() || self.victim.contains(&to);
        !between && !self.victim.iter().any(|edge| (from..to).contains(edge)) && is_boundary
    }

    /// Adds a free block, whose edges are set, at the head of its list.
    #[inline]
    pub fn insert(&mut self, at: usize, size: usize) {
        let list = bin(size);
        let (next, name) = (self.head(list), Self::name(list));
        C::Records::write(self.memory, at, size, next, name);
        C::Records::set_head(self.heads, list, at);
        if next == 0 {
            self.map.set(list);
        } else {
            C::Records::set_prev(self.memory, next, name, at);
        }
    }

    /// What the record of a list's first block has as its previous block: the number of the list, or 0.
    #[inline(always)]
    pub fn name(list: usize) -> usize {
        if C::Records::NAMED { list } else { 0 }
    }

    /// The first block of a list, 0 for none.
    #[inline(always)]
    pub fn head(&self, list: usize) -> usize {
        C::Records::head(self.heads, list)
    }

    /// The first list at or above `list` that is not empty; 0 if there is none.
    #[inline(always)]
    pub fn next_list(&self, list: usize) -> usize {
        self.map.next(list, words(C::Records::SIZE_BITS))
    }

    /// Removes the block `at`, which must be the first of its list.
    #[inline]
    pub fn pop(&mut self, list: usize, at: usize) {
        let (next, _) = C::Records::links(self.memory, at);
        C::Records::set_head(self.heads, list, next);
        if next == 0 {
            self.map.clear(list);
        } else {
            C::Records::set_prev(self.memory, next, at, Self::name(list));
        }
    }

    /// Removes a block from its list.
    #[inline]
    pub fn unlink(&mut self, at: usize) {
        let (next, prev) = C::Records::links(self.memory, at);
        if next != 0 {
            C::Records::set_prev(self.memory, next, at, prev);
        }
        if prev >= LISTS {
            return C::Records::set_next(self.memory, prev, at, next);
        }
        let list = if C::Records::NAMED { prev } else { bin(C::Records::size(self.memory, at)) };
        C::Records::set_head(self.heads, list, next);
        if next == 0 {
            self.map.clear(list);
        }
    }

    /// Allocates `size` granules at `at` in a free block, which has edges and is in no list.
    ///
    /// What remains of the free block before and after them becomes free blocks.
    #[inline(always)]
    pub fn cut(&mut self, [from, to]: [usize; 2], at: usize, size: usize) -> NonNull<u8> {
        self.flip_ends(at, size);
        if from != at {
            self.insert(from, at - from);
        }
        if at + size != to {
            self.insert(at + size, to - at - size);
        }
        self.memory.pointer(Self::offset(at))
    }

    /// Adds a free block without edges, which no other free block touches, to its list.
    #[inline]
    pub fn insert_free(&mut self, [from, to]: [usize; 2]) {
        if from != to {
            self.flip_ends(from, to - from);
            self.insert(from, to - from);
        }
    }
}

/// Bytes of a bitmap with a bit for each place of `granules` granules and for the end, with enough bytes after them for
/// a load of eight bytes from any byte.
fn table(granules: usize) -> usize {
    (granules / WORD + 2) * size_of::<usize>()
}

/// Offset of the word that has bit `at`. On 32-bit targets a place has at most 29 bits; stating this lets ARMv7 compute
/// the offset in one instruction.
#[inline(always)]
fn word_of(at: usize) -> usize {
    let at = if cfg!(all(target_arch = "arm", target_has_atomic = "ptr")) { at % (1 << 29) } else { at };
    at / WORD * size_of::<usize>()
}

#[inline(always)]
fn bit(table: HeapMemory, at: usize) -> bool {
    table.load::<usize>(word_of(at)) >> (at % WORD) & 1 != 0
}

/// Whether any bit of `from..to` is set. Reads a word at a time.
fn any(table: HeapMemory, from: usize, to: usize) -> bool {
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
fn flip(table: HeapMemory, at: usize) -> usize {
    let (word, bit): (usize, _) = (table.load(word_of(at)), 1 << (at % WORD));
    table.store(word_of(at), word ^ bit);
    word & bit
}
