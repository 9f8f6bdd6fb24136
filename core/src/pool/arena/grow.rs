//! Takes and returns the segments of a [`BucketArena`](super::super::BucketArena).
//!
//! Promises upward: calls the source only when a class has no segment with room, and fails only after it has returned
//! all empty segments and tried again. Returns an unusable region at once.
//! Asks from below: a [`Source`]; records.

use super::records::{NONE, link, unlink};
use super::{BlockRecord, BucketArena, START_ALIGN, SegmentRecord};
use crate::error::Cause;
use crate::source::{Region, Source, SourceError};

impl<S, T, G> BucketArena<S, T, G>
where
    S: Source,
    T: AsRef<[BlockRecord]> + AsMut<[BlockRecord]>,
    G: AsRef<[SegmentRecord]> + AsMut<[SegmentRecord]>,
{
    /// Ensures that a class has a segment with room, and a record for the next block if it needs one.
    pub(super) fn prepare(&mut self, class: u32) -> Result<(), Cause> {
        if !self.has_record(class) {
            self.release_empty();
        }
        if !self.has_record(class) {
            return Err(Cause::OutOfSlots);
        }
        if self.heads[class as usize] == NONE { self.grow(class) } else { Ok(()) }
    }

    /// Whether there is a record for the next block of a class: on the free list of its first segment, or an unused
    /// one.
    fn has_record(&self, class: u32) -> bool {
        let head = self.segments.as_ref().get(self.heads[class as usize] as usize);
        head.is_some_and(|segment| segment.free != NONE) || self.spare_blocks.has(self.blocks.as_ref().len())
    }

    /// Takes a segment for a class: of the usual size, of that size after returning all empty segments, or else of one
    /// block.
    fn grow(&mut self, class: u32) -> Result<(), Cause> {
        let records = |arena: &Self| arena.spare_segments.has(arena.segments.as_ref().len());
        if !records(self) && self.release_empty() == 0 {
            return Err(Cause::OutOfSlots);
        }
        let size = self.size(class);
        // The usual size is a multiple of the block size; the last attempt takes one block and room to align its start.
        let usual = (self.segment_bytes / size * size).max(size);
        for (bytes, reclaim) in [(usual, true), (usual, false), (size, false), (size + START_ALIGN, false)] {
            self.calls += 1;
            match self.source.take(bytes) {
                Ok(region) if self.adopt(region, class) => return Ok(()),
                Ok(region) => {
                    self.calls += 1;
                    self.source.give_back(region).map_err(|_| Cause::SourceFailed)?;
                }
                Err(SourceError::OutOfMemory { .. }) if reclaim => _ = self.release_empty(),
                Err(SourceError::OutOfMemory { .. }) => {}
                Err(_) => return Err(Cause::SourceFailed),
            }
        }
        Err(Cause::OutOfMemory)
    }

    /// Makes a region a segment; returns false if no block fits after its aligned start.
    fn adopt(&mut self, region: Region, class: u32) -> bool {
        let size = self.size(class);
        let align = START_ALIGN.min(1 << size.trailing_zeros());
        let Some(start) = region.base.checked_next_multiple_of(align) else { return false };
        // At most 2^32 - 2 blocks, so that no count equals NONE.
        let capacity = (region.bytes.saturating_sub(start - region.base) / size).min(u64::from(NONE - 1)) as u32;
        let segments = self.segments.as_mut();
        let len = if capacity == 0 { 0 } else { segments.len() };
        if len == 0 {
            return false;
        }
        let Some(record) = self.spare_segments.take(len, |at| segments[at as usize].next) else { return false };
        segments[record as usize] = SegmentRecord { region, start, class, capacity, ..SegmentRecord::default() };
        link(segments, &mut self.heads[class as usize], record);
        self.room[class as usize / 64] |= 1 << (class % 64);
        self.counters.reserved(region.bytes);
        true
    }

    /// Returns all segments without live blocks to the source; returns the bytes given back. O(segments + their
    /// blocks).
    pub(super) fn release_empty(&mut self) -> u64 {
        let mut given = 0;
        for segment in 0..self.spare_segments.fresh {
            let record = self.segments.as_ref()[segment as usize];
            if record.capacity == 0 || record.live != 0 {
                continue;
            }
            self.calls += 1;
            // A segment that the source does not take back stays usable.
            if self.source.give_back(record.region).is_ok() {
                self.forget(segment, record);
                given += record.region.bytes;
            }
        }
        given
    }

    /// Frees the records of a segment that has been returned, and removes the segment from the list of its class.
    fn forget(&mut self, segment: u32, record: SegmentRecord) {
        let (segments, blocks) = (self.segments.as_mut(), self.blocks.as_mut());
        let mut free = record.free;
        while free != NONE {
            let next = blocks[free as usize].next;
            blocks[free as usize].next = self.spare_blocks.put(free);
            free = next;
        }
        let class = record.class as usize;
        unlink(segments, &mut self.heads[class], segment);
        self.room[class / 64] &= !(u64::from(self.heads[class] == NONE) << (class % 64));
        let next = self.spare_segments.put(segment);
        segments[segment as usize] = SegmentRecord { next, ..SegmentRecord::default() };
        self.counters.returned(record.region.bytes);
    }
}
