//! Freeing blocks in a region.
//!
//! Promises upward: what is freed at once merges with its free neighbours in lists; the number of steps is bounded.
//! Asks from below: [`HeapRegion`].

use super::config::HeapConfig;
use super::region::HeapRegion;

impl<C: HeapConfig> HeapRegion<C> {
    /// Frees the block of `size` granules at `at`, which was allocated at an alignment of `align` bytes.
    #[inline(always)]
    pub fn free(&mut self, at: usize, size: usize, align: usize) {
        // An aligned block serves few requests unmerged: they would need its alignment.
        if C::DEFERS && align <= Self::GRANULE {
            return self.free_deferred(at, size);
        }
        if C::ONE_PATH {
            self.free_small(at, size)
        } else if C::DEFERS || cfg!(target_pointer_width = "64") {
            self.free_apart(at, size)
        } else {
            self.free_at_once(at, size)
        }
    }

    /// [`HeapRegion::free_at_once`] as a function of its own.
    #[inline(never)]
    pub fn free_apart(&mut self, at: usize, size: usize) {
        if C::ONE_PATH {
            return self.free_small(at, size);
        }
        self.free_at_once(at, size);
    }

    /// Frees the block of `size` granules at `at`, merged with its neighbours in lists and the victim.
    #[inline(always)]
    fn free_at_once(&mut self, at: usize, size: usize) {
        let (mut from, mut to) = (at, at + size);
        if C::DEFERS && (to == self.deferred.victim[0] || from == self.deferred.victim[1]) {
            return self.join_victim(from, to);
        }
        // Flipping the block's edges clears the edge towards a free neighbour; the neighbour's other edge becomes that
        // of the merged block.
        let lists = self.lists;
        if let Some([before, behind]) = lists.flip_ends(at, size) {
            if before != 0 {
                from = lists.detach_before(from);
            }
            if behind != 0 {
                to = lists.detach_behind(to);
            }
        }
        lists.insert(from, to - from);
    }

    /// Merges a free block into the victim beside it, and with the free block in a list on its other side.
    #[inline(never)]
    fn join_victim(&mut self, at: usize, end: usize) {
        if end == self.deferred.victim[0] {
            self.deferred.victim[0] = at;
            if self.lists.edge(at) {
                let from = self.lists.detach_before(at);
                self.lists.flip_ends(from, at - from);
                self.deferred.victim[0] = from;
            }
        } else {
            self.deferred.victim[1] = end;
            if self.lists.edge(end) {
                let to = self.lists.detach_behind(end);
                self.lists.flip_ends(end, to - end);
                self.deferred.victim[1] = to;
            }
        }
    }
}
