//! One region: its tables, and the bits that say where free blocks begin and end.
//!
//! Promises upward: a block's two ends are flipped in a dozen instructions, and what they were is told.
//! Asks from below: [`Memory`], [`Records`], the bins.
//!
//! ```text
//! region  | edges | (starts) | heads | granules LISTS, LISTS + 1 ... ...................... |
//!           1 bit   checked    lists    live   | free  | live | free         | live
//! edges                                 0 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 0 0 0 1 0 0
//! ```
//!
//! Free blocks never touch, so a set bit is the start of one free block or the end of one, never both. Handing out or
//! taking back the stretch `p..q` flips bits `p` and `q`, whatever is beside it; that they were set tells a free that
//! it has free neighbours.

use core::marker::PhantomData;
use core::ptr::NonNull;

use super::bins::{BinMap, EXACT, LISTS, bin, words};
use super::config::HeapConfig;
use super::memory::HeapMemory;
use super::records::Records;

/// Bits of a word of the tables.
const WORD: usize = usize::BITS as usize;

/// A region of a heap. Places and sizes are granules; the lowest place is [`LISTS`].
#[derive(Debug)]
pub struct HeapRegion<C> {
    /// Place 0: in front of the region, or in its tables.
    pub memory: HeapMemory,
    /// The heads of the lists; nothing is ever in list 0.
    heads: HeapMemory,
    /// Bit p is set iff a free block other than the victim starts or ends at p. The bits of places are at the region's
    /// start; bit 0 would be in front of it.
    edges: HeapMemory,
    /// Granules behind the tables; 0 for no region.
    pub granules: usize,
    /// Sizes below this have a list to themselves: EXACT, or less in a small region.
    pub exact: usize,
    /// The *victim* (Lea's designated victim): one free stretch without record and edges that small requests are cut
    /// from. No free block touches it. Empty when both are equal.
    pub victim: [usize; 2],
    /// The block freed last: it has edges, and no record. Empty when both are equal.
    pub last: [usize; 2],
    /// Which lists hold something.
    pub map: BinMap,
    config: PhantomData<C>,
}

impl<C: HeapConfig> HeapRegion<C> {
    /// No region: every request of it fails.
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

