//! Settings of an arena.

use crate::error::{AllocError, Cause};
use crate::settings::{GRANULE, POOLED_PER_BUCKET, SEGMENT, SMALL_THRESHOLD, ZERO_FRESH};

/// When freed blocks merge with adjacent gaps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coalesce {
    /// On each free: nothing is cached.
    AtOnce,
    /// When a request finds no gap.
    #[default]
    Lazy,
    /// As [`Lazy`](Self::Lazy), but at most this many bytes are cached.
    Threshold(u64),
}

/// Settings of an [`Arena`](super::Arena). All sizes are in bytes.
///
/// Those that [`settings`](crate::settings) lists have its defaults; the others follow from the kind of source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaSettings {
    /// Granule of sizes and addresses, a power of two. The default suits kernels and cache lines.
    pub granule: u64,
    /// Requests up to this size use the cache, and (with growing sources) a range of their own; larger ones bypass the
    /// cache.
    pub small_threshold: u64,
    /// Most cached blocks of one owner and size.
    pub pooled_per_bucket: u32,
    /// When freed blocks are merged.
    pub coalesce: Coalesce,
    /// Permille of the peak in use that may be reserved above it; beyond that, pages are moved, or vacant segments
    /// returned, before more memory is taken from the source.
    pub slack: u32,
    /// Growing sources: the slack grows by a permille for every 16 calls to the source, up to this (not at all if it is
    /// not above `slack`). With few moves memory stays tight; with many, a little more memory saves most of them.
    pub max_slack: u32,
    /// Growing sources with a capacity: up to this share of it, in permille, pages are mapped and none are moved. 1000: they move
    /// when the source has no more.
    pub move_above: u32,
    /// Growing sources with a capacity: up to this share of it, in permille, memory is ample.
    pub ample: u32,
    /// Growing sources: while memory is ample, a call that maps pages goes on to the next multiple of this, counted from 4 MiB.
    pub ample_multiple: u64,
    /// Fixed sources: the least size of a segment, where the budget permits.
    pub segment: u64,
    /// Fixed sources: a segment has room for so many blocks of the request's size, at least 1, if it is then not larger than
    /// `largest_multiple`. More mean fewer calls if the next requests are alike, and more reserved memory if they are not.
    pub segment_multiple: u32,
    /// Fixed sources: the largest segment with room for several blocks of a request's size, unless more is at most a 128th of what the
    /// source has left.
    pub largest_multiple: u64,
    /// Fixed sources: so many times the request may be reserved above the peak, if that is more than `slack` permits.
    /// Otherwise a pool of a few large blocks would return a segment and take another for each of them.
    pub spare_multiple: u32,
    /// Fixed sources: the sizes of segments are multiples of this, a power of two.
    pub grain: u64,
    /// Growing sources: a call that maps pages goes on to the next address that is a multiple of this, as far as slack and
    /// the hole permit. 1: it maps what the request needs. With the size of a huge page the kernel can use one.
    pub map_multiple: u64,
    /// Growing sources: address space of each range; 0 for the maximum, 2^32 - 1 granules.
    pub space: u64,
    /// Whether the source zeroes fresh memory.
    pub zero_fresh: bool,
}

impl Default for ArenaSettings {
    fn default() -> Self {
        Self::growing()
    }
}

impl ArenaSettings {
    /// For sources that map pages: a slack of half a percent, then pages are moved.
    pub const fn growing() -> Self {
        Self {
            granule: GRANULE.default.number(),
            small_threshold: SMALL_THRESHOLD.default.number(),
            pooled_per_bucket: POOLED_PER_BUCKET.default.number() as u32,
            coalesce: Coalesce::Lazy,
            slack: 5,
            max_slack: 5,
            move_above: 0,
            ample: 0,
            ample_multiple: 1,
            segment: SEGMENT.default.number(),
            segment_multiple: 1,
            largest_multiple: u64::MAX,
            spare_multiple: 0,
            grain: 2 << 20,
            map_multiple: 1,
            space: 0,
            zero_fresh: ZERO_FRESH.default.is_on(),
        }
    }

    /// For sources of whole segments: a slack of 10 %, then vacant segments are returned.
    pub const fn segments() -> Self {
        Self { slack: 100, ..Self::growing() }
    }

    /// What a device does over pages: it maps while the source has memory, and moves pages only then.
    ///
    /// While less than 28 % of the capacity is reserved, a quarter and a little for what is reserved beyond the peak, it maps to
    /// multiples of 10 MiB. Of the seven recorded runs with four times their peak, 0.42 to 1.46 of the driver calls of PyTorch's expandable
    /// segments follow, with memory used to 0.93 to 0.99 (`tests/examples/device_calls.rs`); multiples of 9 MiB take 1.67 of the
    /// calls, and of 16 MiB use memory less well than they.
    ///
    /// Caching is the streams' affair: the arena merges at once, as far as fences allow.
    pub const fn device_pages() -> Self {
        let growth = Self { max_slack: 29, move_above: 1000, ample: 280, ample_multiple: 10 << 20, ..Self::growing() };
        Self { coalesce: Coalesce::AtOnce, ..growth }
    }

    /// What a device does over segments.
    ///
    /// Segments are for three of what is asked for, up to 12 MiB or where that is little beside what is left, and kept up to a fifth
    /// beyond the peak: no more calls than PyTorch's allocator makes over trainings and large blocks, and less memory
    /// (`tests/tests/device_scenarios.rs`); nor is more refused where memory is scarce (`tests/examples/device_calls.rs`), as it
    /// would be with larger segments for several blocks.
    pub const fn device_segments() -> Self {
        let sizes = Self { segment_multiple: 3, largest_multiple: 36 << 20, ..Self::segments() };
        Self { spare_multiple: 2, slack: 200, coalesce: Coalesce::AtOnce, ..sizes }
    }

    /// Whether the slack grows with the calls to the source.
    pub(super) fn slack_grows(&self) -> bool {
        self.max_slack > self.slack
    }

    /// Checks the settings against the source's page size (0 for fixed sources).
    pub(super) fn validate(self, page: u64) -> Result<Self, AllocError> {
        let powers = self.granule.is_power_of_two() && self.grain.is_power_of_two();
        let fits = self.grain >= self.granule && (page == 0 || (page.is_power_of_two() && page >= self.granule));
        if powers && fits && self.segment > 0 && self.map_multiple > 0 {
            Ok(self)
        } else {
            Err(AllocError::new(Cause::BadRequest, self.granule))
        }
    }

    /// Address space of each range, in bytes: whole pages.
    pub(super) fn space_bytes(&self, page: u64) -> u64 {
        let most = (u64::from(u32::MAX) * self.granule) & !(page - 1);
        if self.space == 0 { most } else { self.space.next_multiple_of(page).min(most) }
    }
}
