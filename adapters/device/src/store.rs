//! Storage for the records of arenas, on the heap.
//!
//! Promises upward: all records are allocated once, zeroed, and take no physical memory before use; none are added.
//! Asks from below: the global allocator.

use std::marker::PhantomData;
use terrace_core::arena::{ArenaParts, ArenaStorage, PendingFree};
use terrace_core::{Bin, Block, Branch, Entry, Index, Segment, SlotBytes};

/// Storage that keeps all records of an arena in boxed slices.
pub struct HeapStore<I>(PhantomData<I>);

impl<I: Index> ArenaStorage for HeapStore<I> {
    type Slots = SlotBytes<Box<[u8]>>;
    type Index = I;
    type Bins = Box<[Bin]>;
    type Entries = Box<[Entry<Block>]>;
    type Segments = Box<[Segment]>;
    type Pending = Box<[PendingFree]>;
}

/// Number of records of each kind that an arena gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArenaCapacity {
    /// Records for blocks, cached blocks, holes and segments together, in each of the arena's two areas.
    pub slots: usize,
    /// Records for pairs of owner and size whose blocks can be cached.
    pub bins: usize,
    /// Records for blocks that are cached.
    pub entries: usize,
    /// Records for segments, of a source without pages.
    pub segments: usize,
}

impl Default for ArenaCapacity {
    /// 2^18 slots in each area (8 MiB for slots, 2 MiB for branches), 16 Ki cached blocks of 4 Ki pairs of owner and
    /// size, 4 Ki segments.
    fn default() -> Self {
        Self { slots: 1 << 18, bins: 1 << 12, entries: 1 << 14, segments: 1 << 12 }
    }
}

/// Allocates storage for an arena; `index` makes the strategy's index from one [`Branch`] per slot.
///
/// # Example
/// ```
/// use terrace_core::{Arena, BestFit, FixedSource, NoFence};
/// use terrace_device::store::{ArenaCapacity, heap_parts};
/// let mut memory = vec![0u64; 1 << 16];
/// let parts = heap_parts(ArenaCapacity::default(), BestFit::new);
/// let arena = Arena::new(FixedSource::new(&mut memory), NoFence, parts, terrace_core::arena::ArenaSettings::segments());
/// assert!(arena.is_ok());
/// ```
pub fn heap_parts<I: Index>(room: ArenaCapacity, index: impl Fn(Box<[Branch]>) -> I) -> ArenaParts<HeapStore<I>> {
    ArenaParts {
        slots: [(); 2].map(|()| slots(room.slots)),
        index: [(); 2].map(|()| index(bytemuck::zeroed_slice_box(room.slots))),
        bins: vec![Bin::EMPTY; room.bins].into(),
        entries: vec![Entry::EMPTY; room.entries].into(),
        segments: bytemuck::zeroed_slice_box(room.segments),
        pending: [(); 2].map(|()| bytemuck::zeroed_slice_box(room.slots)),
    }
}

fn slots(count: usize) -> SlotBytes<Box<[u8]>> {
    SlotBytes::new(bytemuck::zeroed_slice_box(SlotBytes::<Box<[u8]>>::bytes(count)))
}
