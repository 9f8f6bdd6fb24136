//! Allocating blocks in a region.
//!
//! Promises upward: fails only if no free block is as large as the first size of the request's [`ceil_bin`] (for an
//! alignment above the granule: of size plus alignment); the number of steps is bounded.
//! Asks from below: [`HeapRegion`].
//!
//! A request is served, in this order, by: a block of exactly its size; the front of the victim; the front of the block
//! freed last; the first that fits of a few in its own list; the first block of a list of larger ones. The rest of a block
//! becomes the victim if it is larger than the present victim, which then is added to a list; else the rest is added.

use core::ptr::NonNull;

use super::bins::{EXACT, bin, ceil_bin};
use super::config::HeapConfig;
use super::records::Records;
use super::region::HeapRegion;

/// A new victim for small requests should have room for this many, so that the next requests need no search. With 4 the
/// mean of instructions falls by 5 %, and memory fills as far as with 1; with 8 neither improves.
const SEVERAL: usize = 4;

impl<C: HeapConfig> HeapRegion<C> {
    /// Allocates `size` granules at `align` bytes; marks the block if checked.
    #[inline(always)]
    pub fn allocate_block(&mut self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let block = self.allocate(size, align)?;
        Some(self.mark(block))
    }

    /// Allocates `size` granules at `align` bytes.
    #[inline(always)]
    fn allocate(&mut self, size: usize, align: usize) -> Option<NonNull<u8>> {
        if !C::VICTIM || align > Self::GRANULE {
            return self.allocate_aligned(size, align.max(Self::GRANULE));
        }
        if size < self.exact {
            let at = self.head(size);
            if at != 0 {
                self.pop(size, at);
                self.flip_ends(at, size);
                return Some(self.memory.pointer(Self::offset(at)));
            }
        }
        let [start, end] = self.victim;
        if end - start >= size {
            self.victim[0] = start + size;
            return Some(self.memory.pointer(Self::offset(start)));
        }
        self.replace_victim(size)
    }

    /// Allocates from another free block, because the victim is too small; the rest may become the victim.
    #[inline(never)]
    fn replace_victim(&mut self, size: usize) -> Option<NonNull<u8>> {
        if size > self.granules {
            return None;
        }
        let [from, to] = self.find_victim(size)?;
        let [start, end] = self.victim;
        if to - from - size <= end - start {
            return Some(self.cut([from, to], from, size));
        }
        self.flip_ends(from, to - from);
        self.victim = [from + size, to];
        self.insert_free([start, end]);
        Some(self.memory.pointer(Self::offset(from)))
    }

    /// Removes a free block of at least this size from its list; its edges stay set.
    #[inline(always)]
    fn find_victim(&mut self, size: usize) -> Option<[usize; 2]> {
        let [from, to] = self.last;
        if C::LAST && to - from >= size {
            self.last = [0; 2];
            return Some([from, to]);
        }
        // The first list whose blocks are all large enough.
        let mut sure = size;
        if size >= EXACT {
            let list = bin(size);
            // If `size` is the first of its bin, every block of the list fits, and the first probe finds one.
            sure = if C::PROBES > 0 { list + 1 } else { ceil_bin(size) };
            let mut at = self.head(list);
            for _ in 0..C::PROBES {
                if at == 0 {
                    break;
                }
                let found = C::Records::size(self.memory, at);
                if found >= size {
                    self.unlink(at);
                    return Some([at, at + found]);
                }
                (at, _) = C::Records::links(self.memory, at);
            }
        }
        let several = if size < EXACT { self.next_list(ceil_bin(SEVERAL * size)) } else { 0 };
        let list = if several != 0 { several } else { self.next_list(sure) };
        (list != 0).then(|| self.take_first(list))
    }

    /// Removes the first block of a list, which must not be empty; returns its start and end.
    #[inline(always)]
    pub fn take_first(&mut self, list: usize) -> [usize; 2] {
        let at = self.head(list);
        let size = C::Records::size(self.memory, at);
        if C::VICTIM {
            self.pop(list, at);
        } else {
            // `unlink` does the same and is needed anyway: less code.
            self.unlink(at);
        }
        [at, at + size]
    }

    /// Allocates at an alignment above the granule (without a victim: at any alignment); the part in front becomes a free
    /// block. Searches the lists first, to keep the victim and the block freed last for requests without an alignment.
    #[inline(never)]
    fn allocate_aligned(&mut self, size: usize, align: usize) -> Option<NonNull<u8>> {
        // So the sums below cannot overflow: both are at most the size of the region.
        if size > self.granules || align > Self::offset(self.granules) {
            return None;
        }
        // A block with so many granules more than the size always contains an aligned start.
        let slack = (align >> C::Records::GRANULE) - 1;
        let list = self.next_list(ceil_bin(size + slack));
        let [from, to] = if list != 0 {
            self.take_first(list)
        } else if !C::VICTIM {
            return None;
        } else {
            let [start, end] = self.victim;
            let at = self.align_up(start, slack);
            if at + size <= end {
                self.victim[0] = at + size;
                self.insert_free([start, at]);
                return Some(self.memory.pointer(Self::offset(at)));
            }
            let [from, to] = self.last;
            if !C::LAST || self.align_up(from, slack) + size > to {
                return None;
            }
            core::mem::take(&mut self.last)
        };
        Some(self.cut([from, to], self.align_up(from, slack), size))
    }
}
