//! The storage of an arena, all of which the caller lends.

use core::marker::PhantomData;
use core::ops::DerefMut;

use super::pending::PendingFree;
use crate::allocator::Block;
use crate::cache::{Bin, Entry};
use crate::index::{Index, Slot, Slots};
use crate::range::RegionId;
use crate::source::Region;

/// The record of a segment: a region of a fixed source.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Zeroable))]
pub struct Segment {
    pub(super) region: Region,
    /// First address of the segment in the window of the range.
    pub(super) start: u64,
    /// Number of bytes that the range uses: whole granules.
    pub(super) bytes: u64,
    pub(super) id: RegionId,
}

impl Segment {
    /// An unused record: all zeros.
    pub const EMPTY: Self =
        Self { region: Region { id: 0, base: 0, bytes: 0 }, start: 0, bytes: 0, id: RegionId::FIRST };

    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// The types of an arena's storage: slices, vectors, or anything that dereferences to slices.
pub trait ArenaStorage {
    /// Records of blocks: one for each block, cached block, hole and segment.
    type Slots: Slots;
    /// The index of gaps: a fit strategy.
    type Index: Index;
    /// Bins of the cache, in sets of four.
    type Bins: DerefMut<Target = [Bin]>;
    /// Entries of the cache: one for each block that it may hold.
    type Entries: DerefMut<Target = [Entry<Block>]>;
    /// Records of segments: one for each that a fixed source may give. May be empty for growing sources.
    type Segments: DerefMut<Target = [Segment]>;
    /// Records of pending frees: one for each slot. May be empty if no ticket is ever pending.
    type Pending: DerefMut<Target = [PendingFree]>;
}

/// The storage of an arena.
pub struct ArenaParts<M: ArenaStorage> {
    /// See [`ArenaStorage::Slots`]: for the small range (unused with fixed sources) and the large one.
    pub slots: [M::Slots; 2],
    /// See [`ArenaStorage::Index`]: for the small range and the large one.
    pub index: [M::Index; 2],
    /// See [`ArenaStorage::Bins`].
    pub bins: M::Bins,
    /// See [`ArenaStorage::Entries`].
    pub entries: M::Entries,
    /// See [`ArenaStorage::Segments`].
    pub segments: M::Segments,
    /// See [`ArenaStorage::Pending`]: for the small range and the large one.
    pub pending: [M::Pending; 2],
}

/// Storage in lent slices, for targets without an allocator.
pub struct LentStorage<'a, I>(PhantomData<(&'a mut (), I)>);

impl<'a, I: Index> ArenaStorage for LentStorage<'a, I> {
    type Slots = &'a mut [Slot];
    type Index = I;
    type Bins = &'a mut [Bin];
    type Entries = &'a mut [Entry<Block>];
    type Segments = &'a mut [Segment];
    type Pending = &'a mut [PendingFree];
}
