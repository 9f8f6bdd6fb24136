//! The state behind a heap's lock, and the operations on it.
//!
//! Promises upward: each operation is bounded, calls no hook, and updates the counters and the tasks' rows.
//! Asks from below: the core's heap, one for each region; the byte behind a block that names its task.

use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use terrace_core::FreeError;
use terrace_core::heap::{HeapConfig, Records, RegionHeap};

use crate::capabilities::MemoryCaps;
use crate::error::BadFree;
use crate::free_queue::DeferQueue;
use crate::regions::RegionSet;
use crate::stats::{HeapCounters, LowWaterMark};
use crate::tasks::TaskAccounts;

/// Maximum number of deferred frees that one call completes: 2.
///
/// The time of a call stays bounded, and the queue shrinks even if every call is a request.
pub const DRAIN_PER_CALL: usize = 2;

/// What a request needs: a wish and its fallbacks; `None`: the heap's preference.
pub type Want<'a> = Option<&'a [MemoryCaps]>;

/// A block, and the task that it is charged to.
type Charged<T> = (NonNull<u8>, <T as TaskAccounts>::Owner);

/// The state of a heap.
#[derive(Debug)]
pub struct State<C, const REGIONS: usize, T> {
    pub regions: RegionSet<RegionHeap<C>, REGIONS>,
    pub counters: HeapCounters,
    /// What each task has: a row for each, or nothing.
    pub tasks: T,
    /// What a request needs that does not say so. `None`: nothing. Of no effect with one region.
    pub preference: Option<&'static [MemoryCaps]>,
    /// Hook for failed requests. `None` also while it runs, so that requests of its own do not call it again.
    pub out_of_memory: Option<fn(Layout) -> bool>,
    pub bad_free: Option<fn(BadFree)>,
}

impl<C: HeapConfig, const REGIONS: usize, T: TaskAccounts> State<C, REGIONS, T> {
    /// A heap without memory and hooks.
    pub const EMPTY: Self = Self {
        regions: RegionSet::EMPTY,
        counters: HeapCounters::ZERO,
        tasks: T::EMPTY,
        preference: None,
        out_of_memory: None,
        bad_free: None,
    };

    /// Bytes of a granule.
    const GRANULE: usize = 1 << C::Records::GRANULE;

    /// Allocates a block for a task, after completing deferred frees.
    #[inline(always)]
    pub fn allocate(
        &mut self,
        queue: &impl DeferQueue,
        layout: Layout,
        owner: T::Owner,
        want: Want<'_>,
    ) -> Option<NonNull<u8>> {
        self.drain(queue, DRAIN_PER_CALL);
        let whole = Self::whole(layout)?;
        let block = if REGIONS == 1 && want.is_none() {
            self.regions.first()?.allocate(whole)?
        } else {
            self.anywhere(whole, self.want(want))?
        };
        Some(self.handed_out(block, layout, owner))
    }

    /// As [`State::allocate`], for a block that has no room to grow.
    ///
    /// The region of `near` is tried first.
    pub fn allocate_to_grow(
        &mut self,
        queue: &impl DeferQueue,
        layout: Layout,
        owner: T::Owner,
        want: Want<'_>,
        near: NonNull<u8>,
    ) -> Option<NonNull<u8>> {
        self.drain(queue, DRAIN_PER_CALL);
        let (whole, want) = (Self::whole(layout)?, self.want(want));
        let beside = self.regions.of(near).ok()?.allocate_to_move(whole);
        let block = beside.or_else(|| self.anywhere(whole, want))?;
        Some(self.handed_out(block, layout, owner))
    }

