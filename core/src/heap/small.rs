//! The one path of [`Small`](super::Small): allocating and freeing in the least code.
//!
//! Promises upward: what `allocate` and `free` promise of a region that merges at once, for any alignment.
//! Asks from below: [`HeapRegion`], [`HeapLists`].
//!
//! To save code, each step that several calls take is one function; it takes the region by reference, so that its caller
//! passes one pointer.

use core::ptr::NonNull;

use super::bins::WORD;
use super::config::HeapConfig;
use super::lists::HeapLists;
use super::records::Records;
use super::region::HeapRegion;

impl<C: HeapConfig> HeapRegion<C> {
    /// Allocates `size` granules, aligned to `align` bytes; what remains becomes free blocks.
    #[inline]
    pub fn allocate_small(&mut self, size: usize, align: usize) -> Option<NonNull<u8>> {
        if self.granules == 0 {
            return None;
        }
        let mask = align - 1;
        // A free block of so many granules more contains `size` granules from an aligned start on. Neither is above 2^29
        // on 32 bits, 2^61 on 64, so the sum cannot overflow.
        let own = HeapLists::<C>::list(size);
        let mut list = HeapLists::<C>::list(size + mask / Self::GRANULE - 1) + 1;
        loop {
            let from = self.first_from(list);
            if from != 0 {
                let memory = self.lists.memory;
                let address = memory.address().wrapping_add(Self::offset(from));
                let aligned = (address.wrapping_add(mask) & !mask).wrapping_sub(memory.address());
                let (at, to) = (aligned / Self::GRANULE, from + self.lists.size(from));
                let end = at + size;
                if end <= to {
                    self.detach(from);
                    self.flip(end);
                    self.attach(end, to);
                    self.flip(at);
                    self.attach(from, at);
                    return Some(memory.pointer(aligned));
                }
            }
            // The request would be refused: the first block from its own list on may have room for it.
            if list == own {
                return None;
            }
            list = own;
        }
    }

    /// Frees the block of `size` granules at `at`, merged with its neighbours.
    #[inline]
    pub fn free_small(&mut self, at: usize, size: usize) {
        let (mut from, mut to) = (at, at + size);
        // See `free_at_once`.
        if self.flip(from) != 0 {
            from -= self.lists.size_before(from);
            self.detach(from);
        }
        if self.flip(to) != 0 {
            let behind = self.lists.size(to);
            self.detach(to);
            to += behind;
        }
        self.attach(from, to);
    }

    /// The first block of the first list from one on, which may be above all, that is not empty; 0 for none.
    #[inline(always)]
    fn first_from(&self, mut list: usize) -> usize {
        while list < Self::FIRST {
            let bits = self.lists.edges.load::<usize>(list / WORD * size_of::<usize>()) >> (list % WORD);
            if bits != 0 {
                return self.lists.first(list + bits.trailing_zeros() as usize);
            }
            list = (list | (WORD - 1)) + 1;
        }
        0
    }

    /// Adds a free block, whose edges are set, to its list; does nothing for one of no granules.
    #[inline(never)]
    pub fn attach(&self, at: usize, to: usize) {
        let size = to - at;
        if size == 0 {
            return;
        }
        let list = HeapLists::<C>::list(size);
        let lists = self.lists;
        let next = lists.first(list);
        C::Records::set_head(lists.heads, list, at);
        C::Records::write(lists.memory, at, size, next, list);
        if next == 0 {
            self.flip(list);
        } else {
            C::Records::set_prev(lists.memory, next, at);
        }
    }

    /// Removes the free block that starts at `at` from its list.
    #[inline(never)]
    pub fn detach(&self, at: usize) {
        let lists = self.lists;
        let (next, prev) = C::Records::links(lists.memory, at);
        if prev >= Self::FIRST {
            C::Records::set_next(lists.memory, prev, next);
        } else {
            C::Records::set_head(lists.heads, prev, next);
            if next == 0 {
                self.flip(prev);
            }
        }
        if next != 0 {
            C::Records::set_prev(lists.memory, next, prev);
        }
    }

    /// Flips a bit of the bitmap of lists or an edge, by its byte; returns non-zero if it was set.
    #[inline(never)]
    pub fn flip(&self, at: usize) -> usize {
        // In a word of a big-endian target the bytes are in the other order.
        let byte = (at / 8) ^ if cfg!(target_endian = "little") { 0 } else { size_of::<usize>() - 1 };
        let (bits, bit) = (self.lists.edges.load::<u8>(byte), 1 << (at % 8));
        self.lists.edges.store(byte, bits ^ bit);
        usize::from(bits & bit)
    }
}
