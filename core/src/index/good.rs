//! Good fit: a list for each bin, and constant time for all operations.
//!
//! This is the two-level segregated fit of Masmano, Ripoll, Crespo and Real (2004), over boundary records. Lists are last
//! in, first out: memory that was freed last is still in the processor's cache.

use core::hint::select_unpredictable;

use super::Index;
use super::slot::{NONE, Slot, Slots};
use crate::bins::{Bitmap, ROOM, bin_start, ceil_bin, floor_bin, place};
use crate::error::{Violation, ensure};

/// Good fit: the youngest gap of the request's bin if it fits, else a gap of a larger bin.
///
/// O(1); the heads of the lists take 1 KiB.
///
/// May miss an older gap of the request's bin that fits; a bin is at most 12.5 % wide. Blocks are cut to the granule,
/// so the bins waste no memory.
#[derive(Clone, Debug)]
pub struct GoodFit {
    /// Bit `b` is set iff `heads[b]` is not [`NONE`].
    map: Bitmap,
    /// The record of each bin's first gap; always [`NONE`] for bin 0, the bin of size 0. `link[0]` of a first gap is
    /// stale: no gap precedes it. `link[1]` of a last gap is [`NONE`].
    heads: [u32; ROOM],
}

// The processor cannot predict whether the neighbours of a freed block have gaps, and a misprediction costs more than the
// work that a branch would save. So gaps of 0 are added to and removed from "list" 0 without a branch: such a record links
// to itself (see `Slot::link`), so that the writes to its neighbours go to itself.
impl GoodFit {
    /// An empty index.
    pub const fn new() -> Self {
        Self { map: Bitmap::new(), heads: [NONE; ROOM] }
    }

    /// Adds gap `i` at the head of the list of `bin`.
    #[inline]
    fn push<S: Slots>(&mut self, slots: &mut S, bin: u32, i: u32) {
        let head = &mut self.heads[place(bin)];
        let after = select_unpredictable(bin == 0, i, *head);
        *head = select_unpredictable(bin == 0, NONE, i);
        slots.slot_mut(i).link = [i, after];
        if after != NONE {
            slots.slot_mut(after).link[0] = i;
        } else {
            self.map.set(bin);
        }
    }

    /// Removes gap `i` from the list of `bin`. If `i` is the head, the next gap's record is not read, which saves a
    /// cache line.
    #[inline]
    fn unlink<S: Slots>(&mut self, slots: &mut S, bin: u32, i: u32) {
        let [before, after] = slots.slot(i).link;
        let head = &mut self.heads[place(bin)];
        if *head == i {
            *head = after;
            self.map.clear_if(bin, after == NONE);
            return;
        }
        slots.slot_mut(before).link[1] = after;
        if after != NONE {
            slots.slot_mut(after).link[0] = before;
        }
    }

    /// The gaps of a bin, the youngest first.
    fn bin<'a, S: Slots>(&self, slots: &'a S, bin: u32) -> impl Iterator<Item = u32> + use<'a, S> {
        let known = |i: u32| (i != NONE).then_some(i);
        core::iter::successors(known(self.heads[place(bin)]), move |&i| known(slots.slot(i).link[1]))
    }
}

impl Default for GoodFit {
    fn default() -> Self {
        Self::new()
    }
}

impl Index for GoodFit {
    fn cut_low(&self) -> bool {
        false
    }

    fn bytes(&self) -> (u64, u64) {
        (size_of::<Self>() as u64, 0)
    }

    #[inline]
    fn insert<S: Slots>(&mut self, slots: &mut S, i: u32) {
        self.push(slots, floor_bin(slots.slot(i).gap), i);
    }

    #[inline]
    fn remove<S: Slots>(&mut self, slots: &mut S, i: u32) {
        self.unlink(slots, floor_bin(slots.slot(i).gap), i);
        slots.slot_mut(i).link = [i; 2];
    }

    /// A gap that stays in its bin is not moved: lists are not ordered by size.
    #[inline]
    fn update<S: Slots>(&mut self, slots: &mut S, i: u32, end: u32, gap: u32) {
        let record = slots.slot_mut(i);
        let (old, new) = (floor_bin(record.gap), floor_bin(gap));
        (record.end, record.gap) = (end, gap);
        if old != new {
            self.unlink(slots, old, i);
            self.push(slots, new, i);
        }
    }

    /// The head of the bin of `size`, if it fits, else the head of the first bin whose gaps all fit. Trying the bin of
    /// `size` fills memory 3 to 4 % further before the first failure; both heads are looked up, because a branch would
    /// mispredict.
    #[inline]
    fn find<S: Slots>(&self, slots: &S, size: u32, slack: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        let own = floor_bin(size);
        let first = self.map.next(own)?;
        let near = self.heads[place(first)];
        let sure = self.map.next(ceil_bin(size.saturating_add(slack)));
        let far = sure.map_or(NONE, |bin| self.heads[place(bin)]);
        let record = slots.slot(near);
        let found = select_unpredictable(first == own && record.gap >= size && fits(record), near, far);
        (found != NONE).then_some(found)
    }

    /// Searches the bins from that of `size` to that of `size + slack`, gap by gap, if [`Index::find`] fails.
    fn find_exact<S: Slots>(&self, slots: &S, size: u32, slack: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        let good = |&i: &u32| Some(slots.slot(i)).is_some_and(|record| record.gap >= size && fits(record));
        self.find(slots, size, slack, &fits).or_else(|| {
            let sure = ceil_bin(size.saturating_add(slack));
            (floor_bin(size)..sure).find_map(|bin| self.bin(slots, bin).find(good))
        })
    }

    /// O(gaps in the last bin).
    fn largest<S: Slots>(&self, slots: &S) -> Option<u32> {
        let key = |&i: &u32| (slots.slot(i).gap, core::cmp::Reverse(slots.slot(i).end));
        self.bin(slots, self.map.last()?).max_by_key(key)
    }

    /// The smallest size of the last bin that is not empty. O(1).
    fn largest_sure<S: Slots>(&self, _: &S) -> u32 {
        self.map.last().map_or(0, bin_start)
    }

    fn check<S: Slots>(&self, slots: &S) -> Result<u32, Violation> {
        let mut seen = 0;
        ensure(self.heads[0] == NONE, "a gap of 0 is in no list", 0)?;
        for bin in 0..ROOM as u32 {
            let head = self.heads[place(bin)];
            ensure(self.map.is_set(bin) == (head != NONE), "a bin's bit is set iff it holds something", bin)?;
            let mut before = None;
            for i in self.bin(slots, bin) {
                let record = slots.slot(i);
                ensure(record.gap > 0 && floor_bin(record.gap) == bin, "a gap is in the bin of its size", i)?;
                ensure(before.is_none_or(|b| record.link[0] == b), "a list's links go both ways", i)?;
                ensure(seen < slots.count(), "a list has no circle", i)?;
                (seen, before) = (seen + 1, Some(i));
            }
        }
        Ok(seen)
    }
}
