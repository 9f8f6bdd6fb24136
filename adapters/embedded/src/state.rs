//! The state behind a heap's lock, and the operations on it.
//!
//! Promises upward: each operation is bounded, calls no hook, and updates the counters.
//! Asks from below: the core's heap.

use core::alloc::Layout;
use core::ptr::NonNull;

use terrace_core::FreeError;
use terrace_core::heap::{HeapConfig, RegionHeap};

use crate::error::BadFree;
use crate::free_queue::DeferQueue;
use crate::stats::{HeapCounters, LowWaterMark};

/// Maximum number of deferred frees that one call completes: 2.
///
/// The time of a call stays bounded, and the queue shrinks even if every call is a request.
pub const DRAIN_PER_CALL: usize = 2;

/// The state of a heap.
#[derive(Debug)]
pub struct State<C, const REGIONS: usize> {
    pub heap: RegionHeap<C, REGIONS>,
    pub counters: HeapCounters,
    /// Number of regions added so far. A failed request is worth another attempt once it has grown.
    pub regions: usize,
    /// Hook for failed requests. `None` also while it runs, so that requests of its own do not call it again.
    pub out_of_memory: Option<fn(Layout) -> bool>,
    pub bad_free: Option<fn(BadFree)>,
}

impl<C: HeapConfig, const REGIONS: usize> State<C, REGIONS> {
    /// A heap without memory and hooks.
    pub const EMPTY: Self = Self {
        heap: RegionHeap::empty(),
        counters: HeapCounters::ZERO,
        regions: 0,
        out_of_memory: None,
        bad_free: None,
    };

    /// Allocates a block, after completing deferred frees.
    #[inline(always)]
    pub fn allocate(&mut self, queue: &impl DeferQueue, layout: Layout) -> Option<NonNull<u8>> {
        self.drain(queue, DRAIN_PER_CALL);
        let block = self.heap.allocate(layout)?;
        self.counters.allocated(layout.size());
        Some(block)
    }

    /// As [`State::allocate`], but places the block where it can grow further in place.
    pub fn allocate_to_grow(&mut self, queue: &impl DeferQueue, layout: Layout) -> Option<NonNull<u8>> {
        self.drain(queue, DRAIN_PER_CALL);
        let block = self.heap.allocate_with_room(layout)?;
        self.counters.allocated(layout.size());
        Some(block)
    }

    /// Frees a block, or counts the refusal.
    ///
    /// # Safety
    /// As for [`RegionHeap::free`].
    #[inline(always)]
    pub unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) -> Result<(), FreeError> {
        // SAFETY: the caller promises that this heap allocated the live block with this layout.
        let freed = unsafe { self.heap.free(block, layout) };
        match freed {
            Ok(()) => self.counters.freed(layout.size()),
            Err(_) => self.counters.refused = self.counters.refused.wrapping_add(1),
        }
        freed
    }

    /// Resizes a block in place or, if `may_move`, elsewhere; `None` without room for the new size.
    ///
    /// # Safety
    /// As for [`RegionHeap::reallocate`].
    pub unsafe fn resize(
        &mut self,
        block: NonNull<u8>,
        layout: Layout,
        bytes: usize,
        may_move: bool,
    ) -> Result<Option<NonNull<u8>>, FreeError> {
        let resized = if may_move {
            // SAFETY: the caller promises what `RegionHeap::reallocate` asks for.
            unsafe { self.heap.reallocate(block, layout, bytes) }
        } else {
            // SAFETY: the caller promises what `RegionHeap::resize` asks for.
            unsafe { self.heap.resize(block, layout, bytes) }.map(|done| done.then_some(block))
        };
        match resized {
            Ok(Some(_)) => self.counters.resized(layout.size(), bytes),
            Ok(None) => {}
            Err(_) => self.counters.refused = self.counters.refused.wrapping_add(1),
        }
        resized
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
        LowWaterMark::new(&self.counters, self.regions)
    }
}
