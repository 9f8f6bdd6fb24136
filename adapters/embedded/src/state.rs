//! What the lock of a heap keeps, and each step that is done under it.
//!
//! Promises upward: bounded, and calls nothing of the user's; every step is counted.
//! Asks from below: the core's heap.

use core::alloc::Layout;
use core::ptr::NonNull;

use terrace_core::FreeError;
use terrace_core::heap::{Config, Heap};

use crate::error::BadFree;
use crate::free_queue::DeferQueue;
use crate::stats::{HeapCounters, LowWaterMark};

/// Blocks of the queue that one call takes back: few, so that it stays bounded; and more than the one that a request hands
/// out, so that the queue gets shorter.
pub const DRAIN_PER_CALL: usize = 2;

/// What the lock keeps.
#[derive(Debug)]
pub struct State<C, const REGIONS: usize> {
    pub heap: Heap<C, REGIONS>,
    pub counters: HeapCounters,
    /// Regions that were added: with the frees counted, what may have made a failed request possible.
    pub regions: usize,
    /// Gone while it runs.
    pub out_of_memory: Option<fn(Layout) -> bool>,
    pub bad_free: Option<fn(BadFree)>,
}

impl<C: Config, const REGIONS: usize> State<C, REGIONS> {
    /// Nothing yet.
    pub const EMPTY: Self =
        Self { heap: Heap::empty(), counters: HeapCounters::ZERO, regions: 0, out_of_memory: None, bad_free: None };

    /// A block for a layout; what waits in the queue first.
    #[inline(always)]
    pub fn allocate(&mut self, queue: &impl DeferQueue, layout: Layout) -> Option<NonNull<u8>> {
        self.drain(queue, DRAIN_PER_CALL);
        let block = self.heap.allocate(layout)?;
        self.counters.allocated(layout.size());
        Some(block)
    }

    /// The same for a block that replaces one that grew: where it can grow again.
    pub fn allocate_to_grow(&mut self, queue: &impl DeferQueue, layout: Layout) -> Option<NonNull<u8>> {
        self.drain(queue, DRAIN_PER_CALL);
        let block = self.heap.allocate_with_room(layout)?;
        self.counters.allocated(layout.size());
        Some(block)
    }

    /// Frees a block.
    ///
    /// # Safety
    /// As for [`Heap::free`].
    #[inline(always)]
    pub unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) -> Result<(), FreeError> {
        // SAFETY: the caller's promise.
        let freed = unsafe { self.heap.free(block, layout) };
        match freed {
            Ok(()) => self.counters.freed(layout.size()),
            Err(_) => self.counters.refused = self.counters.refused.wrapping_add(1),
        }
        freed
    }

    /// The block after it was resized where it is, or, if it may be, moved; `None` when neither can be.
    ///
    /// # Safety
    /// As for [`Heap::reallocate`].
    pub unsafe fn resize(
        &mut self,
        block: NonNull<u8>,
        layout: Layout,
        bytes: usize,
        may_move: bool,
    ) -> Result<Option<NonNull<u8>>, FreeError> {
        let resized = if may_move {
            // SAFETY: the caller's promise.
            unsafe { self.heap.reallocate(block, layout, bytes) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.heap.resize(block, layout, bytes) }.map(|done| done.then_some(block))
        };
        match resized {
            Ok(Some(_)) => self.counters.resized(layout.size(), bytes),
            Ok(None) => {}
            Err(_) => self.counters.refused = self.counters.refused.wrapping_add(1),
        }
        resized
    }

    /// Frees up to so many blocks of the queue; how many. Those that the heap refuses are counted as refused.
    #[inline(always)]
    pub fn drain(&mut self, queue: &impl DeferQueue, most: usize) -> usize {
        let mut taken = 0;
        while taken < most {
            let Some(pending) = queue.pop() else { break };
            let (block, layout) = pending.parts();
            // SAFETY: who made a `DeferredFree` promised it.
            let _counted = unsafe { self.free(block, layout) };
            taken += 1;
        }
        taken
    }

    /// What may have made a failed request possible.
    pub fn low_water(&self) -> LowWaterMark {
        LowWaterMark::new(&self.counters, self.regions)
    }
}
