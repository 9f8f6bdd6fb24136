//! Records of the blocks and segments of a [`BucketArena`](super::super::BucketArena), in lent slices, linked by index.
//!
//! Promises upward: removing a record from a list or adding one is O(1) (freeing the whole free list of a segment is
//! O(blocks)); a record never moves.
//! Asks from below: nothing.
//!
//! Invariants:
//! - a block record is exactly one of: live (`ticket != 0`), on the free list of its segment, on the stack of unused
//!   records, never used (from `fresh` on)
//! - a segment record is in use iff `capacity != 0`; in the list of its class iff it has room (`live < capacity`)

use crate::source::Region;

/// The index that ends a list.
pub(super) const NONE: u32 = u32::MAX;

/// The record of one block: live, or on the free list of its segment. 32 bytes.
///
/// Opaque to callers, which only lend room for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockRecord {
    /// First address of the block's place in its segment, before any padding.
    pub(super) place: u64,
    /// The ticket of the block's handle; 0 iff the block is not live.
    pub(super) ticket: u64,
    /// Padding at the front of the place, for the alignment of the request, in bytes.
    pub(super) pad: u32,
    /// Index of the segment that contains the place.
    pub(super) segment: u32,
    /// Index of the next record in the list that this record is in.
    pub(super) next: u32,
}

/// The record of one segment: a region of the source, divided into blocks of one class.
#[derive(Clone, Copy, Debug)]
pub struct SegmentRecord {
    /// The region, as the source returned it.
    pub(super) region: Region,
    /// First address of block 0: the region's base, aligned.
    pub(super) start: u64,
    /// Size class of all blocks of the segment.
    pub(super) class: u32,
    /// Number of blocks that fit into the segment; 0 iff the record is unused.
    pub(super) capacity: u32,
    /// Number of blocks carved so far: `carved <= capacity`.
    pub(super) carved: u32,
    /// Number of live blocks: `live <= carved`.
    pub(super) live: u32,
    /// Head of the free list: the `carved - live` blocks that were carved and are not live.
    pub(super) free: u32,
    /// Neighbours in the list of the class's segments with room, by index (`next` also in the list of unused records).
    pub(super) prev: u32,
    pub(super) next: u32,
}

impl Default for SegmentRecord {
    fn default() -> Self {
        let region = Region { id: 0, base: 0, bytes: 0 };
        Self { region, start: 0, class: 0, capacity: 0, carved: 0, live: 0, free: NONE, prev: NONE, next: NONE }
    }
}

/// Unused records of a slice: a stack of freed ones, and the tail that was never used.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeRecords {
    /// Index of the top of the stack of freed records.
    head: u32,
    /// Records at this index and above were never used.
    pub(super) fresh: u32,
}

impl FreeRecords {
    pub(super) const EMPTY: Self = Self { head: NONE, fresh: 0 };

    /// Whether a slice of `len` records has an unused one.
    pub(super) fn has(&self, len: usize) -> bool {
        // NONE is no index: of a longer slice only the first 2^32 - 1 records are used.
        self.head != NONE || ((self.fresh as usize) < len && self.fresh != NONE)
    }

    /// Takes an unused record of a slice of `len` records; `next_of` reads a record's link.
    pub(super) fn take(&mut self, len: usize, next_of: impl FnOnce(u32) -> u32) -> Option<u32> {
        if self.head != NONE {
            let taken = self.head;
            self.head = next_of(taken);
            return Some(taken);
        }
        let taken = self.has(len).then_some(self.fresh)?;
        self.fresh += 1;
        Some(taken)
    }

    /// Pushes a freed record; returns the link that the caller must store in it.
    pub(super) fn put(&mut self, record: u32) -> u32 {
        core::mem::replace(&mut self.head, record)
    }
}

/// Adds a segment at the front of its class's list.
pub(super) fn link(segments: &mut [SegmentRecord], head: &mut u32, segment: u32) {
    if *head != NONE {
        segments[*head as usize].prev = segment;
    }
    let record = &mut segments[segment as usize];
    (record.prev, record.next) = (NONE, *head);
    *head = segment;
}

/// Removes a segment from its class's list.
pub(super) fn unlink(segments: &mut [SegmentRecord], head: &mut u32, segment: u32) {
    let SegmentRecord { prev, next, .. } = segments[segment as usize];
    if prev == NONE {
        *head = next;
    } else {
        segments[prev as usize].next = next;
    }
    if next != NONE {
        segments[next as usize].prev = prev;
    }
}
