//! Freed blocks that wait for their fence: a list through records that stand beside the slots.
//!
//! Promises upward: a block is added, found and taken out in O(1); there is always room, since a block that waits has a
//! slot; the list runs from the oldest to the youngest.
//! Asks from below: one record for each slot of the range, unless no fence is ever pending.

use core::ops::DerefMut;

use crate::allocator::Owner;
use crate::error::{Violation, ensure};
use crate::index::NONE;

/// What a slot's block waits for.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Zeroable))]
pub struct PendingFree {
    /// Covers all that the owner did with the block.
    ticket: u64,
    /// The owner that freed it.
    owner: u32,
    /// Whether anything waits here. All zeros: nothing.
    waits: bool,
    /// The older and the younger neighbour; [`NONE`] at the ends. Meaningless when nothing waits here.
    links: [u32; 2],
}

impl PendingFree {
    /// Nothing waits here.
    pub const EMPTY: Self = Self { ticket: 0, owner: 0, waits: false, links: [0; 2] };
}

/// The blocks of one area that wait, by slot.
#[derive(Clone, Debug)]
pub(super) struct PendingQueue<W> {
    records: W,
    /// The oldest and the youngest; [`NONE`] when nothing waits.
    ends: [u32; 2],
    /// Records below this one were used.
    touched: usize,
}

impl<W: DerefMut<Target = [PendingFree]>> PendingQueue<W> {
    pub(super) fn new(records: W) -> Self {
        Self { records, ends: [NONE; 2], touched: 0 }
    }

    /// How many slots have a record.
    pub(super) fn room(&self) -> usize {
        self.records.len()
    }

    /// Bytes of records up to the last that was ever used: storage that is zeros until then has no memory beyond.
    pub(super) fn bytes(&self) -> u64 {
        (self.touched * size_of::<PendingFree>()) as u64
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ends[0] == NONE
    }

    /// The owner that freed the block in this slot, and the ticket that the block waits for.
    pub(super) fn get(&self, slot: u32) -> Option<(Owner, u64)> {
        let record = self.records.get(slot as usize)?;
        record.waits.then_some((Owner(record.owner), record.ticket))
    }

    /// Adds the block in `slot`, which does not wait yet, as the youngest.
    pub(super) fn push(&mut self, slot: u32, owner: Owner, ticket: u64) {
        let [_, last] = self.ends;
        self.touched = self.touched.max(slot as usize + 1);
        self.records[slot as usize] = PendingFree { ticket, owner: owner.0, waits: true, links: [last, NONE] };
        self.link(last, 1, slot);
        self.ends[1] = slot;
    }

    /// Takes the block in `slot` out.
    pub(super) fn take(&mut self, slot: u32) {
        let [older, younger] = core::mem::replace(&mut self.records[slot as usize], PendingFree::EMPTY).links;
        self.link(older, 1, younger);
        self.link(younger, 0, older);
    }

    /// Sets the link of `from` to `to`; from [`NONE`], the list's own end.
    fn link(&mut self, from: u32, way: usize, to: u32) {
        if from == NONE {
            self.ends[1 - way] = to;
        } else {
            self.records[from as usize].links[way] = to;
        }
    }

    /// The oldest block's slot.
    pub(super) fn first(&self) -> Option<u32> {
        known(self.ends[0])
    }

    /// The next younger one.
    pub(super) fn after(&self, slot: u32) -> Option<u32> {
        known(self.records[slot as usize].links[1])
    }

    /// All slots whose blocks wait, the oldest first.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        core::iter::successors(self.first(), |&slot| self.after(slot))
    }

    /// O(records).
    pub(super) fn check(&self) -> Result<(), Violation> {
        let all = self.records.iter().filter(|record| record.waits).count();
        let mut older = NONE;
        for (count, slot) in self.slots().enumerate() {
            ensure(count < all && self.get(slot).is_some(), "who is in the list waits, once", slot)?;
            ensure(self.records[slot as usize].links[0] == older, "the list's links go both ways", slot)?;
            older = slot;
        }
        ensure(self.slots().count() == all, "who waits is in the list", all)?;
        ensure(self.ends[1] == older, "the list ends with the youngest", older)
    }
}

fn known(slot: u32) -> Option<u32> {
    (slot != NONE).then_some(slot)
}
