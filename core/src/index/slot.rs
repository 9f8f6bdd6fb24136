//! Slots: the records of blocks, lent by the caller.
//!
//! Promises upward: 32 bytes a block, two blocks to a cache line; a slot never moves.
//! Asks from below: storage, through [`Slots`]: a slice, a `Vec`, or several slices lent one after another.
//!
//! A slot is the *boundary record* of a live block, of a hole or of the start of a region, and has the size of the free
//! *gap* after it. Free memory has no slots of its own: freeing never needs a slot, a block needs exactly one, and gaps
//! are never adjacent, because removing a record merges the gaps on both sides of it.
//!
//! ```text
//!          | live     |  gap   | live | live   |     gap      |
//! record     s4 .......end.gap...s7 ... s2 .....end.gap.........  next record, or the region's end
//! ```

#[cfg(feature = "bytemuck")]
use core::ops::Deref;
use core::ops::DerefMut;

/// The index of no slot. Slots have indices below [`MAX_SLOTS`].
pub const NONE: u32 = u32::MAX;

/// Maximum number of slots.
///
/// The record of a hole packs two slot indices into 62 bits; one of the 2^31 values of each means none.
pub const MAX_SLOTS: u32 = (1 << 31) - 1;

/// What a slot is the record of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Nothing: the slot is on the list of spare slots.
    Spare,
    /// A live block.
    Live,
    /// Address space that no memory backs.
    Hole,
    /// The start of a region: a record of 0 bytes.
    Region,
}

/// The record of one block and of the free gap after it, 32 bytes.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Pod, bytemuck::Zeroable))]
#[repr(C, align(32))]
pub struct Slot {
    /// End of the block or hole, in granules: the gap starts here. The block itself starts where the gap of the previous
    /// record ends.
    pub(crate) end: u32,
    /// Size of the gap in granules: the record is in the index iff this is not 0.
    pub(crate) gap: u32,
    /// The previous record by address; of a region's record: the last one of the region.
    pub(crate) prev: u32,
    /// The next record by address; of a region's last record: the region's record. Of a spare slot: the next spare slot.
    pub(crate) next: u32,
    /// Links of the index: previous and next in a list, or left and right in a trie. Without a gap: the slot's own
    /// index, twice.
    pub(crate) link: [u32; 2],
    /// The state in the low 2 bits. Above them, by state: the ticket of a live block, never issued twice (2^62 tickets
    /// do not run out); a hole's previous and next hole, 31 bits each; a region's next region.
    pub(crate) name: u64,
}

const _: () = assert!(size_of::<Slot>() == 32, "two slots share a cache line of 64 bytes");

impl Slot {
    /// A spare slot.
    pub const EMPTY: Self = Self { end: 0, gap: 0, prev: 0, next: 0, link: [0; 2], name: 0 };

    #[inline]
    pub(crate) fn state(&self) -> SlotState {
        match self.name & 3 {
            0 => SlotState::Spare,
            1 => SlotState::Live,
            2 => SlotState::Hole,
            _ => SlotState::Region,
        }
    }

    /// End of the gap, in granules: start of the next block or hole, if there is one in the region.
    #[inline]
    pub(crate) fn gap_end(&self) -> u32 {
        self.end + self.gap
    }

    /// The bits above the state: a ticket, or the next region.
    #[inline]
    pub(crate) fn value(&self) -> u64 {
        self.name >> 2
    }

    #[inline]
    pub(crate) fn name_of(state: SlotState, value: u64) -> u64 {
        let low = match state {
            SlotState::Spare => 0,
            SlotState::Live => 1,
            SlotState::Hole => 2,
            SlotState::Region => 3,
        };
        value << 2 | low
    }

    /// The slots of the holes before and after this hole.
    pub(crate) fn hole_links(&self) -> [u32; 2] {
        let wide = |half: u64| if half == u64::from(MAX_SLOTS) { NONE } else { half as u32 };
        let value = self.value();
        [wide(value & u64::from(MAX_SLOTS)), wide(value >> 31)]
    }

    pub(crate) fn set_hole_links(&mut self, [before, after]: [u32; 2]) {
        let narrow = |i: u32| u64::from(i.min(MAX_SLOTS));
        self.name = Self::name_of(SlotState::Hole, narrow(before) | narrow(after) << 31);
    }
}

/// Slots that the caller lends: the range allocator writes its records there.
///
/// The range allocator never writes to the memory that it manages. For every `i < count()`, `slot(i)` and `slot_mut(i)`
/// must always refer to the same slot; `count()` must never shrink.
pub trait Slots {
    /// See [`Slots::view`].
    type View<'a>: Slots
    where
        Self: 'a;

    /// A view of the slots for one operation.
    ///
    /// The view is a slice where possible: a slice's address stays in a register, while a `Vec`'s is loaded again after
    /// each write to a slot.
    fn view(&mut self) -> Self::View<'_>;
    /// Number of slots.
    fn count(&self) -> u32;
    /// The slot `i`; panics if it is out of bounds, which it never is for the range allocator.
    fn slot(&self, i: u32) -> &Slot;
    /// The slot `i`, mutably.
    fn slot_mut(&mut self, i: u32) -> &mut Slot;
}

impl<T: DerefMut<Target = [Slot]>> Slots for T {
    type View<'a>
        = &'a mut [Slot]
    where
        T: 'a;

    #[inline]
    fn view(&mut self) -> &mut [Slot] {
        self
    }

    #[inline]
    fn count(&self) -> u32 {
        self.len().min(MAX_SLOTS as usize) as u32
    }

    #[inline]
    fn slot(&self, i: u32) -> &Slot {
        &self[i as usize]
    }

    #[inline]
    fn slot_mut(&mut self, i: u32) -> &mut Slot {
        &mut self[i as usize]
    }
}

/// Slots in zeroed bytes.
///
/// The bytes are a mapping, or a `Box<[u8]>` that the system clears page by page when it is touched. (The standard
/// library writes the zeros of a box of slots itself, because of their alignment, so all of it is resident at once.)
///
/// The bytes must not move while the slots are in use.
///
/// # Example
/// ```
/// use terrace_core::{GoodFit, Range, SlotBytes};
/// let slots = SlotBytes::new(vec![0u8; SlotBytes::<Vec<u8>>::bytes(1000)]);
/// assert_eq!(slots.len(), 1000);
/// assert!(Range::new(slots, 64, GoodFit::new()).is_ok());
/// ```
#[cfg(feature = "bytemuck")]
#[derive(Debug)]
pub struct SlotBytes<B>(B);

#[cfg(feature = "bytemuck")]
impl<B: DerefMut<Target = [u8]>> SlotBytes<B> {
    /// Number of bytes that are enough for `slots` slots at any alignment of the bytes.
    #[must_use]
    pub const fn bytes(slots: usize) -> usize {
        slots.saturating_add(1).saturating_mul(size_of::<Slot>()) - 1
    }

    /// As many slots as fit into the bytes.
    #[must_use]
    pub fn new(zeros: B) -> Self {
        Self(zeros)
    }
}

#[cfg(feature = "bytemuck")]
impl<B: DerefMut<Target = [u8]>> Deref for SlotBytes<B> {
    type Target = [Slot];

    #[inline]
    fn deref(&self) -> &[Slot] {
        bytemuck::pod_align_to(&self.0).1
    }
}

#[cfg(feature = "bytemuck")]
impl<B: DerefMut<Target = [u8]>> DerefMut for SlotBytes<B> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [Slot] {
        bytemuck::pod_align_to_mut(&mut self.0).1
    }
}
