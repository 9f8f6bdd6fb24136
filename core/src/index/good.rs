//! Good fit: bins of lists, everything in constant time.
//!
//! The two-level segregated fit of Masmano, Ripoll, Crespo and Real (2004), over posts. Lists are last in, first
//! out: what was freed last is still in the processor's cache.

use super::Index;
use super::slot::{NONE, Slot, Slots};
use crate::bins::{BINS, Bitmap, bin_start, ceil_bin, floor_bin};
use crate::error::{Violation, ensure};

/// How many gaps of the request's own bin are looked at before the next bin is taken, where all fit. Those behind the
/// first are seldom in the processor's cache, and cost more time than they save space.
const PROBES: u32 = 1;

/// Good fit: a gap of the first bin above the request. O(1), and 1 KiB of heads.
///
/// May pass over a gap that fits in the request's own bin, which is at most 12.5 % wide; never wastes memory:
/// gaps are cut to the granule.
#[derive(Clone, Debug)]
pub struct GoodFit {
    /// Bit `b` is set iff `heads[b]` is not [`NONE`].
    map: Bitmap,
    /// The first gap of each bin. Its `link[0]` is stale: whoever is the head has nobody before it.
    heads: [u32; BINS],
}

impl GoodFit {
    /// An empty index.
    pub const fn new() -> Self {
        Self { map: Bitmap::new(), heads: [NONE; BINS] }
    }

    #[inline]
    fn push<S: Slots>(&mut self, slots: &mut S, bin: u32, i: u32) {
        let head = core::mem::replace(&mut self.heads[bin as usize], i);
        slots.slot_mut(i).link = [NONE, head];
        if head != NONE {
            slots.slot_mut(head).link[0] = i;
        } else {
            self.map.set(bin);
        }
    }

    /// A head leaves without a look at the gap behind it: one cache line less.
    #[inline]
    fn unlink<S: Slots>(&mut self, slots: &mut S, bin: u32, i: u32) {
        let [before, after] = slots.slot(i).link;
        let head = &mut self.heads[bin as usize];
        if *head == i {
            *head = after;
            if after == NONE {
                self.map.clear(bin);
            }
            return;
        }
        slots.slot_mut(before).link[1] = after;
        if after != NONE {
            slots.slot_mut(after).link[0] = before;
        }
    }

    /// The first of at most `most` gaps of a bin that fits.
    #[inline]
    fn probe<S: Slots>(&self, slots: &S, bin: u32, size: u32, most: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        let mut at = self.heads[bin as usize];
        for _ in 0..most {
            if at == NONE {
                break;
            }
            let post = slots.slot(at);
            if post.gap >= size && fits(post) {
                return Some(at);
            }
            at = post.link[1];
        }
        None
    }

    fn bin<'a, S: Slots>(&self, slots: &'a S, bin: u32) -> impl Iterator<Item = u32> + use<'a, S> {
        let known = |i: u32| (i != NONE).then_some(i);
        core::iter::successors(known(self.heads[bin as usize]), move |&i| known(slots.slot(i).link[1]))
    }
}

impl Default for GoodFit {
    fn default() -> Self {
        Self::new()
    }
}

impl Index for GoodFit {
    const CUT_LOW: bool = false;

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
    }

    /// Lists have no order within a bin: a gap that stays in its bin is not moved.
    #[inline]
    fn update<S: Slots>(&mut self, slots: &mut S, i: u32, end: u32, gap: u32) {
        let (old, new) = (floor_bin(slots.slot(i).gap), floor_bin(gap));
        let post = slots.slot_mut(i);
        (post.end, post.gap) = (end, gap);
        if old == new {
            return;
        }
        if old != 0 {
            self.unlink(slots, old, i);
        }
        if new != 0 {
            self.push(slots, new, i);
        }
    }

    #[inline]
    fn find<S: Slots>(&self, slots: &S, size: u32, slack: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        let sure = ceil_bin(size.saturating_add(slack));
        let own = floor_bin(size);
        if own != sure {
            let near = self.probe(slots, own, size, PROBES, fits);
            if near.is_some() {
                return near;
            }
        }
        self.map.next(sure).map(|bin| self.heads[bin as usize])
    }

    /// O(gaps in the bins that `size` to `size + slack` spans), and only when [`Index::find`] fails.
    fn find_exact<S: Slots>(&self, slots: &S, size: u32, slack: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        self.find(slots, size, slack, &fits).or_else(|| {
            let sure = ceil_bin(size.saturating_add(slack));
            (floor_bin(size)..sure).find_map(|bin| self.probe(slots, bin, size, u32::MAX, &fits))
        })
    }

    /// O(gaps in the last bin).
    fn largest<S: Slots>(&self, slots: &S) -> Option<u32> {
        let key = |&i: &u32| (slots.slot(i).gap, core::cmp::Reverse(slots.slot(i).end));
        self.bin(slots, self.map.last()?).max_by_key(key)
    }

    /// The start of the last bin: O(1).
    fn largest_sure<S: Slots>(&self, _: &S) -> u32 {
        self.map.last().map_or(0, bin_start)
    }

    fn check<S: Slots>(&self, slots: &S) -> Result<u32, Violation> {
        let mut seen = 0;
        for (bin, &head) in self.heads.iter().enumerate() {
            ensure(self.map.is_set(bin as u32) == (head != NONE), "a bin's bit is set iff it holds something", bin)?;
            let mut before = NONE;
            for i in self.bin(slots, bin as u32) {
                let post = slots.slot(i);
                ensure(post.gap > 0 && floor_bin(post.gap) as usize == bin, "a gap is in the bin of its size", i)?;
                ensure(i == head || post.link[0] == before, "a list's links go both ways", i)?;
                ensure(seen < slots.count(), "a list has no circle", i)?;
                (seen, before) = (seen + 1, i);
            }
        }
        Ok(seen)
    }
}
