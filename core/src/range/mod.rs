//! The range allocator: it allocates ranges of addresses, of memory that the CPU need not be able to access.
//!
//! Promises upward: blocks of any size at any power-of-two alignment from any number of regions; adjacent gaps merge at
//! once; stale and foreign handles are always detected; freeing never needs a slot; every call takes the time that its
//! strategy states, and writes only to slots and branches that the caller lends.
//! Asks from below: slots ([`Slots`]), and an [`Index`] over them.
//!
//! ```text
//! region      +--------+-----------+------+------+--------------+---------+     every record has the gap after it,
//!             | live   | gap       | live | live | hole         | gap     |     so gaps are never adjacent
//! records   R   s4                   s7     s2     s9                           a ring: R <-> s4 <-> s7 <-> s2 <-> s9 <-> R
//! ```
//!
//! A *hole* is address space that no memory backs; only regions of growing sources have holes. Holes are never adjacent.

#![forbid(unsafe_code)]

mod blocks;
mod check;
mod holes;

pub use holes::{ExtentKind, RangeExtent};

use crate::allocator::{Allocator, Block, Owner, Request};
use crate::error::{AllocError, Cause, FreeError, Violation};
use crate::index::{GoodFit, Index, NONE, Slot, SlotState, Slots};
use crate::stats::Stats;

/// An allocator of address ranges, over lent slots, in a window of 2^32 granules from a base.
///
/// # Example
/// ```
/// use terrace_core::{Allocator, GoodFit, Owner, Range, Request, Slot};
/// let mut slots = [Slot::EMPTY; 64];
/// let mut range = Range::new(&mut slots[..], 512, GoodFit::new())?;
/// range.add_region(0x1000_0000, 1 << 20)?;
/// let block = range.allocate(Request::new(10_000).align(4096))?;
/// assert_eq!((block.bytes, block.address % 4096), (10_240, 0));
/// range.free(block, Owner(0))?;
/// assert!(range.free(block, Owner(0)).is_err(), "a double free is refused");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Range<S, I = GoodFit> {
    slots: S,
    index: I,
    /// Address of granule 0.
    base: u64,
    /// log2 of the granule in bytes. All other sizes and addresses below are in granules.
    granule: u32,
    /// Slot of the newest hole, the head of the list of holes.
    holes: u32,
    /// First slot in the list of spare slots, which are linked by `next`.
    spare: u32,
    /// Number of slots in the list of spare slots.
    spares: u32,
    /// Slots at this index and above were never used.
    fresh: u32,
    /// Slot of the newest region, the head of the list of regions, which are linked by the `value` of their slots.
    regions: u32,
    /// The last ticket issued; and in `before`, the ticket before the first that this range issued.
    ticket: u64,
    before: u64,
    /// Difference between one ticket and the next.
    step: u64,
    totals: Totals,
}

/// Sums over all regions, in granules; `allocated` ever, growth by resizes included. Other figures are computed: the free
/// memory is `backed - live`, and the allocations are the tickets issued less `renewals`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    live: u64,
    peak_live: u64,
    allocated: u64,
    /// Granules backed by memory: the sum of live blocks and gaps.
    backed: u64,
    peak_backed: u64,
    holes: u64,
    live_blocks: u64,
    peak_live_blocks: u64,
    /// Number of tickets issued for blocks that were live: by resizes and by [`Range::rename`].
    renewals: u64,
    failed: u64,
}

/// The id of a region in a [`Range`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Zeroable))]
pub struct RegionId(u32);

impl RegionId {
    /// The id 0, which unused records have; a region may have it too.
    pub(crate) const FIRST: Self = Self(0);
}

impl<S: Slots, I: Index> Range<S, I> {
    /// An allocator without regions, for addresses from 0 to 2^32 granules.
    ///
    /// `granule` is in bytes, a power of two: the sizes of blocks are multiples of it. `index` is the strategy.
    ///
    /// # Errors
    /// [`Cause::BadRequest`] when the granule is not a power of two; [`Cause::OutOfSlots`] when the strategy has not
    /// been lent a branch for each slot.
    pub fn new(slots: S, granule: u64, index: I) -> Result<Self, AllocError> {
        if !granule.is_power_of_two() {
            return Err(AllocError::new(Cause::BadRequest, granule));
        }
        if index.room() < slots.count() {
            return Err(AllocError::new(Cause::OutOfSlots, 0));
        }
        Ok(Self {
            slots,
            index,
            base: 0,
            granule: granule.ilog2(),
            holes: NONE,
            spare: NONE,
            spares: 0,
            fresh: 0,
            regions: NONE,
            ticket: 0,
            before: 0,
            step: 1,
            totals: Totals::default(),
        })
    }

    /// A range whose addresses start at `base`, rounded down to the granule, instead of 0.
    pub fn based(self, base: u64) -> Self {
        Self { base: base & !((1 << self.granule) - 1), ..self }
    }

