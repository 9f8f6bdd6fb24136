//! A region of a heap: its memory and its tables.
//!
//! Promises upward: every place of a block is in the region; a live block of a checked heap is told from any other.
//! Asks from below: [`HeapMemory`], [`HeapLists`].

use core::ptr::NonNull;

use super::config::HeapConfig;
use super::deferred::{QUICK_SIZES, WaitingBlocks};
use super::lists::{HeapLists, any, bit, flip, table};
use super::memory::HeapMemory;
use super::records::Records;

/// A region of a heap. Places and sizes are in granules.
#[derive(Debug)]
pub struct HeapRegion<C> {
    /// The lists of free blocks.
    pub lists: HeapLists<C>,
    /// Number of granules after the tables; 0 for no region.
    pub granules: usize,
    /// What waits to be merged; unused unless the heap defers.
    pub deferred: WaitingBlocks,
}

impl<C: HeapConfig> HeapRegion<C> {
    /// No region: every request fails.
    pub const NONE: Self = {
        assert!(!C::DEFERS || C::EXACT >= QUICK_SIZES, "a size that has a quick list has a list of its own");
        assert!(!(C::DEFERS && C::ONE_PATH), "the one path knows no block that waits");
        assert!(!(C::DEFERS && C::CHECKED), "what waits has no edges, by which a checked heap tells a block's size");
        Self { lists: HeapLists::NONE, granules: 0, deferred: WaitingBlocks::NONE }
    };

    /// Bytes of a granule.
    pub const GRANULE: usize = 1 << C::Records::GRANULE;
    /// The lowest place of a block.
    pub const FIRST: usize = HeapLists::<C>::FIRST;

    /// Initializes the tables in memory of `granules` granules; the rest becomes free.
    ///
    /// Returns false, without effect, if the tables leave no granule. `memory` must be aligned to the granule and to 8.
    pub fn initialize(&mut self, memory: HeapMemory, granules: usize) -> bool {
        let bits = if C::CHECKED { 2 * table(granules) } else { table(granules) };
        let heads = bits + HeapLists::<C>::MAP * size_of::<usize>();
        let lists = HeapLists::<C>::list(granules) + 1;
        // Rounded up in fewer instructions than `div_ceil` takes: the sum cannot overflow.
        let used = heads + (HeapLists::<C>::QUICK + lists) * C::Records::HEAD_BYTES;
        let tables = (used + Self::GRANULE - 1) >> C::Records::GRANULE;
        if tables >= granules {
            return false;
        }
        memory.clear(Self::offset(tables));
        // Every place fits into a record: places begin at FIRST, but the tables of the largest region take more than
        // FIRST granules.
        self.lists.memory = memory.moved(Self::offset(tables).wrapping_sub(Self::offset(Self::FIRST)));
        self.lists.heads = memory.moved(heads);
        self.lists.edges = memory.moved(HeapLists::<C>::BEFORE.wrapping_sub(Self::FIRST / 8));
        if !C::ONE_PATH {
            self.lists.set_last(lists);
        }
        self.granules = granules - tables;
        if C::DEFERS {
            self.deferred.start([Self::FIRST, self.end()]);
        } else if C::ONE_PATH {
            self.flip(Self::FIRST);
            self.flip(self.end());
            self.attach(Self::FIRST, self.end());
        } else {
            self.free_apart(Self::FIRST, self.granules);
        }
        true
    }

    /// The first place after the region.
    #[inline(always)]
    pub fn end(&self) -> usize {
        Self::FIRST + self.granules
    }

    /// The address of the region, at which its tables start.
    pub fn start_address(&self) -> usize {
        self.lists.edges.address().wrapping_add(Self::FIRST / 8 - HeapLists::<C>::BEFORE)
    }

    /// Whether an address is in the region, after the tables.
    #[inline(always)]
    pub fn contains(&self, address: NonNull<u8>) -> bool {
        self.place(address).wrapping_sub(Self::FIRST) < self.granules
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
        self.lists.memory.offset_of(block) >> C::Records::GRANULE
    }

    /// The table after the edges, in a checked heap: bit `p` is set iff a live block starts at place `p`.
    fn starts(&self) -> HeapMemory {
        self.lists.edges.moved(table(self.granules + self.tables()))
    }

    /// Number of granules that the tables take.
    pub fn tables(&self) -> usize {
        (self.lists.memory.address().wrapping_add(Self::offset(Self::FIRST)).wrapping_sub(self.start_address()))
            / Self::GRANULE
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
        let skew = (self.lists.memory.address() >> C::Records::GRANULE) & mask;
        ((at + skew + mask) & !mask) - skew
    }

    /// Whether a live block of a checked heap starts at `at`.
    pub fn is_start(&self, at: usize) -> bool {
        bit(self.starts(), at)
    }

    /// Whether the live block that starts at `at` ends `size` granules further.
    ///
    /// That is: no block, live or free, starts or ends in between, and one does (or the region ends) at the end. O(size
    /// / bits of a word). Caller must have checked that the region ends at `at + size` or later.
    pub fn has_size(&self, at: usize, size: usize) -> bool {
        let (from, to) = (at + 1, at + size);
        let between = [self.starts(), self.lists.edges].into_iter().any(|table| any(table, from, to));
        !between && (bit(self.starts(), to) || self.lists.edge(to) || to == self.end())
    }
}
