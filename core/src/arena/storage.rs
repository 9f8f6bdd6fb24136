//! The storage an arena works in, all of it lent by the caller.

use core::marker::PhantomData;
use core::ops::DerefMut;

use super::pending::PendingFree;
use crate::allocator::Block;
use crate::cache::{Bin, Entry};
use crate::index::{Index, Slot, Slots};
use crate::range::RegionId;
use crate::source::Region;

/// One region of a fixed source.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Zeroable))]
pub struct Segment {
    pub(super) region: Region,
    /// Its first address in the range's window.
    pub(super) start: u64,
    /// Bytes of it that the range uses: whole granules.
    pub(super) bytes: u64,
    pub(super) id: RegionId,
}

impl Segment {
    /// No segment: all zeros.
    pub const EMPTY: Self =
        Self { region: Region { id: 0, base: 0, bytes: 0 }, start: 0, bytes: 0, id: RegionId::FIRST };

    pub(super) fn end(&self) -> u64 {
        self.start + self.bytes
    }
}

/// The kinds of storage of an arena: slices, vectors, whatever dereferences to slices.
pub trait ArenaStorage {
    /// Records of blocks: one for each block, cached block, hole and segment.
    type Slots: Slots;
    /// The strategy.
    type Index: Index;
    /// Bins of the cache, in fours.
    type Bins: DerefMut<Target = [Bin]>;
    /// Entries of the cache: the most blocks it can hold.
    type Entries: DerefMut<Target = [Entry<Block>]>;
    /// Segments of a fixed source: the most it can take. May be empty for growing sources.
    type Segments: DerefMut<Target = [Segment]>;
    /// Frees that wait for a fence: one record for each slot. May be empty where no fence is ever pending.
    type Pending: DerefMut<Target = [PendingFree]>;
}

/// The storage itself.
pub struct ArenaParts<M: ArenaStorage> {
    /// See [`ArenaStorage::Slots`]: for the small area (unused with fixed sources) and the large one.
    pub slots: [M::Slots; 2],
    /// See [`ArenaStorage::Index`]: likewise.
    pub index: [M::Index; 2],
    /// See [`ArenaStorage::Bins`].
    pub bins: M::Bins,
    /// See [`ArenaStorage::Entries`].
    pub entries: M::Entries,
    /// See [`ArenaStorage::Segments`].
    pub segments: M::Segments,
    /// See [`ArenaStorage::Pending`]: likewise.
    pub pending: [M::Pending; 2],
}

/// Slices for everything: for targets without an allocator.
pub struct LentStorage<'a, I>(PhantomData<(&'a mut (), I)>);

impl<'a, I: Index> ArenaStorage for LentStorage<'a, I> {
    type Slots = &'a mut [Slot];
    type Index = I;
    type Bins = &'a mut [Bin];
    type Entries = &'a mut [Entry<Block>];
    type Segments = &'a mut [Segment];
    type Pending = &'a mut [PendingFree];
}
