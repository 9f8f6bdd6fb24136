//! How an arena grows with a fixed source: takes whole segments, and returns vacant ones.
//!
//! Promises upward: reserved bytes stay within the slack of the peak in use, as far as vacant segments can be returned.
//! Asks from below: [`Source::take`] and [`Source::give_back`].
//!
//! Addresses of a source have 64 bits; addresses of a range lie in a window of 2^32 granules. So each segment has a
//! `start` in the window, congruent to its base modulo the grain: an address has the same alignment in both, up to the
//! grain.

use super::pages::NO_SLOT;
use super::storage::{ArenaStorage, Segment};
use super::{Arena, LARGE};
use crate::allocator::{Block, Request};
use crate::error::{AllocError, Cause, Violation, ensure};
use crate::fence::Fence;
use crate::range::{ExtentKind, RangeExtent, RegionId};
use crate::source::{Region, Source, SourceError};

/// What is at most this part of the memory that is left may be taken at once for several blocks, whatever its size.
const SMALL_PART: u64 = 128;

impl<S: Source, F: Fence, M: ArenaStorage> Arena<S, F, M> {
    /// Converts a block of the range: from its address in the window to its address and region in the source.
    #[inline]
    pub(super) fn locate(&self, block: Block, area: usize) -> Block {
        if self.space.is_some() {
            return Block { region: area as u32, ..block };
        }
        let segments = &self.segments[..self.segment_count];
        let behind = segments.partition_point(|segment| segment.start <= block.address);
        let segment = &segments[behind - 1];
        let address = block.address - segment.start + segment.region.base;
        Block { address, region: segment.region.id as u32, ..block }
    }

    pub(super) fn grow_segments(&mut self, request: Request) -> Result<Block, AllocError> {
        let grain = self.settings.grain;
        let least = request.bytes.checked_next_multiple_of(grain).ok_or(self.out_of_memory(request))?;
        let several =
            request.bytes.saturating_mul(self.settings.segment_multiple.into()).checked_next_multiple_of(grain);
        let capacity = self.source.usage().capacity;
        let left = if capacity == 0 { u64::MAX } else { capacity.saturating_sub(self.reserved()) };
        let largest = self.settings.largest_multiple.max(left / SMALL_PART);
        let several = several.filter(|&bytes| bytes <= largest).unwrap_or(least);
        let usual = several.max(least).max(self.settings.segment.next_multiple_of(grain));
        // Where the source has no room for the usual size, a segment is no larger than the request.
        let has_room = usual <= left;
        let bytes = self.fit_budget(least, if has_room { usual } else { least });
        if self.want_segment(bytes) {
            return Err(self.out_of_memory(request)); // not told: `allocate_later` makes a growth of it
        }
        let mut taken = self.take_segment(bytes);
        if taken.is_err() && self.trim_segments(0) {
            taken = self.take_segment(bytes);
        }
        if taken.is_err() && bytes > least {
            taken = self.take_segment(least);
        }
        taken.map_err(|error| self.source_error(error, request))?;
        match self.search(request) {
            // The base of a segment may be misaligned for the request, which then needs more than its size.
            Err(error) if error.cause == Cause::OutOfMemory && request.align > self.settings.granule => {
                let more = least.checked_add(request.align).and_then(|bytes| bytes.checked_next_multiple_of(grain));
                let more = more.ok_or(self.out_of_memory(request))?;
                self.take_segment(more).map_err(|error| self.source_error(error, request))?;
                self.search(request)
            }
            found => found,
        }
    }

    /// Returns the size for a new segment: `usual`, less the bytes by which reserved memory would exceed the peak plus
    /// slack, but at least `least`. Gives vacant segments back to the source first, as long as the limit would be
    /// exceeded.
    fn fit_budget(&mut self, least: u64, usual: u64) -> u64 {
        let wanted = self.counters.recent_peak.max(self.counters.in_use + self.counters.taking + least);
        let slack = (u128::from(wanted) * u128::from(self.settings.slack) / 1000) as u64;
        let budget = wanted.saturating_add(slack.max(least.saturating_mul(self.settings.spare_multiple.into())));
        let over = |arena: &Self| arena.reserved().saturating_add(usual).saturating_sub(budget);
        while over(self) > 0 {
            let Some(at) = self.vacant_for(over(self)) else { break };
            if !self.give_segment(at) {
                break;
            }
        }
        usual.saturating_sub(over(self)).max(least) & !(self.settings.grain - 1)
    }

    /// Index of the smallest vacant segment of at least `bytes`, else of the largest vacant one. O(segments).
    fn vacant_for(&self, bytes: u64) -> Option<usize> {
        let vacant = (0..self.segment_count).filter(|&at| self.is_vacant(at));
        vacant.min_by_key(|&at| {
            let size = self.segments[at].bytes;
            (size < bytes, if size < bytes { u64::MAX - size } else { size })
        })
    }

    fn is_vacant(&self, at: usize) -> bool {
        self.ranges[LARGE].is_vacant(self.segments[at].id)
    }

    /// Whether there are records for another segment.
    pub(super) fn has_place(&self) -> bool {
        self.segment_count < self.segments.len() && self.ranges[LARGE].slots_left() >= 2
    }