    /// A range that numbers its blocks with every `step`-th ticket after `last`.
    ///
    /// Ranges with the same `step` and different `last` below it never issue the same ticket. A `step` of 0 counts as
    /// 1. The range must not have allocated yet: allocations are counted from this call on.
    pub fn with_tickets(self, last: u64, step: u64) -> Self {
        Self { ticket: last, before: last, step: step.max(1), ..self }
    }

    /// Adds a region of memory at `address`: all of it becomes free.
    ///
    /// Regions are never merged with each other.
    ///
    /// # Errors
    /// [`Cause::BadRequest`] when address or size are not multiples of the granule, or the size is 0;
    /// [`Cause::TooLarge`] outside the window; [`Cause::OutOfSlots`]. Caller must ensure that the region overlaps no
    /// other.
    pub fn add_region(&mut self, address: u64, bytes: u64) -> Result<RegionId, AllocError> {
        let mask = (1u64 << self.granule) - 1;
        let from = address.checked_sub(self.base).ok_or(AllocError::new(Cause::TooLarge, bytes))?;
        if bytes == 0 || (from | bytes) & mask != 0 {
            return Err(AllocError::new(Cause::BadRequest, bytes));
        }
        let to = from.checked_add(bytes).filter(|to| to >> self.granule <= u64::from(u32::MAX));
        let end = (to.ok_or(AllocError::new(Cause::TooLarge, bytes))? >> self.granule) as u32;
        let start = (from >> self.granule) as u32;
        let i = self.take_slot().ok_or(AllocError::new(Cause::OutOfSlots, bytes))?;
        let name = Slot::name_of(SlotState::Region, u64::from(self.regions));
        *self.slots.slot_mut(i) = Slot { end: start, gap: 0, prev: i, next: i, link: [i; 2], name };
        self.regions = i;
        self.count_backed(end - start);
        self.index.update(&mut self.slots, i, start, end - start);
        Ok(RegionId(i))
    }

    /// Adds a region of address space that no memory backs yet: one hole.
    ///
    /// # Errors
    /// As [`Range::add_region`].
    pub fn add_space(&mut self, address: u64, bytes: u64) -> Result<RegionId, AllocError> {
        if self.slots_left() < 2 {
            return Err(AllocError::new(Cause::OutOfSlots, bytes));
        }
        let peak = self.totals.peak_backed;
        let region = self.add_region(address, bytes)?;
        let all = self.gap(region.0).ok_or(AllocError::new(Cause::BadRequest, bytes))?;
        self.decommit(&all, all.start, all.bytes)?;
        self.totals.peak_backed = peak;
        Ok(region)
    }

    /// Removes a region without live blocks.
    ///
    /// # Errors
    /// [`FreeError::Stale`] when the region has a live block; [`FreeError::Foreign`] when it is no region of this
    /// range.
    pub fn remove_region(&mut self, region: RegionId) -> Result<(), FreeError> {
        let i = region.0;
        if !self.is_region(region) {
            return Err(FreeError::Foreign { address: u64::from(i) });
        }
        if !self.is_vacant(region) {
            return Err(FreeError::Stale { address: self.address(self.slots.slot(i).end) });
        }
        while self.slots.slot(i).next != i {
            self.drop_hole(self.slots.slot(i).next);
        }
        let record = *self.slots.slot(i);
        self.totals.backed -= u64::from(record.gap);
        self.index.update(&mut self.slots, i, record.end, 0);
        self.unlink_region(i, record.value() as u32);
        Ok(())
    }

    /// Unlinks a region's record from the list of regions. O(regions).
    fn unlink_region(&mut self, region: u32, after: u32) {
        if self.regions == region {
            self.regions = after;
        } else {
            let mut at = self.regions;
            while self.slots.slot(at).value() != u64::from(region) {
                at = self.slots.slot(at).value() as u32;
            }
            self.slots.slot_mut(at).name = Slot::name_of(SlotState::Region, u64::from(after));
        }
        self.give_slot(region);
    }

    /// Whether this is the id of a region of this range.
    pub(crate) fn is_region(&self, region: RegionId) -> bool {
        region.0 < self.fresh && self.slots.slot(region.0).state() == SlotState::Region
    }

    /// Whether a region has no live block.
    ///
    /// O(1) without holes; with holes, O(holes before the first live block).
    pub fn is_vacant(&self, region: RegionId) -> bool {
        let mut at = self.slots.slot(region.0).next;
        while at != region.0 {
            let record = self.slots.slot(at);
            if record.state() == SlotState::Live {
                return false;
            }
            at = record.next;
        }
        true
    }

    /// Bytes of a granule.
    pub fn granule(&self) -> u64 {
        1 << self.granule
    }

    /// Number of slots that are still available.
    pub fn slots_left(&self) -> u32 {
        self.slots.count().min(self.index.room()) - self.used_slots()
    }

    /// Number of records: blocks, holes and regions.
    fn used_slots(&self) -> u32 {
        self.fresh - self.spares
    }

