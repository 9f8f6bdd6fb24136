//! First fit: one trie by address, whose nodes store the size of the largest gap in their subtree.

use core::ops::DerefMut;

use super::slot::{NONE, Slot, Slots};
use super::trie::{self, Branch, ByAddress, Order, Trie};
use super::{Index, MAX_SLOTS};
use crate::error::Violation;

/// First fit: the lowest address that fits.
///
/// (A [`Range`](crate::Range) with holes first searches for a gap that touches no hole.)
#[derive(Clone, Debug)]
pub struct FirstFit<B> {
    branches: B,
    root: u32,
    /// The key order, as many bits wide as the highest address that was ever added.
    order: ByAddress,
}

impl<B: DerefMut<Target = [Branch]>> FirstFit<B> {
    /// An empty index over lent branches, one for each slot.
    pub const fn new(branches: B) -> Self {
        Self { branches, root: NONE, order: ByAddress { width: 1 } }
    }
}

impl<B: DerefMut<Target = [Branch]>> FirstFit<B> {
    fn trie<'a, S: Slots>(&'a mut self, slots: &'a mut S) -> (Trie<'a, S, ByAddress>, &'a mut u32) {
        (Trie { slots, branches: &mut self.branches, order: self.order }, &mut self.root)
    }

    /// Rebuilds the trie for addresses below `2^width`. O(n), at most 32 times: only when the end of a gap needs more
    /// bits than all ends before.
    #[cold]
    fn widen<S: Slots>(&mut self, slots: &mut S, width: u32) {
        let narrow = core::mem::replace(&mut self.order, ByAddress { width });
        let mut rest = core::mem::replace(&mut self.root, NONE);
        while rest != NONE {
            let mut trie = Trie { slots, branches: &mut self.branches, order: narrow };
            let leaf = trie.leaf(rest);
            trie.remove(&mut rest, leaf);
            self.insert(slots, leaf);
        }
    }
}

impl<B: DerefMut<Target = [Branch]>> Index for FirstFit<B> {
    fn cut_low(&self) -> bool {
        true
    }

    fn room(&self) -> u32 {
        self.branches.len().min(MAX_SLOTS as usize) as u32
    }

    fn bytes(&self) -> (u64, u64) {
        (size_of::<Self>() as u64, size_of::<Branch>() as u64)
    }

    fn insert<S: Slots>(&mut self, slots: &mut S, i: u32) {
        let width = u64::BITS - ByAddress::key(slots.slot(i)).leading_zeros();
        if width > self.order.width {
            self.widen(slots, width);
        }
        let (mut trie, root) = self.trie(slots);
        trie.insert(root, i);
    }

    fn remove<S: Slots>(&mut self, slots: &mut S, i: u32) {
        if slots.slot(i).gap != 0 {
            let (mut trie, root) = self.trie(slots);
            trie.remove(root, i);
            slots.slot_mut(i).link = [i; 2];
        }
    }

    /// A gap whose end does not change keeps its node.
    fn update<S: Slots>(&mut self, slots: &mut S, i: u32, end: u32, gap: u32) {
        let record = slots.slot_mut(i);
        let stays = record.gap != 0 && gap != 0 && record.gap_end() == end + gap;
        if !stays {
            self.remove(slots, i);
        }
        let record = slots.slot_mut(i);
        (record.end, record.gap) = (end, gap);
        if stays {
            self.trie(slots).0.refresh(i, i);
        } else if gap != 0 {
            self.insert(slots, i);
        }
    }

    /// Record `to` takes over the trie's node of the gap of `from`.
    fn hand_over<S: Slots>(&mut self, slots: &mut S, from: u32, to: u32, end: u32, gap: u32) {
        if slots.slot(from).gap == 0 {
            return self.update(slots, to, end, gap);
        }
        self.remove(slots, to);
        let (mut trie, root) = self.trie(slots);
        trie.hand_over(root, from, to);
        let record = trie.slots.slot_mut(to);
        (record.end, record.gap) = (end, gap);
        let record = trie.slots.slot_mut(from);
        (record.gap, record.link) = (0, [from; 2]);
        trie.refresh(to, to);
    }

    fn find<S: Slots>(&self, slots: &S, size: u32, _: u32, fits: impl Fn(&Slot) -> bool) -> Option<u32> {
        let mut from = 0;
        loop {
            let found = trie::first_fit((slots, &self.branches), self.order, self.root, size, from);
            if found == NONE {
                return None;
            }
            let record = slots.slot(found);
            if fits(record) {
                return Some(found);
            }
            from = ByAddress::key(record) + 1;
        }
    }

    fn largest<S: Slots>(&self, slots: &S) -> Option<u32> {
        let gap = trie::largest(&self.branches, self.root);
        (gap > 0).then(|| trie::first_fit((slots, &self.branches), self.order, self.root, gap, 0))
    }

    fn check<S: Slots>(&self, slots: &S) -> Result<u32, Violation> {
        trie::check(slots, &self.branches, self.order, (self.root, NONE), (0, 0))
    }
}
