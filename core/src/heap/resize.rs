//! Resizing blocks in a region.
//!
//! Promises upward: a block always shrinks in place, and grows in place if there is enough free memory after it that does
//! not wait; both in a bounded number of steps.
//! Asks from below: [`HeapRegion`].

use super::config::HeapConfig;
use super::region::HeapRegion;

impl<C: HeapConfig> HeapRegion<C> {
    /// Resizes the block `at..at + old` in place to `new` granules; returns whether it did.
    pub fn resize(&mut self, at: usize, old: usize, new: usize) -> bool {
        let end = at + old;
        if new <= old {
            if new < old {
                let rest = [at + new, old - new];
                if C::DEFERS { self.free_deferred(rest[0], rest[1]) } else { self.free_apart(rest[0], rest[1]) }
            }
            return true;
        }
        let more = new - old;
        if self.lists.edge(end) {
            let to = end + self.lists.size(end);
            if to - end < more {
                return false;
            }
            if C::ONE_PATH {
                self.detach(end)
            } else {
                self.lists.unlink(end)
            }
            // Moves the start edge of the free block up; if nothing is left of it, start and end edge cancel out.
            self.lists.flip(end);
            self.lists.flip(end + more);
            if C::ONE_PATH {
                self.attach(end + more, to);
            } else if end + more != to {
                self.lists.insert(end + more, to - end - more);
            }
            return true;
        }
        if C::DEFERS {
            for free in [&mut self.deferred.victim, &mut self.deferred.run] {
                if free[0] == end && free[1] - end >= more {
                    free[0] += more;
                    return true;
                }
            }
        }
        false
    }
}
