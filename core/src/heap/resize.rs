//! Resizing blocks in a region.
//!
//! Promises upward: a block always shrinks in place, and grows in place if there is enough free memory after it; both in a
//! bounded number of steps. A block that must move is placed where it can grow again, if possible; if nothing else fits,
//! it moves down into the free block before it.
//! Asks from below: [`HeapRegion`].

use core::ptr::NonNull;

use super::bins::ceil_bin;
use super::config::HeapConfig;
use super::records::Records;
use super::region::HeapRegion;

/// A block that had no room to grow moves to the front of a free block of this many times its new size, if there is
/// one, so that it can double in place. Recorded programs then need less memory (Lua 109 % of its peak instead of 112,
/// a formatter 105 instead of 115). With 4 or more, or in the largest free block, more blocks grow in place, but
/// programs need more memory.
const ROOM: usize = 2;

impl<C: HeapConfig> HeapRegion<C> {
    /// Resizes the block `at..at + old` in place to `new` granules; returns whether it did.
    ///
    /// Shrinking always succeeds; growing does if there is enough free memory after the block.
    pub fn resize(&mut self, at: usize, old: usize, new: usize) -> bool {
        let end = at + old;
        if new <= old {
            if new < old {
                self.free(at + new, old - new);
            }
            return true;
        }
        let more = new - old;
        if self.free_behind(end) < more {
            return false;
        }
        if end == self.victim[0] {
            self.victim[0] += more;
            return true;
        }
        let to = self.detach_behind(end);
        // Moves the start edge of the free block up; if nothing is left of it, start and end edge cancel out.
        self.flip(end);
        self.flip(end + more);
        if end + more != to {
            self.add([end + more, to]);
        }
        true
    }

    /// Allocates `size` granules at the front of a free block of at least [`ROOM`] times that size.
    ///
    /// `None` if no list has such a block. O(1).
    pub fn allocate_with_room(&mut self, size: usize) -> Option<NonNull<u8>> {
        if size > self.granules / ROOM {
            return None;
        }
        let list = self.next_list(ceil_bin(ROOM * size));
        if list == 0 {
            return None;
        }
        let [at, to] = self.take_first(list);
        Some(self.cut([at, to], at, size))
    }

    /// Moves the block `at..at + old` down into the free block before it, and makes it longer.
    ///
    /// Succeeds if that free block and the free memory after the block suffice. Returns the new start; the caller must
    /// move the bytes.
    pub fn slide_down(&mut self, at: usize, old: usize, new: usize) -> Option<usize> {
        // Without `LAST`, `free` would write a record into the bytes that the caller still has to move.
        let before = self.free_before(at);
        if !C::LAST || before == 0 || before + old + self.free_behind(at + old) < new {
            return None;
        }
        self.free(at, old);
        if self.last[0] < at && at < self.last[1] {
            let [from, to] = core::mem::take(&mut self.last);
            self.flip_ends(from, new);
            if from + new != to {
                self.add([from + new, to]);
            }
            return Some(from);
        }
        let from = self.victim[0];
        self.victim[0] = from + new;
        Some(from)
    }

    fn free_before(&self, end: usize) -> usize {
        match end {
            _ if end == self.victim[1] => end - self.victim[0],
            _ if !self.edge(end) => 0,
            _ if end == self.last[1] => end - self.last[0],
            _ => C::Records::size_before(self.memory, end),
        }
    }

    fn free_behind(&self, at: usize) -> usize {
        match at {
            _ if at == self.victim[0] => self.victim[1] - at,
            _ if !self.edge(at) => 0,
            _ if at == self.last[0] => self.last[1] - at,
            _ => C::Records::size(self.memory, at),
        }
    }
}
