//! One region: its tables, and the bits that say where free blocks begin and end.
//!
//! Promises upward: a block's two ends are flipped in a dozen instructions, and what they were is told.
//! Asks from below: [`Memory`], [`Records`], the bins.
//!
//! ```text
//! region  | heads | edges | (starts) | granules ........................................ |
//!           lists   1 bit   checked       live   | free  | live | free         | live
//! edges                                   0 0 0 0 1 0 0 0 1 0 0 0 1 0 0 0 0 0 0 1 0 0
//! ```
//!
//! Free blocks never touch, so a set bit is the start of one free block or the end of one, never both. Handing out or
//! taking back the stretch `p..q` flips bits `p` and `q`, whatever is beside it; that they were set tells a free that it
//! has free neighbours.

use core::marker::PhantomData;
use core::ptr::NonNull;

use super::bins::{EXACT, Map, bin};
use super::config::Config;
use super::memory::Memory;
use super::records::Records;

/// A region of a heap. Places and sizes are granules from its start.
#[derive(Debug)]
pub struct Region<C> {
    /// Where it starts: with the heads of its lists.
    pub memory: Memory,
    /// Bit p is set iff a free block other than the victim starts or ends at p.
    edges: Memory,
    /// Bit p is set iff a live block starts at p. Only when checked.
    starts: Memory,
    /// The first granule behind the tables.
    pub first: usize,
    /// The granule after the last; 0 for no region.
    pub end: usize,
    /// The *victim* (Lea's designated victim): one free stretch without record and edges that small requests are cut
    /// from. No free block touches it. Empty when both are equal.
    pub victim: [usize; 2],
    /// The block freed last: it has edges, and no record. Empty when both are equal.
    pub last: [usize; 2],
    /// Which lists hold something.
    pub map: Map,
    config: PhantomData<C>,
}

impl<C: Config> Region<C> {
    /// No region: every request of it fails.
    pub const NONE: Self = Self {
        memory: Memory::NONE,
        edges: Memory::NONE,
        starts: Memory::NONE,
        first: 0,
        end: 0,
        victim: [0; 2],
        last: [0; 2],
        map: Map::EMPTY,
        config: PhantomData,
    };

    /// Bytes of a granule.
    pub const GRANULE: usize = 1 << C::Records::GRANULE;

