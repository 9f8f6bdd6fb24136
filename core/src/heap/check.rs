//! The usage of a heap, and the check of its invariants.

use super::bins::WORD;
use super::config::HeapConfig;
use super::deferred::QUICK_SIZES;
use super::lists::HeapLists;
use super::records::Records;
use super::region::HeapRegion;
use super::{HeapUsage, RegionHeap};
use crate::error::{Violation, ensure};

impl<C: HeapConfig, const REGIONS: usize> RegionHeap<C, REGIONS> {
    /// The bytes of the heap by use. O(free blocks): the heap has no counters.
    pub fn usage(&self) -> HeapUsage {
        let mut usage = HeapUsage::default();
        for region in self.regions.iter().filter(|region| region.granules > 0) {
            let bytes = HeapRegion::<C>::offset;
            let total = region.last_address() - region.start_address() + 1;
            usage.total += total;
            usage.tables += total - bytes(region.granules);
            region.each_free(|[from, to]| {
                usage.free += bytes(to - from);
                usage.largest_free = usage.largest_free.max(bytes(to - from));
                usage.free_blocks += 1;
            });
        }
        usage.live = (usage.total - usage.tables).saturating_sub(usage.free);
        usage
    }

    /// Checks every list and every edge. O(granules).
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        self.regions.iter().try_for_each(HeapRegion::check)
    }
}

impl<C: HeapConfig> HeapRegion<C> {
    /// The region's last address.
    pub fn last_address(&self) -> usize {
        self.lists.memory.address().wrapping_add(Self::offset(self.end()) - 1)
    }

    /// Whether a block of `size` granules can start at `at`.
    pub fn is_place(&self, at: usize, size: usize) -> bool {
        Self::FIRST <= at && at < self.end() && size <= self.end() - at
    }

    /// The size of the block in a list at a place of the region; of the last one 1, as nothing else is possible there.
    fn size_of(&self, at: usize) -> usize {
        if self.is_place(at, 2) { self.lists.size(at) } else { 1 }
    }

    /// Calls `each` with start and end of each free block: those that wait, and those in lists.
    ///
    /// A list is followed only as far as its records agree: a program that has written into freed memory gets numbers
    /// that are too small, but gets them after a bounded number of steps.
    pub fn each_free(&self, mut each: impl FnMut([usize; 2])) {
        if self.granules == 0 {
            return;
        }
        self.each_waiting(&mut each);
        for list in 1..=HeapLists::<C>::list(self.granules) {
            let (mut at, mut before) = (self.lists.first(list), list);
            while self.is_place(at, 0) {
                let (next, prev) = C::Records::links(self.lists.memory, at);
                let size = self.size_of(at);
                // A list whose links agree in both directions has no circle.
                if prev != before || !self.is_place(at, size) {
                    break;
                }
                each([at, at + size]);
                (at, before) = (next, at);
            }
        }
    }

    fn check(&self) -> Result<(), Violation> {
        if self.granules == 0 {
            return Ok(());
        }
        ensure(
            C::ONE_PATH || self.lists.has(self.lists.last * WORD),
            "a word that is not 0 ends the bitmap of lists",
            self.lists.last,
        )?;
        let mut edges = 0;
        for list in 1..=HeapLists::<C>::list(self.granules) {
            edges += 2 * self.check_list(list)?;
        }
        let set = (Self::FIRST..=self.end()).filter(|&at| self.lists.edge(at)).count();
        ensure(set == edges, "a free block in a list has two edges, and nothing else has any", set)?;
        if C::DEFERS { self.check_deferred() } else { Ok(()) }
    }

    fn check_deferred(&self) -> Result<(), Violation> {
        for [from, to] in [self.deferred.victim, self.deferred.run] {
            let inside = from == to || Self::FIRST <= from && from < to && to <= self.end();
            ensure(inside, "the victim and the run lie in the region, after the tables", from)?;
        }
        let mut waiting = 0;
        for size in 1..QUICK_SIZES {
            let mut at = self.lists.quick(size);
            while at != 0 {
                ensure(self.is_place(at, size), "a block that waits lies in the region", at)?;
                waiting += 1;
                ensure(waiting <= self.deferred.waiting, "no more blocks wait than were counted", at)?;
                at = C::Records::next(self.lists.memory, at);
            }
        }
        ensure(waiting == self.deferred.waiting, "as many blocks wait as were counted", waiting)?;
        // One more than the bound may wait between a free and its end, and no call ends there.
        ensure(waiting <= self.deferred.most.max(1), "a bounded number of blocks wait", waiting)?;
        let mut ends = 0;
        self.each_waiting(|[from, to]| ends += (from + 1..to).filter(|&at| self.lists.edge(at)).count());
        ensure(ends == 0, "no block in a list starts or ends inside a block that waits", ends)
    }

    /// Checks a list; returns the number of blocks in it.
    fn check_list(&self, list: usize) -> Result<usize, Violation> {
        let (mut at, mut before, mut count) = (self.lists.first(list), list, 0);
        ensure(self.lists.has(list) == (at != 0), "a list's bit is set iff it holds something", list)?;
        while at != 0 {
            // A record may be corrupt: bounds are checked before any read, so that all reads are in the region.
            ensure(Self::FIRST <= at && at < self.end(), "a free block starts in the region", at)?;
            let size = self.size_of(at);
            let (next, prev) = C::Records::links(self.lists.memory, at);
            ensure(size > 0 && size <= self.end() - at, "a free block lies in the region", at)?;
            ensure(HeapLists::<C>::list(size) == list, "a free block is in the list of its size", at)?;
            ensure(self.lists.size_before(at + size) == size, "both ends say the size", at)?;
            ensure(self.lists.edge(at) && self.lists.edge(at + size), "a free block has two edges", at)?;
            ensure(prev == before, "a list's links go both ways", at)?;
            (at, before, count) = (next, at, count + 1);
            ensure(count <= self.granules, "a list has no circle", at)?;
        }
        Ok(count)
    }
}
