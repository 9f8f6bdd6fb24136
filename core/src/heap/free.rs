//! Taking back.
//!
//! Promises upward: a freed block is one with its free neighbours at once; every path is bounded.
//! Asks from below: [`HeapRegion`].

use super::config::HeapConfig;
use super::records::Records;
use super::region::HeapRegion;

impl<C: HeapConfig> HeapRegion<C> {
    /// Takes `size` granules at `at` back.
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

    /// A free block whose edges are set, and which no other touches.
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

    /// A freed block with a free neighbour: the edge between them is gone, and the neighbour's far edge is that of
    /// both.
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

    /// Takes the free block that ends here out of its list; returns its start.
    #[inline(always)]
    pub fn detach_before(&mut self, end: usize) -> usize {
        if C::LAST && end == self.last[1] {
            return core::mem::take(&mut self.last)[0];
        }
        let size = C::Records::size_before(self.memory, end);
        self.unlink(end - size);
        end - size
    }

    /// Takes the free block that starts here out of its list; returns its end.
    #[inline(always)]
    pub fn detach_behind(&mut self, at: usize) -> usize {
        if C::LAST && at == self.last[0] {
            return core::mem::take(&mut self.last)[1];
        }
        let size = C::Records::size(self.memory, at);
        self.unlink(at);
        at + size
    }

    /// A freed block beside the victim becomes part of it, with the free block on its other side.
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
