//! What an arena can be told.

use crate::error::{AllocError, Cause};

/// When freed neighbours become one gap again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coalesce {
    /// With every free: nothing is cached.
    AtOnce,
    /// When memory is needed that is not there.
    #[default]
    Lazy,
    /// Lazily, but at most this many bytes stay unmerged.
    Threshold(u64),
}

/// ArenaSettings of an [`Arena`](super::Arena). All sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaSettings {
    /// Smallest step of size, a power of two. 64: the alignment that kernels and caches want.
    pub granule: u64,
    /// Requests up to this size go through the cache, and (growing sources) to an area of their own; larger ones go
    /// straight to the range.
    pub small: u64,
    /// Most cached blocks of one owner and size.
    pub per_bin: u32,
    /// When freed neighbours are merged.
    pub coalesce: Coalesce,
    /// Permille of the peak in use that may be reserved beyond it before memory is taken from elsewhere in the arena
    /// (pages moved, vacant segments returned) instead of from the source.
    pub slack: u32,
    /// Growing sources: up to how many permille the slack grows, one for every 16 calls to the source; not above
    /// `slack`: it stays. Where moves are rare every page counts; where they go on, a little more memory saves most of
    /// them.
    pub max_slack: u32,
    /// Fixed sources: the segment taken for requests that are smaller.
    pub segment_bytes: u64,
    /// Fixed sources: how many of what it is taken for a segment holds, at least 1. More of them: fewer calls, as what
    /// comes next is often alike; and more reserved where it is not.
    pub segment_multiple: u32,
    /// Fixed sources: how many of what is asked for may be reserved beyond the peak, should that be more than `slack`
    /// is. A pool of a few large blocks otherwise gives a segment back and takes another with every one.
    pub spare_multiple: u32,
    /// Fixed sources: segments are multiples of this, a power of two.
    pub grain: u64,
    /// Growing sources: address space for each area, 0 for all that the granule can express (2^32 - 1 granules).
    pub space: u64,
    /// Whether fresh memory is filled with zeros by the source.
    pub zero_fresh: bool,
}

impl Default for ArenaSettings {
    fn default() -> Self {
        Self::growing()
    }
}

impl ArenaSettings {
    /// For sources that map pages: half a percent beyond the peak, then pages are moved.
    pub const fn growing() -> Self {
        Self {
            granule: 64,
            small: 16 << 10,
            per_bin: 8,
            coalesce: Coalesce::Lazy,
            slack: 5,
            max_slack: 5,
            segment_bytes: 16 << 20,
            segment_multiple: 1,
            spare_multiple: 0,
            grain: 2 << 20,
            space: 0,
            zero_fresh: false,
        }
    }

    /// For sources that give segments: 10 % beyond the peak, then vacant segments are returned.
    pub const fn segments() -> Self {
        Self { slack: 100, ..Self::growing() }
    }

    /// Whether the slack grows with calls: then fewer calls are worth some memory.
    pub(super) fn slack_grows(&self) -> bool {
        self.max_slack > self.slack
    }

    /// Refuses what no arena can work with. `page`: bytes of the source's page, 0 for fixed sources.
    pub(super) fn validate(self, page: u64) -> Result<Self, AllocError> {
        let powers = self.granule.is_power_of_two() && self.grain.is_power_of_two();
        let fits = self.grain >= self.granule && (page == 0 || (page.is_power_of_two() && page >= self.granule));
        if powers && fits && self.segment_bytes > 0 {
            Ok(self)
        } else {
            Err(AllocError::new(Cause::BadRequest, self.granule))
        }
    }

    /// Address space for each area, in whole pages.
    pub(super) fn space_bytes(&self, page: u64) -> u64 {
        let most = (u64::from(u32::MAX) * self.granule) & !(page - 1);
        if self.space == 0 { most } else { self.space.next_multiple_of(page).min(most) }
    }
}
