//! Freeing blocks in a region.
//!
//! Promises upward: a freed block merges with its free neighbours at once; the number of steps is bounded.
//! Asks from below: [`HeapRegion`].

use super::config::HeapConfig;
use super::records::Records;
use super::region::HeapRegion;

impl<C: HeapConfig> HeapRegion<C> {
    /// Frees the block of `size` granules at place `at`.
    #[inline(always)]
    pub fn free(&mut self, at: usize, size: usize) {
        let end = at + size;
        if C::VICTIM {
            if end == self.victim[0] && !self.edge(at) {
                self.victim[0] = at;
                return;
            }
            if end == self.victim[0] || at == self.victim[1] {
                return self.join_victim(at, end);
            }
        }
        match self.flip_ends(at, size) {
            Some(ends) => self.merge(at, end, ends),
            None => self.add([at, end]),
        }
    }

    /// Adds a free block whose edges are set, and which no other free block touches.
    ///
    /// With `LAST` it becomes the block freed last, and the one that was so before is inserted into its list; without
    /// `LAST`, the added block itself is inserted.
    #[inline(always)]
    pub fn add(&mut self, [from, to]: [usize; 2]) {
        if !C::LAST {
            return self.insert(from, to - from);
        }
        let [from, to] = core::mem::replace(&mut self.last, [from, to]);
        if from != to {
            self.insert(from, to - from);
        }
    }

    /// Merges a freed block with its free neighbours. Flipping the freed block's edges has cleared the edge towards a
    /// free neighbour; the neighbour's other edge becomes that of the merged block.
    #[inline(never)]
    fn merge(&mut self, mut from: usize, mut to: usize, [before, behind]: [usize; 2]) {
        if before != 0 {
            from = self.detach_before(from);
        }
        if behind != 0 {
            to = self.detach_behind(to);
        }
        self.add([from, to]);
    }

    /// Removes the free block that ends at `end` from its list; returns its start.
    #[inline(always)]
    pub fn detach_before(&mut self, end: usize) -> usize {
        if C::LAST && end == self.last[1] {
            return core::mem::take(&mut self.last)[0];
        }
        let size = C::Records::size_before(self.memory, end);
        self.unlink(end - size);
        end - size
    }

    /// Removes the free block that starts at `at` from its list; returns its end.
    #[inline(always)]
    pub fn detach_behind(&mut self, at: usize) -> usize {
        if C::LAST && at == self.last[0] {
            return core::mem::take(&mut self.last)[1];
        }
        let size = C::Records::size(self.memory, at);
        self.unlink(at);
        at + size
    }

    /// Merges a freed block into the victim beside it, and with the free block on its other side, if any.
    #[inline(never)]
    fn join_victim(&mut self, at: usize, end: usize) {
        if end == self.victim[0] {
            self.victim[0] = at;
            if self.edge(at) {
                let from = self.detach_before(at);
                self.flip_ends(from, at - from);
                self.victim[0] = from;
            }
        } else {
            self.victim[1] = end;
            if self.edge(end) {
                let to = self.detach_behind(end);
                self.flip_ends(end, to - end);
                self.victim[1] = to;
            }
        }
    }
}
