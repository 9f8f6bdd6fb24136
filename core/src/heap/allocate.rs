//! Allocating blocks in a region.
//!
//! Promises upward: fails only if no free block is as large as the smallest size of the first list in which all blocks
//! fit (for an alignment above the granule: of size plus alignment), everything merged, and the first block of the list
//! that may have a fitting one is too small; the number of steps is bounded.
//! Asks from below: [`HeapRegion`].
//!
//! A request takes the first block of the first list whose blocks are all large enough, or, before a refusal, of its own
//! list; what remains becomes a free block. In a heap that defers it takes, before that: a block of its size that waits; a
//! block in a list of exactly its size; the front of the victim; the front of the run. What remains of a block becomes the
//! victim if it is larger.

use core::mem::replace;
use core::ptr::NonNull;

use super::config::HeapConfig;
use super::lists::HeapLists;
use super::records::Records;
use super::region::HeapRegion;

/// A new victim should have room for so many blocks of the request's size, so that the next small requests need no
/// search. With 4, the mean number of instructions is 5 % lower than with 1, and memory fills as far; with 8 neither
/// improves.
const SEVERAL: usize = 4;

impl<C: HeapConfig> HeapRegion<C> {
    /// Allocates `size` granules, aligned to `align` bytes; marks the block live if the heap is checked.
    ///
    /// What waits is not merged.
    #[inline(always)]
    pub fn allocate_block(&mut self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let block = if C::DEFERS { self.allocate_deferred(size, align) } else { self.allocate(size, align) }?;
        Some(self.mark(block))
    }

    /// Allocates `size` granules, aligned to `align` bytes, from a list.
    #[inline(always)]
    fn allocate(&mut self, size: usize, align: usize) -> Option<NonNull<u8>> {
        if C::ONE_PATH {
            return self.allocate_small(size, align);
        }
        if align > Self::GRANULE {
            return self.allocate_aligned(size, align);
        }
        self.allocate_listed(size)
    }

    /// Allocates `size` granules from a list.
    #[inline(always)]
    pub fn allocate_listed(&mut self, size: usize) -> Option<NonNull<u8>> {
        if size > self.granules {
            return None;
        }
        let lists = self.lists;
        let [at, to] = lists.take_first(lists.find_list(size).or_else(|| self.own_list(size))?);
        Some(lists.cut([at, to], at, size))
    }

    /// The list of some blocks of `size` granules, if its first block is large enough; other blocks may be smaller.
    ///
    /// For a request that would otherwise be refused.
    #[inline(always)]
    fn own_list(&self, size: usize) -> Option<usize> {
        let list = HeapLists::<C>::list(size - 1);
        // Lists of one size were searched already.
        if list < C::EXACT {
            return None;
        }
        let at = self.lists.first(list);
        (at != 0 && C::Records::size(self.lists.memory, at) >= size).then_some(list)
    }

    /// The first list of larger blocks that is not empty, or that of `size`, if its first block is large enough at an alignment.
    ///
    /// For a request that would otherwise be refused.
    #[inline(always)]
    fn own_list_aligned(&self, size: usize, mask: usize) -> Option<usize> {
        let list = self.lists.find_list(size).unwrap_or(HeapLists::<C>::list(size));
        let at = self.lists.first(list);
        (at != 0 && self.align_up(at, mask) + size <= at + self.lists.size(at)).then_some(list)
    }

    /// Allocates at an alignment above the granule, from a list; the part before the aligned start becomes a free block.
    #[inline(never)]
    fn allocate_aligned(&mut self, size: usize, align: usize) -> Option<NonNull<u8>> {
        // A free block of `size + slack` granules always contains `size` granules from an aligned start on. Each is a
        // number of bytes over the granule, of 8 or more, so the sum cannot overflow.
        let slack = (align - 1) / Self::GRANULE;
        if size + slack > self.granules {
            return None;
        }
        let lists = self.lists;
        let list = lists.find_list(size + slack).or_else(|| self.own_list_aligned(size, slack))?;
        let [from, to] = lists.take_first(list);
        Some(lists.cut([from, to], self.align_up(from, slack), size))
    }

    /// Allocates `size` granules, aligned to `align` bytes, from what waits or from a list.
    #[inline(always)]
    fn allocate_deferred(&mut self, size: usize, align: usize) -> Option<NonNull<u8>> {
        if align > Self::GRANULE {
            return self.allocate_aligned(size, align).or_else(|| self.cut_victim(size, align));
        }
        if size < self.deferred.quick {
            let at = self.take_quick(size);
            if at != 0 {
                return Some(self.lists.memory.pointer(Self::offset(at)));
            }
            if self.lists.has(size) {
                let [at, _] = self.lists.take_first(size);
                self.lists.flip_ends(at, size);
                return Some(self.lists.memory.pointer(Self::offset(at)));
            }
        }
        let [start, end] = self.deferred.victim;
        if end - start >= size {
            self.deferred.victim[0] = start + size;
            return Some(self.lists.memory.pointer(Self::offset(start)));
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
        let [start, end] = self.deferred.victim;
        let [from, to] = self.deferred.run;
        let (from, to) = if to - from >= size {
            if to - from - size <= end - start {
                self.deferred.run[0] += size;
                return Some(self.lists.memory.pointer(Self::offset(from)));
            }
            self.deferred.run = [0; 2];
            (from, to)
        } else {
            let several = if size < C::EXACT && SEVERAL * size <= self.granules {
                self.lists.find_list(SEVERAL * size)
            } else {
                None
            };
            let list = match several {
                Some(list) => list,
                None => self.lists.find_list(size).or_else(|| self.own_list(size))?,
            };
            let [from, to] = self.lists.take_first(list);
            if to - from - size <= end - start {
                return Some(self.lists.cut([from, to], from, size));
            }
            self.lists.flip_ends(from, to - from);
            (from, to)
        };
        let [start, end] = replace(&mut self.deferred.victim, [from + size, to]);
        self.settle(start, end - start);
        Some(self.lists.memory.pointer(Self::offset(from)))
    }

    /// Allocates at an alignment above the granule from the victim.
    #[cold]
    fn cut_victim(&mut self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let slack = (align - 1) / Self::GRANULE;
        if size > self.granules || slack > self.granules {
            return None;
        }
        let [start, end] = self.deferred.victim;
        let at = self.align_up(start, slack);
        if at + size > end {
            return None;
        }
        self.deferred.victim[0] = at + size;
        self.settle(start, at - start);
        Some(self.lists.memory.pointer(Self::offset(at)))
    }
}
