//! Resizing, in place where that can be.
//!
//! Promises upward: a block shrinks in place always, and grows in place when what is behind it is free and large enough;
//! both are bounded. A block that must move goes where it can grow again; where nothing else fits, down into the free
//! block before it.
//! Asks from below: [`Region`].

use super::config::Config;
use super::records::Records;
use super::region::Region;

/// A block that grew and had to move gets, from the largest free block, so many times its size to grow into: four
/// doublings with this one. What it does not use stays free for all.
const ROOM: usize = 16;
/// But only from a block so many times larger still: where memory is short, splitting it costs more than a move.
const PLENTY: usize = 8;

impl<C: Config> Region<C> {
    /// Makes the block `at..at + old` end elsewhere: shorter always, longer when what is behind is free and large enough.
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
        let to = self.take_behind(end);
        // The start moves; when nothing is left, it meets the end and both edges are gone.
        self.flip(end);
        self.flip(end + more);
        if end + more != to {
            self.add([end + more, to]);
        }
        true
    }

    /// Hands out `size` granules near the end of the largest free block, with room behind to grow. `None`: the lists are to
    /// be asked as for any request. O(1).
    pub fn allocate_with_room(&mut self, size: usize) -> Option<usize> {
        let room = size.checked_mul(ROOM)?;
        let [start, end] = self.victim;
        if (end - start) / PLENTY >= room {
            let at = end - room;
            self.victim[1] = at;
            self.list([at + size, end]);
            return Some(at);
        }
        let list = self.map.last();
        if list == 0 || C::Records::size(self.memory, self.head(list)) / PLENTY < room {
            return None;
        }
        let [from, to] = self.take_first(list);
        let at = to - room;
        // The edge behind stays that of the rest; the one in front stays when something is left there.
        self.flip(at + size);
        self.insert(at + size, room - size);
        self.flip(at);
        if at != from {
            self.insert(from, at - from);
        }
        Some(at)
    }

    /// Moves the block `at..at + old` down into the free block before it and makes it longer, when both and what is free
    /// behind it suffice. Returns its new place; its bytes are where they were.
    pub fn slide_down(&mut self, at: usize, old: usize, new: usize) -> Option<usize> {
        // Without the block freed last, a free writes a record into the bytes that must be kept.
        if !C::LAST || self.free_before(at) == 0 || self.free_before(at) + old + self.free_behind(at + old) < new {
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