    /// The slots, so that the caller can lend more. Caller must not change those lent before.
    pub fn slots_mut(&mut self) -> &mut S {
        &mut self.slots
    }

    /// Returns the slots to the caller.
    pub fn into_slots(self) -> S {
        self.slots
    }

    /// Bytes backed by memory, live or free.
    pub fn backed(&self) -> u64 {
        self.totals.backed << self.granule
    }

    fn count_backed(&mut self, granules: u32) {
        let t = &mut self.totals;
        t.backed += u64::from(granules);
        t.peak_backed = t.peak_backed.max(t.backed);
    }

    /// Whether a block is live: its handle has the current ticket of its slot.
    pub fn is_live(&self, block: &Block) -> bool {
        self.live(block).is_ok()
    }

    /// The current handle of the live block in a slot.
    pub(crate) fn block_at(&self, slot: u32) -> Option<Block> {
        let record =
            (slot < self.fresh).then(|| self.slots.slot(slot)).filter(|record| record.state() == SlotState::Live)?;
        let size = self.size(slot);
        let (address, bytes) = (self.address(record.end - size), self.bytes(size));
        Some(Block { address, bytes, slot, region: 0, ticket: record.value() })
    }

    /// The recorded size of a live block, in bytes.
    ///
    /// # Errors
    /// [`FreeError`] when the block is not live.
    pub fn size_of(&self, block: &Block) -> Result<u64, FreeError> {
        self.live(block).map(|i| self.bytes(self.size(i)))
    }

    /// The recorded handle of a live block, found by its slot and ticket.
    ///
    /// The caller may have altered the other fields of `block`.
    ///
    /// # Errors
    /// [`FreeError`] when the block is not live.
    pub fn recorded(&self, block: &Block) -> Result<Block, FreeError> {
        let slot = self.live(block)?;
        self.block_at(slot).ok_or_else(|| self.not_live(block))
    }

    /// Size in granules, rounded up, if it fits into 32 bits.
    #[inline]
    fn granules(&self, bytes: u64) -> Option<u32> {
        let mask = (1u64 << self.granule) - 1;
        u32::try_from(bytes.checked_add(mask)? >> self.granule).ok()
    }

    #[inline]
    fn address(&self, place: u32) -> u64 {
        self.base + (u64::from(place) << self.granule)
    }

    #[inline]
    fn bytes(&self, granules: u32) -> u64 {
        u64::from(granules) << self.granule
    }

    /// The slot of a live block, if its handle is current.
    #[inline]
    fn live(&self, block: &Block) -> Result<u32, FreeError> {
        // Live blocks have tickets above 0; slots at `fresh` and above are not read, since they have arbitrary
        // contents.
        if block.slot < self.fresh {
            let slot = self.slots.slot(block.slot);
            if slot.state() == SlotState::Live && slot.value() == block.ticket {
                return Ok(block.slot);
            }
        }
        Err(self.not_live(block))
    }

    #[cold]
    fn not_live(&self, block: &Block) -> FreeError {
        let address = block.address;
        let given = block.slot < self.fresh && (1..=self.ticket).contains(&block.ticket);
        if given { FreeError::Stale { address } } else { FreeError::Foreign { address } }
    }

    #[cold]
    fn error(&self, cause: Cause, asked: u64) -> AllocError {
        AllocError { cause, asked, largest_free: self.bytes(self.index.largest_sure(&self.slots)) }
    }
}

impl<S: Slots, I: Index> Allocator for Range<S, I> {
    #[inline]
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        self.place(request, false)
    }

    #[inline]
    fn free(&mut self, block: Block, _: Owner) -> Result<(), FreeError> {
        let i = self.live(&block)?;
        self.release(i);
        Ok(())
    }

    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        self.resize_in_place(block, bytes)
    }

    fn stats(&self) -> Stats {
        let t = self.totals;
        let (index, branch) = self.index.bytes();
        let bytes = |granules: u64| granules << self.granule;
        let in_use = bytes(t.live);
        let allocations = (self.ticket - self.before) / self.step - t.renewals;
        Stats {
            capacity: bytes(t.backed + t.holes),
            reserved: self.backed(),
            peak_reserved: bytes(t.peak_backed),
            in_use,
            peak_in_use: bytes(t.peak_live),
            requested: in_use,
            largest_free: self.largest_free().map_or(0, |gap| gap.bytes),
            metadata: u64::from(self.fresh) * (size_of::<Slot>() as u64 + branch) + index,
            live_blocks: t.live_blocks,
            peak_live_blocks: t.peak_live_blocks,
            allocations,
            frees: allocations.saturating_sub(t.live_blocks), // what is hidden is live without a ticket
            hits: allocations,
            failed: t.failed,
            ..Stats::default()
        }
        .with_bytes(bytes(t.allocated))
    }

    fn check(&self) -> Result<(), Violation> {
        self.check_all()
    }
}
