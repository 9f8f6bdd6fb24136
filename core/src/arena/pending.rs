//! A queue of freed blocks whose fence is pending: a linked list of records, one record for each slot.
//!
//! Promises upward: adding, finding and removing a block in O(1); there is always room, because each pending block has a
//! slot; the list is in the order in which blocks were added.
//! Asks from below: one record for each slot of the range, unless no fence is ever pending.

use core::ops::DerefMut;

use crate::allocator::Owner;
use crate::error::{Violation, ensure};
use crate::index::NONE;

/// A record of a pending free. Records are indexed by the block's slot.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Zeroable))]
pub struct PendingFree {
    /// The ticket of the owner's fence.
    ticket: u64,
    /// The owner that freed the block.
    owner: u32,
    /// Whether the slot's block is pending; false in a record of zeros.
    waits: bool,
    /// Slots of the next older and the next newer block; [`NONE`] at the list's ends. Meaningless if the block is not
    /// pending.
    links: [u32; 2],
}

impl PendingFree {
    /// A record without a pending free.
    pub const EMPTY: Self = Self { ticket: 0, owner: 0, waits: false, links: [0; 2] };
}

/// The queue of the pending blocks of one range.
#[derive(Clone, Debug)]
pub(super) struct PendingQueue<W> {
    records: W,
    /// Slots of the oldest and the newest block; [`NONE`] when the queue is empty.
    ends: [u32; 2],
    /// Records at this index and above were never used.
    touched: usize,
    /// How many blocks of owners whose last bits are an index are in the queue, and how many of all owners.
    owners: [u32; OWNERS],
    count: u32,
    /// How many were added since the fences were last asked.
    added: u32,
}

/// Counts of owners; those of two that share one look as one to [`PendingQueue::has`].
const OWNERS: usize = 32;

impl<W: DerefMut<Target = [PendingFree]>> PendingQueue<W> {
    pub(super) fn new(records: W) -> Self {
        Self { records, ends: [NONE; 2], touched: 0, owners: [0; OWNERS], count: 0, added: 0 }
    }

    /// Number of slots that have a record.
    pub(super) fn room(&self) -> usize {
        self.records.len()
    }

    /// Bytes of records up to the last one that was ever used: the rest of zeroed storage is not resident.
    pub(super) fn bytes(&self) -> u64 {
        (self.touched * size_of::<PendingFree>()) as u64
    }

    /// The owner that freed the block in this slot, and the ticket of its fence, if the block is pending.
    pub(super) fn get(&self, slot: u32) -> Option<(Owner, u64)> {
        let record = self.records.get(slot as usize)?;
        record.waits.then_some((Owner(record.owner), record.ticket))
    }

    /// Adds the block in `slot`, which must not be pending, as the newest.
    pub(super) fn push(&mut self, slot: u32, owner: Owner, ticket: u64) {
        let [_, last] = self.ends;
        self.touched = self.touched.max(slot as usize + 1);
        self.records[slot as usize] = PendingFree { ticket, owner: owner.0, waits: true, links: [last, NONE] };
        self.link(last, 1, slot);
        self.ends[1] = slot;
        self.owners[owner.0 as usize % OWNERS] += 1;
        self.count += 1;
        self.added = self.added.saturating_add(1);
    }

    /// Removes the block in `slot`.
    pub(super) fn take(&mut self, slot: u32) {
        let record = core::mem::replace(&mut self.records[slot as usize], PendingFree::EMPTY);
        self.owners[record.owner as usize % OWNERS] -= 1;
        self.count -= 1;
        let [older, younger] = record.links;
        self.link(older, 1, younger);
        self.link(younger, 0, older);
    }

    /// Sets the link of `from` to its older (`way` 0) or newer (1) block; if `from` is [`NONE`], sets the queue's
    /// newest (`way` 0) or oldest (1) block instead.
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

    /// The slot of the next newer block.
    pub(super) fn after(&self, slot: u32) -> Option<u32> {
        known(self.records[slot as usize].links[1])
    }

    /// The slots of all pending blocks, the oldest first.
    pub(super) fn slots(&self) -> impl Iterator<Item = u32> {
        core::iter::successors(self.first(), |&slot| self.after(slot))
    }

    /// False if no block of the owner is in the queue. O(1).
    #[inline]
    pub(super) fn has(&self, owner: Owner) -> bool {
        self.owners[owner.0 as usize % OWNERS] > 0
    }

    /// False if no block of another owner is in the queue. O(1).
    pub(super) fn has_others(&self, owner: Owner) -> bool {
        self.owners[owner.0 as usize % OWNERS] < self.count
    }

    /// How many blocks were added since [`asked`](Self::asked) was last called.
    pub(super) fn added(&self) -> u32 {
        self.added
    }

    /// Notes that the fences are being asked.
    pub(super) fn asked(&mut self) {
        self.added = 0;
    }

    /// Checks the list. O(records).
    pub(super) fn check(&self) -> Result<(), Violation> {
        let all = self.records.iter().filter(|record| record.waits).count();
        let mut older = NONE;
        for (count, slot) in self.slots().enumerate() {
            ensure(count < all && self.get(slot).is_some(), "who is in the list waits, once", slot)?;
            ensure(self.records[slot as usize].links[0] == older, "the list's links go both ways", slot)?;
            older = slot;
        }
        ensure(self.slots().count() == all && all == self.count as usize, "who waits is in the list", all)?;
        ensure(self.owners.iter().sum::<u32>() == self.count, "each block in the list has an owner", all)?;
        ensure(self.ends[1] == older, "the list ends with the youngest", older)
    }
}

fn known(slot: u32) -> Option<u32> {
    (slot != NONE).then_some(slot)
}