    /// Lays the tables out for `granules` granules: all that is left of them is free.
    ///
    /// False, and no region, when nothing is. `memory` starts at a multiple of the granule and of 8.
    pub fn initialize(&mut self, memory: HeapMemory, granules: usize) -> bool {
        let bits = if C::CHECKED { 2 * table(granules) } else { table(granules) };
        let tables = (bits + (bin(granules) + 1) * C::Records::HEAD_BYTES).div_ceil(Self::GRANULE);
        if tables >= granules {
            return false;
        }
        memory.clear(Self::offset(tables));
        // A place has a number that the records can say: the tables of the largest region are more than LISTS granules.
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

    /// The place after the last.
    #[inline(always)]
    pub fn end(&self) -> usize {
        LISTS + self.granules
    }

    /// The address where the tables start.
    pub fn start_address(&self) -> usize {
        self.edges.address().wrapping_add(LISTS / 8)
    }

    /// Whether an address lies behind the tables.
    #[inline(always)]
    pub fn contains(&self, address: NonNull<u8>) -> bool {
        self.place(address).wrapping_sub(LISTS) < self.granules
    }

    /// Granules of a size, which is not 0: that one becomes more than any region has.
    #[inline(always)]
    pub fn granules(bytes: usize) -> usize {
        (bytes.wrapping_sub(1) >> C::Records::GRANULE) + 1
    }

    /// The offset of a granule.
    #[inline(always)]
    pub const fn offset(at: usize) -> usize {
        at << C::Records::GRANULE
    }

    /// The place of a block.
    #[inline(always)]
    pub fn place(&self, block: NonNull<u8>) -> usize {
        self.memory.offset_of(block) >> C::Records::GRANULE
    }

    /// Bit p is set iff a live block starts at p. Only when checked: behind the edges.
    fn starts(&self) -> HeapMemory {
        self.edges.moved((self.heads.address() - self.start_address()) / 2)
    }

    /// Marks a block that was just handed out, when checked.
    #[inline(always)]
    pub fn mark(&mut self, block: NonNull<u8>) -> NonNull<u8> {
        if C::CHECKED {
            flip(self.starts(), self.place(block));
        }
        block
    }

    /// Unmarks a block that is taken back or moves.
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

    /// Whether a free block starts or ends here. The victim has no edges.
    #[inline(always)]
    pub fn edge(&self, at: usize) -> bool {
        bit(self.edges, at)
    }

    /// Flips the edge at a place.
    #[inline(always)]
    pub fn flip(&mut self, at: usize) {
        flip(self.edges, at);
    }

    /// Flips the edges at both ends of `size` granules. Tells which were set, if any: those that are not 0.
    #[inline]
    pub fn flip_ends(&mut self, at: usize, size: usize) -> Option<[usize; 2]> {
        // 64 bits read from any byte on hold both: at most 7 bits of the first byte, and 57 more.
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
    /// No other block starts or ends between, and one does there. O(size / bits of a word).
    pub fn is_live(&self, at: usize, size: usize) -> bool {
        if !bit(self.starts(), at) || size > self.end() - at {
            return false;
        }
        let (from, to) = (at + 1, at + size);
        let between = [self.starts(), self.edges].into_iter().any(|table| any(table, from, to));
        let is_boundary = bit(self.starts(), to) || self.edge(to) || to == self.end() || self.victim.contains(&to);
        !between && !self.victim.iter().any(|edge| (from..to).contains(edge)) && is_boundary
    }

    /// Records a free block, whose edges are set, as the first of its list.
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

    /// What the first block of a list has for the one before it.
    #[inline(always)]
    pub fn name(list: usize) -> usize {
        if C::Records::NAMED { list } else { 0 }
    }

    /// The first block of a list, 0 for none.
    #[inline(always)]
    pub fn head(&self, list: usize) -> usize {
        C::Records::head(self.heads, list)
    }

    /// The first list at or above `list` that holds something; 0 for none.
    #[inline(always)]
    pub fn next_list(&self, list: usize) -> usize {
        self.map.next(list, words(C::Records::SIZE_BITS))
    }

    /// Takes the first block out of its list.
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

    /// Takes a block out of its list.
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

    /// Allocates `size` granules at `at` of a free block that is in no list.
    ///
    /// Its edges become those of what is left in front and behind.
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

    /// Makes a stretch that no free block touches a free block of a list.
    #[inline]
    pub fn insert_free(&mut self, [from, to]: [usize; 2]) {
        if from != to {
            self.flip_ends(from, to - from);
            self.insert(from, to - from);
        }
    }
}

/// Bytes of a table of bits for so many granules, of all places: one for the end too; and eight bytes read from any
/// byte on stay in the region.
fn table(granules: usize) -> usize {
    (granules / WORD + 2) * size_of::<usize>()
}

/// The word of a bit, as an offset. A place on 32 bits has at most 29: said here, ARMv7 finds the word in one
/// instruction.
#[inline(always)]
fn word_of(at: usize) -> usize {
    let at = if cfg!(all(target_arch = "arm", target_has_atomic = "ptr")) { at % (1 << 29) } else { at };
    at / WORD * size_of::<usize>()
}

#[inline(always)]
fn bit(table: HeapMemory, at: usize) -> bool {
    table.load::<usize>(word_of(at)) >> (at % WORD) & 1 != 0
}

/// Whether any of the bits from `from` on, up to `to`, is set, a word at a time.
fn any(table: HeapMemory, from: usize, to: usize) -> bool {
    let mut at = from;
    while at < to {
        let next = (at | (WORD - 1)) + 1;
        let word: usize = table.load(word_of(at));
        // What lies below `at`, and at or above `to`, is cut off.
        let above = next.saturating_sub(to);
        if (word >> (at % WORD) << (at % WORD)) << above != 0 {
            return true;
        }
        at = next;
    }
    false
}

/// Flips a bit. Not 0 if it was set.
#[inline(always)]
fn flip(table: HeapMemory, at: usize) -> usize {
    let (word, bit): (usize, _) = (table.load(word_of(at)), 1 << (at % WORD));
    table.store(word_of(at), word ^ bit);
    word & bit
}
