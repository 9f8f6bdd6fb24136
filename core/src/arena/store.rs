//! The storage an arena works in, all of it lent by the caller.

use core::marker::PhantomData;
use core::ops::DerefMut;

use super::{Segment, Waiting};
use crate::allocator::Block;
use crate::cache::{Bin, Entry};
use crate::index::{Index, Slot, Slots};

/// The kinds of storage of an arena: slices, vectors, whatever dereferences to slices.
pub trait Store {
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
    type Waiting: DerefMut<Target = [Waiting]>;
}

/// The storage itself.
pub struct Parts<M: Store> {
    /// See [`Store::Slots`]: for the small area (unused with fixed sources) and the large one.
    pub slots: [M::Slots; 2],
    /// See [`Store::Index`]: likewise.
    pub index: [M::Index; 2],
    /// See [`Store::Bins`].
    pub bins: M::Bins,
    /// See [`Store::Entries`].
    pub entries: M::Entries,
    /// See [`Store::Segments`].
    pub segments: M::Segments,
    /// See [`Store::Waiting`]: likewise.
    pub waiting: [M::Waiting; 2],
}

/// Slices for everything: for targets without an allocator.
pub struct LentStore<'a, I>(PhantomData<(&'a mut (), I)>);

impl<'a, I: Index> Store for LentStore<'a, I> {
    type Slots = &'a mut [Slot];
    type Index = I;
    type Bins = &'a mut [Bin];
    type Entries = &'a mut [Entry<Block>];
    type Segments = &'a mut [Segment];
    type Waiting = &'a mut [Waiting];
}
