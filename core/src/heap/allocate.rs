//! Allocating blocks in a region.
//!
//! Promises upward: fails only if no free block is as large as the smallest size in the request's [`ceil_bin`] (for an
//! alignment above the granule: in the [`ceil_bin`] of size plus alignment); the number of steps is bounded.
//! Asks from below: [`HeapRegion`].
//!
//! A request takes, in this order: a block of exactly its size; the front of the *victim*, the free block from which
//! small requests are cut; the front of the block freed last; the first block that fits, of a few in the list of its
//! size; the first block of a list of larger blocks. What remains of a block becomes the victim if it is larger than
//! the present victim, which is then added to a list; else what remains is added.

use core::ptr::NonNull;

use super::bins::{EXACT, bin, ceil_bin};
use super::config::HeapConfig;
use super::records::Records;
use super::region::HeapRegion;

/// A new victim should have room for so many blocks of the request's size, so that the next small requests need no
/// search. With 4, the mean number of instructions is 5 % lower than with 1, and memory fills as far; with 8 neither
/// improves.
const SEVERAL: usize = 4;

impl<C: HeapConfig> HeapRegion<C> {
    /// Allocates `size` granules, aligned to `align` bytes; marks the block live if the heap is checked.
    #[inline(always)]
    pub fn allocate_block(&mut self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let block = self.allocate(size, align)?;
        Some(self.mark(block))
    }

    /// Allocates `size` granules, aligned to `align` bytes.
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

    /// Allocates from another free block, because the victim is too small; what remains of that block may become the
    /// victim.
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

    /// Removes a free block of at least this size from its list, or as the block freed last; its edges stay set.
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
            // The probes below search the list of `size` itself. If `size` is the smallest of its bin, every block of
            // that list fits, and the first probe finds one.
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
            // `unlink` does the same, and is in the program anyway: calling it here saves code.
            self.unlink(at);
        }
        [at, at + size]
    }

    /// Allocates at an alignment above the granule (in a heap without a victim: at any alignment); the part before the
    /// aligned start becomes a free block. Searches the lists first, to keep the victim and the block freed last for
    /// requests without an alignment.
    #[inline(never)]
    fn allocate_aligned(&mut self, size: usize, align: usize) -> Option<NonNull<u8>> {
        // Both are at most the size of the region, so the sums below cannot overflow.
        if size > self.granules || align > Self::offset(self.granules) {
            return None;
        }
        // A free block of `size + slack` granules always contains `size` granules from an aligned start on.
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