    /// Frees a block, or counts the refusal.
    ///
    /// # Safety
    /// As for [`RegionHeap::free`].
    #[inline(always)]
    pub unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) -> Result<(), FreeError> {
        let size = layout.size();
        // SAFETY: the caller promises that this heap allocated the live block with this layout.
        match unsafe { self.taken_back(block, layout) } {
            Ok(owner) => {
                self.counters.freed(size, Self::held(size));
                self.tasks.charge(owner, Some(size), None);
                Ok(())
            }
            Err(error) => Err(self.refused(error)),
        }
    }

    /// Resizes a block in place or, if `may_move`, elsewhere; `None` without room.
    ///
    /// A block that moves stays in its region, or goes where `want` leads. The block stays charged to the task that allocated it.
    ///
    /// # Safety
    /// As for [`RegionHeap::reallocate`].
    pub unsafe fn resize(
        &mut self,
        block: NonNull<u8>,
        layout: Layout,
        bytes: usize,
        may_move: bool,
        want: Want<'_>,
    ) -> Result<Option<NonNull<u8>>, FreeError> {
        // SAFETY: the caller promises what `RegionHeap::reallocate` asks for.
        match unsafe { self.resized(block, layout, bytes, may_move, want) } {
            Ok(Some((block, owner))) => {
                // SAFETY: the block now has `bytes` bytes and those of the trailer.
                unsafe { T::set_owner(block, bytes, owner) };
                let sizes = [layout.size(), bytes];
                self.counters.resized(sizes, sizes.map(Self::held));
                self.tasks.charge(owner, Some(layout.size()), Some(bytes));
                Ok(Some(block))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(self.refused(error)),
        }
    }

    /// Completes up to `most` deferred frees; returns how many.
    ///
    /// A free that the heap refuses is counted in `refused`, and in the returned number.
    #[inline(always)]
    pub fn drain(&mut self, queue: &impl DeferQueue, most: usize) -> usize {
        let mut taken = 0;
        while taken < most {
            let Some(pending) = queue.pop() else { break };
            let (block, layout) = pending.parts();
            // SAFETY: the caller of `DeferredFree::new` promised what `free` asks for, and the queue pops each block
            // once.
            let _counted = unsafe { self.free(block, layout) };
            taken += 1;
        }
        taken
    }

    /// The memory in use now, to compare with that after a hook has run.
    pub fn low_water(&self) -> LowWaterMark {
        LowWaterMark::new(&self.counters, self.regions.count())
    }

    /// What a request needs, in a heap with a choice.
    #[inline(always)]
    fn want<'a>(&self, want: Want<'a>) -> Want<'a> {
        if REGIONS == 1 { want } else { want.or(self.preference) }
    }

    /// The layout of the heap's block: the caller's bytes and the trailer. A size of 0 stays 0, which the heap refuses.
    #[inline(always)]
    fn whole(layout: Layout) -> Option<Layout> {
        if T::TRAILER == 0 || layout.size() == 0 {
            return Some(layout);
        }
        Layout::from_size_align(layout.size() + T::TRAILER, layout.align()).ok()
    }

    /// Bytes of a block of this size, in whole granules.
    #[inline(always)]
    fn held(size: usize) -> usize {
        (size + T::TRAILER + Self::GRANULE - 1) & !(Self::GRANULE - 1)
    }

    /// A block of the first region that can serve it; what waits is merged only if none can without.
    #[inline(always)]
    fn anywhere(&mut self, whole: Layout, want: Want<'_>) -> Option<NonNull<u8>> {
        let unmerged = self.regions.first_of(want, |heap| heap.allocate_unmerged(whole));
        if unmerged.is_some() || !C::DEFERS {
            return unmerged;
        }
        self.regions.first_of(want, |heap| heap.allocate(whole))
    }

    /// Counts a block of the heap that a caller gets.
    #[inline(always)]
    fn handed_out(&mut self, block: NonNull<u8>, layout: Layout, owner: T::Owner) -> NonNull<u8> {
        let size = layout.size();
        // SAFETY: a fresh block of `size` bytes and those of the trailer.
        unsafe { T::set_owner(block, size, owner) };
        self.counters.allocated(size, Self::held(size));
        self.tasks.charge(owner, None, Some(size));
        block
    }

    /// Counts a refusal.
    #[cold]
    fn refused(&mut self, error: FreeError) -> FreeError {
        self.counters.refused = self.counters.refused.wrapping_add(1);
        error
    }

    /// The task that a block is charged to, if it is live and has this size. Refuses a block whose trailer lies in no region.
    #[inline(always)]
    fn owner_of(&self, block: NonNull<u8>, size: usize) -> Result<MaybeUninit<T::Owner>, FreeError> {
        let trailer = NonNull::new(block.as_ptr().wrapping_add(size));
        if T::TRAILER > 0 && !trailer.is_some_and(|trailer| self.regions.contains(trailer)) {
            return Err(FreeError::Foreign { address: block.addr().get() as u64 });
        }
        // SAFETY: the trailer lies in a region, as checked above, and the bytes of regions are readable.
        Ok(unsafe { T::owner_of(block, size) })
    }

    /// Frees a block; returns the task that it was charged to.
    ///
    /// # Safety
    /// As for [`RegionHeap::free`].
    #[inline(always)]
    unsafe fn taken_back(&mut self, block: NonNull<u8>, layout: Layout) -> Result<T::Owner, FreeError> {
        let owner = self.owner_of(block, layout.size())?;
        let heap = self.regions.of(block)?;
        // No block has a layout without a `whole`; as it is, the heap refuses it or breaks no more than it would.
        let whole = Self::whole(layout).unwrap_or(layout);
        // SAFETY: the caller promises that this heap allocated the live block with this layout.
        unsafe { heap.free(block, whole) }?;
        // SAFETY: the heap accepted the block and its size, so `set_owner` has written there.
        Ok(unsafe { owner.assume_init() })
    }

    /// Resizes a block, uncounted; returns the task that it is charged to as well.
    ///
    /// # Safety
    /// As for [`RegionHeap::reallocate`].
    unsafe fn resized(
        &mut self,
        block: NonNull<u8>,
        layout: Layout,
        bytes: usize,
        may_move: bool,
        want: Want<'_>,
    ) -> Result<Option<Charged<T>>, FreeError> {
        let owner = self.owner_of(block, layout.size())?;
        let wanted = Layout::from_size_align(bytes, layout.align()).ok().and_then(Self::whole);
        let (Some(old), Some(new)) = (Self::whole(layout), wanted) else { return Ok(None) };
        let (heap, want) = (self.regions.of(block)?, want.or(self.preference));
        let here = if may_move {
            // SAFETY: the caller's promise; `new` shows that its size is valid and not 0.
            unsafe { heap.reallocate(block, old, new.size()) }?
        } else {
            // SAFETY: as above.
            unsafe { heap.resize(block, old, new.size()) }?.then_some(block)
        };
        // SAFETY: the heap accepted the block and its size, so `set_owner` has written there.
        let owner = unsafe { owner.assume_init() };
        if here.is_some() || !may_move || REGIONS == 1 {
            return Ok(here.map(|block| (block, owner)));
        }
        let Some(moved) = self.anywhere(new, want) else { return Ok(None) };
        // SAFETY: two live blocks do not overlap, and the new one is larger: `reallocate` shrinks in place.
        unsafe { moved.copy_from_nonoverlapping(block, layout.size()) };
        let heap = self.regions.of(block)?;
        // SAFETY: the caller's promise; the block was live when `reallocate` checked it, and its bytes are used no more.
        unsafe { heap.free(block, old) }?;
        Ok(Some((moved, owner)))
    }
}
