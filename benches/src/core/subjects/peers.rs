//! Published crates that manage addresses without touching the memory.
//!
//! Promises upward: each is used as its documentation says, in units of the granule.
//! Asks from below: offset-allocator (Aaltonen's two-level bins), range-alloc (gfx-rs), buddy_system_allocator
//! (rCore's frame allocator).

use super::{GRANULE, Subject, capacity};
use buddy_system_allocator::FrameAllocator;
use offset_allocator::{Allocation, Allocator};
use range_alloc::RangeAllocator;
use std::ops::Range;

/// Units that the peers count in, for a request.
#[inline]
fn units(bytes: u32) -> u32 {
    bytes.div_ceil(GRANULE as u32)
}

/// offset-allocator.
pub struct Offset(Allocator<u32>);

impl Offset {
    /// Nodes for every block and the gap behind it, and one to begin with; a few to spare.
    pub fn new(live: u32) -> Self {
        Self(Allocator::with_max_allocs((capacity(live) / GRANULE) as u32, 2 * live + 64))
    }
}

impl Subject for Offset {
    type Handle = Allocation<u32>;

    #[inline]
    fn allocate(&mut self, bytes: u32) -> Option<Allocation<u32>> {
        self.0.allocate(units(bytes))
    }

    #[inline]
    fn free(&mut self, handle: Allocation<u32>) -> bool {
        self.0.free(handle);
        true
    }

    fn start(&self, handle: &Allocation<u32>) -> u64 {
        u64::from(handle.offset) * GRANULE
    }
}

/// range-alloc.
pub struct RangeAlloc(RangeAllocator<u64>);

impl RangeAlloc {
    /// One range of the capacity.
    pub fn new(live: u32) -> Self {
        Self(RangeAllocator::new(0..capacity(live) / GRANULE))
    }
}

impl Subject for RangeAlloc {
    type Handle = Range<u64>;

    #[inline]
    fn allocate(&mut self, bytes: u32) -> Option<Range<u64>> {
        self.0.allocate_range(u64::from(units(bytes))).ok()
    }

    #[inline]
    fn free(&mut self, handle: Range<u64>) -> bool {
        self.0.free_range(handle);
        true
    }

    fn start(&self, handle: &Range<u64>) -> u64 {
        handle.start * GRANULE
    }
}

/// buddy_system_allocator's frames. The user must give the count back: it is part of the handle.
pub struct Buddy(FrameAllocator<33>);

impl Buddy {
    /// Frames of one granule, as many as the capacity has.
    pub fn new(live: u32) -> Self {
        let mut frames = FrameAllocator::new();
        frames.add_frame(0, (capacity(live) / GRANULE) as usize);
        Self(frames)
    }
}

impl Subject for Buddy {
    type Handle = (usize, usize);

    #[inline]
    fn allocate(&mut self, bytes: u32) -> Option<(usize, usize)> {
        let count = units(bytes) as usize;
        self.0.alloc(count).map(|frame| (frame, count))
    }

    #[inline]
    fn free(&mut self, (frame, count): (usize, usize)) -> bool {
        self.0.dealloc(frame, count);
        true
    }

    fn start(&self, &(frame, _): &(usize, usize)) -> u64 {
        frame as u64 * GRANULE
    }
}
