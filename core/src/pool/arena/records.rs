//! Records of [`BucketArena`](super::super::BucketArena): blocks and segments in lent slices, linked by index.
//!
//! Promises upward: taking a record from a list and putting it back is O(1) (but for a segment's whole list of free
//! blocks, which is O(blocks)); records are never moved.
//! Asks from below: nothing.
//!
//! Invariants:
//! - a block record is in exactly one of: use (`ticket != 0`), the free list of its segment, the spare list, the tail
//!   never used (from `fresh` on)
//! - a segment record is in use iff `capacity != 0`; in the list of its class iff it has room (`live < capacity`)

use crate::source::Region;

/// End of a list.
pub(super) const NONE: u32 = u32::MAX;

/// One block: live, or free for reuse by its segment. 32 bytes.
///
/// Opaque to callers, which only lend room for it.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockRecord {
    /// First address of the block's place in its segment.
    pub(super) place: u64,
    /// The ticket it was handed out with; 0 iff it is not live.
    pub(super) ticket: u64,
    /// Bytes skipped at the front of the place for the alignment asked.
    pub(super) pad: u32,
    /// Segment the place lies in.
    pub(super) segment: u32,
    /// Next in the list it is in.
    pub(super) next: u32,
}

/// One segment: a region of the source cut into blocks of one class.
#[derive(Clone, Copy, Debug)]
pub struct SegmentRecord {
    /// As the source gave it.
    pub(super) region: Region,
    /// First address of block 0: the region's base, aligned.
    pub(super) start: u64,
    /// Size class of all its blocks.
    pub(super) class: u32,
    /// Blocks that fit; 0 iff the record is not in use.
    pub(super) capacity: u32,
    /// Blocks cut so far: `carved <= capacity`.
    pub(super) carved: u32,
    /// Blocks handed out: `live <= carved`.
    pub(super) live: u32,
    /// Free list: the `carved - live` blocks cut and not handed out.
    pub(super) free: u32,
    /// Neighbours in the list of segments of this class with room (`next` also in the list of unused records).
    pub(super) prev: u32,
    pub(super) next: u32,
}

impl Default for SegmentRecord {
    fn default() -> Self {
        let region = Region { id: 0, base: 0, bytes: 0 };
        Self { region, start: 0, class: 0, capacity: 0, carved: 0, live: 0, free: NONE, prev: NONE, next: NONE }
    }
}

/// A stack of unused records, and behind it the part of the slice that was never used.
#[derive(Clone, Copy, Debug)]
pub(super) struct FreeRecords {
    /// Top of the stack of records given back.
    head: u32,
    /// Records from here on were never used.
    pub(super) fresh: u32,
}

impl FreeRecords {
    pub(super) const EMPTY: Self = Self { head: NONE, fresh: 0 };

    /// Whether a slice of `len` records has one to take.
    pub(super) fn has(&self, len: usize) -> bool {
        // NONE is no index, so a slice longer than 2^32 - 1 is used up to there.
        self.head != NONE || ((self.fresh as usize) < len && self.fresh != NONE)
    }

    /// Takes a record out of a slice of `len`; `next_of` reads a record's link.
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

    /// Puts a record back; returns what its link must become.
    pub(super) fn put(&mut self, record: u32) -> u32 {
        core::mem::replace(&mut self.head, record)
    }
}

/// Puts a segment at the front of its class's list.
pub(super) fn link(segments: &mut [SegmentRecord], head: &mut u32, segment: u32) {
    if *head != NONE {
        segments[*head as usize].prev = segment;
    }
    let record = &mut segments[segment as usize];
    (record.prev, record.next) = (NONE, *head);
    *head = segment;
}

/// Takes a segment out of its class's list.
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
