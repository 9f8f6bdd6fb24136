//! Checks all invariants of a range. O(slots); for tests and fuzzing.

use super::{Range, RegionId};
use crate::error::{Violation, ensure};
use crate::index::{Index, NONE, Slot, SlotState, Slots};

/// Sums over the records of all regions: sizes in granules, and numbers of records.
#[derive(Default)]
struct Sums {
    live: u64,
    live_blocks: u64,
    free: u64,
    gaps: u32,
    holes: u64,
    hole_posts: u32,
    records: u32,
}

impl<S: Slots, I: Index> Range<S, I> {
    pub(super) fn check_all(&self) -> Result<(), Violation> {
        let mut sums = Sums::default();
        for region in self.regions() {
            self.check_ring(region, &mut sums)?;
        }
        let t = &self.totals;
        ensure(
            sums.live == t.live && sums.live_blocks == t.live_blocks,
            "the live total is the sum of live blocks",
            t.live,
        )?;
        ensure(sums.live + sums.free == t.backed, "the backed total is the sum of live blocks and gaps", t.backed)?;
        ensure(sums.holes == t.holes, "the hole total is the sum of holes", t.holes)?;
        ensure(
            t.live <= t.peak_live && t.backed <= t.peak_backed && t.live_blocks <= t.peak_live_blocks,
            "no peak is below what it is the peak of",
            t.live,
        )?;
        ensure(self.index.check(&self.slots)? == sums.gaps, "every gap is in the index, once", sums.gaps)?;
        self.check_holes(sums.hole_posts)?;
        self.check_slots(sums.records)
    }

    fn check_holes(&self, records: u32) -> Result<(), Violation> {
        let (mut at, mut before, mut seen) = (self.holes, NONE, 0);
        while at != NONE && seen <= records {
            let record = self.slots.slot(at);
            ensure(record.state() == SlotState::Hole, "the list of holes holds holes", at)?;
            ensure(record.hole_links()[0] == before, "the links of holes go both ways", at)?;
            (before, at, seen) = (at, record.hole_links()[1], seen + 1);
        }
        ensure(seen == records, "every hole is in the list of holes", seen)
    }

    /// Checks that used and spare slots together are all slots below `fresh`.
    fn check_slots(&self, used: u32) -> Result<(), Violation> {
        ensure(used == self.used_slots(), "every used slot is a record in a ring", used)?;
        let (mut at, mut spare) = (self.spare, 0);
        while at != NONE && spare <= self.fresh {
            ensure(self.slots.slot(at).state() == SlotState::Spare, "a spare slot says so", at)?;
            (at, spare) = (self.slots.slot(at).next, spare + 1);
        }
        ensure(used + spare == self.fresh, "a slot is used or spare", spare)
    }

    fn check_ring(&self, region: RegionId, sums: &mut Sums) -> Result<(), Violation> {
        let ring = self.slots.slot(region.0);
        ensure(ring.state() == SlotState::Region, "the list of regions holds regions", region.0)?;
        self.sum(ring, region.0, 0, sums)?;
        let (mut at, mut before) = (ring.next, region.0);
        while at != region.0 {
            let (record, left) = (self.slots.slot(at), self.slots.slot(before));
            ensure(record.prev == before, "a ring's links go both ways", at)?;
            ensure(record.end > left.gap_end(), "what stands at a record starts where the gap before it ends", at)?;
            let touch = left.gap == 0 && left.state() == SlotState::Hole && record.state() == SlotState::Hole;
            ensure(!touch, "two holes never touch", at)?;
            self.sum(record, at, record.end - left.gap_end(), sums)?;
            (before, at) = (at, record.next);
        }
        ensure(ring.prev == before, "a region knows its last record", region.0)
    }

    fn sum(&self, record: &Slot, at: u32, size: u32, sums: &mut Sums) -> Result<(), Violation> {
        sums.records += 1;
        sums.free += u64::from(record.gap);
        sums.gaps += u32::from(record.gap > 0);
        ensure(record.gap > 0 || record.link == [at; 2], "a record without a gap links to itself", at)?;
        match record.state() {
            SlotState::Live => {
                sums.live += u64::from(size);
                sums.live_blocks += 1;
                ensure((1..=self.ticket).contains(&record.value()), "a live block has a ticket that was given", at)
            }
            SlotState::Hole => {
                sums.holes += u64::from(size);
                sums.hole_posts += 1;
                Ok(())
            }
            SlotState::Region => ensure(size == 0, "a ring has one region's record", at),
            SlotState::Spare => ensure(false, "a ring holds no spare slots", at),
        }
    }
}