    /// Lays the tables out for `granules` granules: all that is left of them is free. False, and no region, when nothing
    /// is. `memory` starts at a multiple of the granule and of 8.
    pub fn lay_out(&mut self, memory: Memory, granules: usize) -> bool {
        let word = size_of::<usize>();
        let edges = ((bin(granules) + 1) * C::Records::HEAD).next_multiple_of(word);
        // An edge for the end too; and a word read from any byte of the table on stays in it.
        let table = (granules / EXACT + 2) * word;
        let starts = edges + table;
        let tables = if C::CHECKED { starts + table } else { starts };
        let first = tables.div_ceil(Self::GRANULE);
        if first >= granules {
            return false;
        }
        memory.clear(tables);
        self.memory = memory;
        self.edges = memory.behind(edges);
        self.starts = memory.behind(starts);
        (self.first, self.end) = (first, granules);
        if C::VICTIM {
            self.victim = [first, granules];
        } else {
            self.list([first, granules]);
        }
        true
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

    /// Marks a block that was just handed out, when checked.
    #[inline(always)]
    pub fn mark(&mut self, block: NonNull<u8>) -> NonNull<u8> {
        if C::CHECKED {
            flip(self.starts, self.place(block));
        }
        block
    }

    /// Unmarks a block that is taken back or moves.
    #[inline(always)]
    pub fn unmark(&mut self, at: usize) {
        if C::CHECKED {
            flip(self.starts, at);
        }
    }

    /// The lowest place at or above `at` whose address is a multiple of `mask + 1` granules, a power of two.
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

    /// Flips the edges at both ends of `size` granules. Tells which were set.
    #[inline]
    pub fn flip_ends(&mut self, at: usize, size: usize) -> Ends {
        // 64 bits read from any byte on hold both: at most 7 bits of the first byte, and 57 more.
        if cfg!(all(target_pointer_width = "64", target_endian = "little")) && size < 57 {
            let (word, both) = (self.edges.load_anywhere(at / 8), (1 | 1 << size) << (at % 8));
            self.edges.store_anywhere(at / 8, word ^ both);
            return Ends((word & both) as usize);
        }
        let (start, end) = (flip(self.edges, at), flip(self.edges, at + size));
        Ends((usize::from(start) | usize::from(end) << 1) << Ends::shift(at))
    }

    /// Whether a live block starts here and ends `size` granules further: nothing else starts or ends between, and
    /// something does there. O(size).
    pub fn is_live(&self, at: usize, size: usize) -> bool {
        let starts = |at: usize| bit(self.starts, at);
        let boundary = |at: usize| starts(at) || self.edge(at) || at == self.end || self.victim.contains(&at);
        starts(at) && !(at + 1..at + size).any(boundary) && boundary(at + size)
    }

    /// Records a free block, whose edges are set, as the first of its list.
    #[inline]
    pub fn insert(&mut self, at: usize, size: usize) {
        let list = bin(size);
        let next = C::Records::head(self.memory, 0, list);
        C::Records::write(self.memory, at, size, next);
        C::Records::set_head(self.memory, 0, list, at);
        if next == 0 {
            self.map.set(list);
        } else {
            C::Records::set_prev(self.memory, next, 0, at);
        }
    }

    /// The first block of a list, 0 for none.
    #[inline(always)]
    pub fn head(&self, list: usize) -> usize {
        C::Records::head(self.memory, 0, list)
    }

    /// Takes the first block out of its list.
    #[inline]
    pub fn pop(&mut self, list: usize, at: usize) {
        let (next, _) = C::Records::links(self.memory, at);
        C::Records::set_head(self.memory, 0, list, next);
        if next == 0 {
            self.map.clear(list);
        } else {
            C::Records::set_prev(self.memory, next, at, 0);
        }
    }

    /// Takes a block out of its list.
    #[inline]
    pub fn unlink(&mut self, at: usize, size: usize) {
        let (next, prev) = C::Records::links(self.memory, at);
        if next != 0 {
            C::Records::set_prev(self.memory, next, at, prev);
        }
        if prev != 0 {
            return C::Records::set_next(self.memory, prev, at, next);
        }
        let list = bin(size);
        C::Records::set_head(self.memory, 0, list, next);
        if next == 0 {
            self.map.clear(list);
        }
    }

    /// Makes a stretch that no free block touches a free block of a list.
    #[inline]
    pub fn list(&mut self, [from, to]: [usize; 2]) {
        if from != to {
            self.flip_ends(from, to - from);
            self.insert(from, to - from);
        }
    }
}

/// Which ends of a stretch were edges of free blocks: one bit for its start (see [`Ends::shift`]), any other for its end.
#[derive(Clone, Copy, Debug)]
pub struct Ends(usize);

impl Ends {
    /// Where the start's bit is: where it was in the byte that 64 bits were read from, else the lowest.
    #[inline(always)]
    const fn shift(at: usize) -> usize {
        if cfg!(target_pointer_width = "64") { at % 8 } else { 0 }
    }

    #[inline(always)]
    pub fn any(self) -> bool {
        self.0 != 0
    }

    /// Of a stretch that starts at `at`: whether its start and its end were.
    #[inline(always)]
    pub fn both(self, at: usize) -> [bool; 2] {
        let start = 1 << Self::shift(at);
        [self.0 & start != 0, self.0 & !start != 0]
    }
}

#[inline(always)]
fn bit(table: Memory, at: usize) -> bool {
    let word: usize = table.load(at / EXACT * size_of::<usize>());
    word >> (at % EXACT) & 1 != 0
}

/// Flips a bit; tells what it was.
#[inline(always)]
fn flip(table: Memory, at: usize) -> bool {
    let offset = at / EXACT * size_of::<usize>();
    let (word, bit): (usize, _) = (table.load(offset), 1 << (at % EXACT));
    table.store(offset, word ^ bit);
    word & bit != 0
}