    fn take_segment(&mut self, bytes: u64) -> Result<(), SourceError> {
        if !self.has_place() {
            return Err(NO_SLOT);
        }
        let region = self.source.take(bytes)?;
        let zeroed = self.zero_fresh(region.base, region.bytes);
        if zeroed.is_err() && self.source.give_back(region).is_ok() {
            return zeroed;
        }
        self.add_segment(region, zeroed)
    }

    /// Adds a segment that [`Source::take_later`] asked for and that the caller has filled with zeros if settings say so.
    pub(super) fn take_wanted(&mut self, bytes: u64) -> Result<(), SourceError> {
        let region = self.source.take(bytes)?;
        if self.has_place() {
            return self.add_segment(region, Ok(()));
        }
        // If the source refuses it, it stays on its way for good.
        self.counters.taking += if self.source.give_back(region).is_ok() { 0 } else { region.bytes };
        Err(NO_SLOT)
    }

    fn add_segment(&mut self, region: Region, zeroed: Result<(), SourceError>) -> Result<(), SourceError> {
        let bytes = region.bytes & !(self.settings.granule - 1);
        let (at, start) = self.window_for(region, bytes);
        match self.ranges[LARGE].add_region(start, bytes) {
            Ok(id) => {
                self.segments[at..=self.segment_count].rotate_right(1);
                self.segments[at] = Segment { region, start, bytes, id };
                self.segment_count += 1;
                self.peak_segments = self.peak_segments.max(self.segment_count);
                zeroed.inspect_err(|_| self.abandon(LARGE, id, start, bytes))
            }
            Err(_) => {
                let rule =
                    SourceError::Misuse("a region starts at a multiple of the granule and has a place in the window");
                self.source.give_back(region).and(Err(rule))
            }
        }
    }

    /// Zeroes memory fresh from the source, if the settings say so.
    pub(super) fn zero_fresh(&mut self, address: u64, bytes: u64) -> Result<(), SourceError> {
        if self.settings.zero_fresh { self.source.zero(address, bytes) } else { Ok(()) }
    }

    /// Quarantines fresh memory that could neither be zeroed nor returned.
    #[cold]
    pub(super) fn abandon(&mut self, area: usize, region: RegionId, start: u64, bytes: u64) {
        let gap = self.gap_around(area, region, start);
        if gap.is_some_and(|gap| self.ranges[area].claim(&gap, start, bytes).is_ok()) {
            self.counters.quarantined += bytes;
        }
    }

    /// The gap that an address lies in. O(extents).
    pub(super) fn gap_around(&self, area: usize, region: RegionId, address: u64) -> Option<RangeExtent> {
        let around =
            |extent: &RangeExtent| extent.kind == ExtentKind::Free && extent.start <= address && address < extent.end();
        self.ranges[area].extents(region).find(around)
    }

    /// The region's index among the segments, and its start in the window: the lowest that is free. O(segments).
    fn window_for(&self, region: Region, bytes: u64) -> (usize, u64) {
        let grain = self.settings.grain;
        let congruent = |from: u64| from + (region.base.wrapping_sub(from) & (grain - 1));
        let mut start = congruent(0);
        for (at, segment) in self.segments[..self.segment_count].iter().enumerate() {
            if start + bytes <= segment.start {
                return (at, start);
            }
            start = congruent(segment.end());
        }
        (self.segment_count, start)
    }

    /// Bytes at the ends of segments that the range does not use, because they are less than a granule.
    pub(super) fn unused_tails(&self) -> u64 {
        self.segments[..self.segment_count].iter().map(|segment| segment.region.bytes - segment.bytes).sum()
    }

    fn give_segment(&mut self, at: usize) -> bool {
        let segment = self.segments[at];
        // Asks the source first: if it refuses the region, the segment stays in use.
        if !self.is_vacant(at) || self.source.give_back(segment.region).is_err() {
            return false;
        }
        // The removal is never refused: the region is vacant.
        let removed = self.ranges[LARGE].remove_region(segment.id).is_ok();
        self.segments[at..self.segment_count].rotate_left(1);
        self.segment_count -= 1;
        self.segments[self.segment_count] = Segment::EMPTY;
        self.counters.returns += 1;
        removed
    }

    /// Returns vacant segments to the source, as far as `keep` bytes stay reserved; returns whether one went.
    pub(super) fn trim_segments(&mut self, keep: u64) -> bool {
        let mut given = false;
        for at in (0..self.segment_count).rev() {
            let left = self.reserved().saturating_sub(self.segments[at].region.bytes);
            if left >= keep && self.is_vacant(at) {
                given |= self.give_segment(at);
            }
        }
        given
    }

    pub(super) fn check_segments(&self) -> Result<(), Violation> {
        let segments = &self.segments[..self.segment_count];
        for pair in segments.windows(2) {
            ensure(pair[0].end() <= pair[1].start, "segments stand in order in the window, apart", pair[1].start)?;
        }
        let regions = &self.ranges[LARGE];
        ensure(
            segments.iter().all(|segment| regions.is_region(segment.id)),
            "a segment in use is a region of the range",
            0u32,
        )
    }
}
