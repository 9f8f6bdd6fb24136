//! The usage of a heap, and the check of its invariants.

use super::bins::{LISTS, bin};
use super::config::HeapConfig;
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
        self.memory.address().wrapping_add(Self::offset(self.end()) - 1)
    }

    /// Calls `each` with start and end of each free block: victim, block freed last, blocks in lists.
    ///
    /// A list is followed only as far as its records agree: a program that has written into freed memory gets numbers
    /// that are too small, but gets them after a bounded number of steps.
    pub fn each_free(&self, mut each: impl FnMut([usize; 2])) {
        [self.victim, self.last].into_iter().filter(|[from, to]| from != to).for_each(&mut each);
        if self.granules == 0 {
            return;
        }
        for list in 1..=bin(self.granules) {
            let (mut at, mut before) = (self.head(list), Self::name(list));
            while LISTS <= at && at < self.end() {
                let (next, prev) = C::Records::links(self.memory, at);
                let size = C::Records::size(self.memory, at);
                // A list whose links agree in both directions has no circle.
                if prev != before || size > self.end() - at {
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
        let mut edges = if self.last[0] == self.last[1] { 0 } else { 2 };
        for list in 1..=bin(self.granules) {
            edges += 2 * self.check_list(list)?;
        }
        let set = (LISTS..=self.end()).filter(|&at| self.edge(at)).count();
        ensure(set == edges, "a free block has two edges, and nothing else has any", set)?;
        let [from, to] = self.victim;
        ensure(LISTS <= from || from == to, "the victim lies behind the tables", from)?;
        ensure(to <= self.end() && from <= to, "the victim lies in the region", to)?;
        let touched = from != to && (self.edge(from) || self.edge(to));
        ensure(!touched, "no free block touches the victim", from)?;
        let last = self.last[0] == self.last[1] || (self.edge(self.last[0]) && self.edge(self.last[1]));
        ensure(last, "the block freed last has its edges", self.last[0])
    }

    /// Checks a list; returns the number of blocks in it.
    fn check_list(&self, list: usize) -> Result<usize, Violation> {
        let (mut at, mut before, mut count) = (self.head(list), Self::name(list), 0);
        ensure(self.map.has(list) == (at != 0), "a list's bit is set iff it holds something", list)?;
        while at != 0 {
            // A record may be corrupt: bounds are checked before any read, so that all reads are in the region.
            ensure(LISTS <= at && at < self.end(), "a free block starts in the region", at)?;
            let size = C::Records::size(self.memory, at);
            let (next, prev) = C::Records::links(self.memory, at);
            ensure(size > 0 && size <= self.end() - at, "a free block lies in the region", at)?;
            ensure(bin(size) == list, "a free block is in the list of its size", at)?;
            ensure(C::Records::size_before(self.memory, at + size) == size, "both ends say the size", at)?;
            ensure(self.edge(at) && self.edge(at + size), "a free block has two edges", at)?;
            ensure(prev == before, "a list's links go both ways", at)?;
            (at, before, count) = (next, at, count + 1);
            ensure(count <= self.granules, "a list has no circle", at)?;
        }
        Ok(count)
    }
}
