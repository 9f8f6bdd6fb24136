//! [`Allocator`] for a [`BucketArena`](super::super::BucketArena): statistics and checks too.
//!
//! Promises upward: the allocator contract; `check` verifies every invariant stated in the arena and its records.
//! Asks from below: the arena's own parts.

use super::records::NONE;
use super::{BlockRecord, BucketArena, SegmentRecord};
use crate::allocator::{Allocator, Block, Owner, Request};
use crate::error::{AllocError, Cause, FreeError, Violation, ensure};
use crate::source::Source;
use crate::stats::Stats;

impl<S, T, G> Allocator for BucketArena<S, T, G>
where
    S: Source,
    T: AsRef<[BlockRecord]> + AsMut<[BlockRecord]>,
    G: AsRef<[SegmentRecord]> + AsMut<[SegmentRecord]>,
{
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        let found = request.validate().and_then(|request| self.find(request));
        if found.is_err() {
            self.counters.failed();
        }
        found
    }

    fn free(&mut self, block: Block, _: Owner) -> Result<(), FreeError> {
        let record = self.live(block)?;
        self.put_back(block.slot, record.segment);
        self.counters.freed(block.bytes);
        Ok(())
    }

    /// Succeeds for sizes up to the block's own: the block keeps its size and gets a new ticket.
    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        let refuse = |cause| Err(AllocError::new(cause, bytes));
        if bytes == 0 {
            return refuse(Cause::BadRequest);
        }
        if self.live(block).is_err() {
            return refuse(Cause::NotLive);
        }
        if bytes > block.bytes {
            return refuse(Cause::NoRoom);
        }
        self.ticket += 1;
        self.blocks.as_mut()[block.slot as usize].ticket = self.ticket;
        Ok(Block { ticket: self.ticket, ..block })
    }

    fn trim(&mut self) -> u64 {
        self.release_empty()
    }

    fn stats(&self) -> Stats {
        let usage = self.source.usage();
        let (blocks, segments) = (self.blocks.as_ref(), self.segments.as_ref());
        let metadata = size_of::<Self>() + size_of_val(blocks) + size_of_val(segments);
        Stats {
            capacity: usage.capacity,
            largest_free: self.largest_free(),
            metadata: metadata as u64,
            source_calls: self.calls,
            handles: usage.handles,
            ..self.counters.snapshot()
        }
        .with_bytes(self.allocated_bytes)
    }

    fn check(&self) -> Result<(), Violation> {
        self.counters.check()?;
        let (mut reserved, mut in_use, mut live) = (0, 0, 0);
        for at in 0..self.spare_segments.fresh {
            let segment = &self.segments.as_ref()[at as usize];
            reserved += segment.region.bytes;
            live += u64::from(segment.live);
            self.check_segment(at, segment)?;
        }
        for at in 0..self.spare_blocks.fresh {
            let record = &self.blocks.as_ref()[at as usize];
            if record.ticket != 0 {
                in_use += self.size(self.segments.as_ref()[record.segment as usize].class) - u64::from(record.pad);
                live = live.wrapping_sub(1);
            }
        }
        ensure(live == 0, "bucket arena: records with a ticket = sum of the segments' live blocks", live)?;
        self.check_classes()?;
        let counted = self.counters.snapshot();
        ensure(counted.in_use == in_use, "bucket arena: in_use = sum of the live blocks' bytes", in_use)?;
        ensure(counted.reserved == reserved, "bucket arena: reserved = sum of the segments' regions", reserved)
    }
}

impl<S, T, G> BucketArena<S, T, G>
where
    S: Source,
    T: AsRef<[BlockRecord]> + AsMut<[BlockRecord]>,
    G: AsRef<[SegmentRecord]> + AsMut<[SegmentRecord]>,
{
    fn check_segment(&self, at: u32, segment: &SegmentRecord) -> Result<(), Violation> {
        ensure(segment.live <= segment.carved, "segment: live <= carved", at)?;
        ensure(segment.carved <= segment.capacity, "segment: carved <= capacity", at)?;
        let end = segment.start + self.size(segment.class) * u64::from(segment.capacity);
        let inside = segment.capacity == 0 || end <= segment.region.base + segment.region.bytes;
        ensure(inside, "segment: blocks lie inside the region", at)?;
        let (mut free, mut record) = (0, segment.free);
        while record != NONE && free <= segment.carved {
            let block = &self.blocks.as_ref()[record as usize];
            ensure(block.ticket == 0 && block.segment == at, "segment: its free list holds its free blocks", record)?;
            (free, record) = (free + 1, block.next);
        }
        ensure(free == segment.carved - segment.live, "segment: free list = carved - live", at)
    }

    fn check_classes(&self) -> Result<(), Violation> {
        let segments = self.segments.as_ref();
        let mut linked = 0;
        for (class, head) in self.heads.iter().enumerate() {
            let bit = self.room[class / 64] >> (class % 64) & 1 == 1;
            ensure(bit == (*head != NONE), "class: bit of room set iff the list is not empty", class)?;
            let (mut at, mut prev) = (*head, NONE);
            while at != NONE {
                let segment = &segments[at as usize];
                let belongs = segment.class as usize == class && segment.live < segment.capacity;
                ensure(belongs && segment.prev == prev, "class: the list holds the class's segments with room", at)?;
                linked += 1;
                (prev, at) = (at, segment.next);
            }
        }
        let used = &segments[..self.spare_segments.fresh as usize];
        let room = used.iter().filter(|segment| segment.live < segment.capacity).count();
        ensure(linked == room, "class: every segment with room is in a list", linked)
    }
}
