//! A heap behind a lock.
//!
//! Promises upward: the heap may be a static, and may be called wherever its lock may be taken. A call holds the lock
//! for one bounded operation at a time: not while it copies a large block, while a hook runs, or from one deferred free
//! to the next.
//! Asks from below: the core's heap, a [`Lock`], a [`DeferQueue`].
//!
//! ```text
//! allocate   lock( complete two deferred frees, heap.allocate, count )     the fast path: nothing else
//!   failed   lock( complete one deferred free ), for each; try again
//!   failed   run the hook, without the lock; try again, as long as it returns true and memory use fell
//!   failed   count a failure
//! ```

use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use terrace_core::heap::{Fast, HeapConfig};
use terrace_core::{FreeError, Violation};

use crate::error::{BadFree, InitError};
use crate::free_queue::{DeferQueue, DeferredFree, NoQueue, QueueFull};
use crate::lock::{Lock, Locked};
use crate::state::{DRAIN_PER_CALL, State};
use crate::stats::{HeapCounters, HeapStats};

/// Bytes of the largest block that is copied under the lock: 64 words, whose copy takes about the instructions of one
/// request. A larger block is copied after the lock is released.
const COPY_LOCKED: usize = 256;

/// A heap behind a lock, which may be a static and the global allocator.
///
/// `FirmwareHeap` and `SpinHeap` name this type with a lock chosen.
///
/// `C` is [`Fast`], [`Small`](crate::Small) or a configuration of your own; the heap takes up to `REGIONS` regions; `Q`
/// is a [`FreeQueue`](crate::FreeQueue) if interrupt handlers free blocks without the lock.
#[derive(Debug)]
pub struct LockedHeap<L, C = Fast, const REGIONS: usize = 1, Q = NoQueue> {
    state: Locked<L, State<C, REGIONS>>,
    queue: Q,
}

impl<L: Lock, C: HeapConfig, const REGIONS: usize, Q: DeferQueue> LockedHeap<L, C, REGIONS, Q> {
    /// A heap without memory: every request fails.
    pub const fn empty() -> Self {
        Self { state: Locked::new(State::EMPTY), queue: Q::EMPTY }
    }

    #[inline(always)]
    fn locked<R>(&self, run: impl FnOnce(&mut State<C, REGIONS>) -> R) -> R {
        // SAFETY: the closures of this file call the core's heap and the queue, which call no hook and not this heap.
        unsafe { self.state.with(run) }
    }

    /// Adds a region to the heap.
    ///
    /// [`StaticMemory::take`](crate::StaticMemory::take) returns memory for one.
    ///
    /// # Errors
    /// [`InitError`]: the region is null, too small, too large, overlaps another, or the heap has `REGIONS` regions
    /// already.
    ///
    /// # Safety
    /// From now on the bytes must be readable and writable, and only this heap and the users of its blocks may access them.
    pub unsafe fn init(&self, start: *mut u8, bytes: usize) -> Result<(), InitError> {
        let start = NonNull::new(start).ok_or(InitError::Null)?;
        self.locked(|state| {
            // SAFETY: the caller promises that the bytes are this heap's from now on.
            unsafe { state.heap.add_region(start, bytes) }?;
            state.regions += 1;
            Ok(())
        })
    }

    /// Adds a region to the heap; [`StaticMemory::take`](crate::StaticMemory::take) returns one.
    ///
    /// # Errors
    /// As [`LockedHeap::init`].
    pub fn add_memory(&self, memory: &'static mut [MaybeUninit<u8>]) -> Result<(), InitError> {
        // SAFETY: `memory` is an exclusive `'static` reference, so nothing else can ever reach the bytes.
        unsafe { self.init(memory.as_mut_ptr().cast(), memory.len()) }
    }

    /// Sets the hook that runs when a request fails: without the lock, with the request's layout.
    ///
    /// The hook may free blocks or add a region, and returns true to have the request tried again, which happens if
    /// memory use fell or a region was added. If the request then fails again, the hook runs again. While the hook
    /// runs, other requests that fail (the hook's own among them) do not call it.
    pub fn on_out_of_memory(&self, hook: fn(Layout) -> bool) {
        self.locked(|state| state.out_of_memory = Some(hook));
    }

    /// Sets the hook that runs when the heap refuses a free or a resize. It runs without the lock.
    ///
    /// The heap refuses a double free, a foreign pointer, and a wrong layout, as far as it recognises them.
    /// `C` decides what is recognised: [`Checked`](crate::Checked) all of them, until the memory is allocated again; other
    /// heaps only foreign pointers, and only with several regions.
    pub fn on_bad_free(&self, hook: fn(BadFree)) {
        self.locked(|state| state.bad_free = Some(hook));
    }

    /// Allocates a block. `None`: no free block is large enough, or the layout's size is 0.
    ///
    /// O(1). A request that would fail first completes all deferred frees, O(1) each, and then runs the hook.
    #[inline]
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        match self.locked(|state| state.allocate(&self.queue, layout)) {
            Some(block) => Some(block),
            None => self.allocate_slow(layout),
        }
    }

    /// Frees a block. O(1).
    ///
    /// # Safety
    /// This heap must have allocated the block, and `layout` must be that of the request or of the last resize. The
    /// block must be live, and must not be used afterwards.
    #[inline]
    pub unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        let refused = self.locked(|state| {
            state.drain(&self.queue, DRAIN_PER_CALL);
            // SAFETY: the caller promises that this heap allocated the live block with this layout.
            unsafe { state.free(block, layout) }
        });
        if let Err(error) = refused {
            self.report_bad_free(error);
        }
    }

    /// Defers a free, without taking the lock: for interrupt handlers.
    ///
    /// Later calls of the heap complete deferred frees, each call two, in any order. O(capacity of `Q`).
    ///
    /// Until its free is completed the block counts as live.
    ///
    /// # Errors
    /// [`QueueFull`] with the block, which is still the caller's: `Q` is full (a [`NoQueue`] always is).
    ///
    /// # Safety
    /// As for [`LockedHeap::free`], except that a block which an error returned may still be used.
    pub unsafe fn free_later(&self, block: NonNull<u8>, layout: Layout) -> Result<(), QueueFull> {
        // SAFETY: the caller promises for the block and layout what `free` asks for.
        let pending = unsafe { DeferredFree::new(block, layout) };
        self.queue.push(pending).map_err(QueueFull)
    }

    /// Completes deferred frees, at most the capacity of `Q`; returns how many.
    ///
    /// For an idle loop. The lock is released after each of the frees.
    pub fn collect(&self) -> usize {
        (0..Q::CAPACITY).take_while(|_| self.locked(|state| state.drain(&self.queue, 1)) == 1).count()
    }

    /// Resizes a block, in place or by moving it with its contents.
    ///
    /// `None`: no room, a size of 0, or a refused block; the block is unchanged.
    ///
    /// A block of more than 256 bytes that moves is copied without the lock, unless it fits only where its old and new
    /// place overlap.
    ///
    /// # Safety
    /// This heap must have allocated the block with this layout; it must be live, and not be used during the call. Of a block
    /// that was resized only the returned pointer may be used, with the new size and the same alignment.
    pub unsafe fn reallocate(&self, block: NonNull<u8>, layout: Layout, bytes: usize) -> Option<NonNull<u8>> {
        let wanted = Layout::from_size_align(bytes, layout.align()).ok().filter(|wanted| wanted.size() > 0)?;
        let resized = self.locked(|state| {
            // SAFETY: the caller promises that this heap allocated the live block with this layout; `wanted` shows that
            // the new size is valid and not 0.
            unsafe { state.resize(block, layout, bytes, layout.size() <= COPY_LOCKED) }
        });
        match resized {
            Ok(None) => {}
            Ok(found) => return found,
            Err(error) => {
                self.report_bad_free(error);
                return None;
            }
        }
        let mut new = self.locked(|state| state.allocate_to_grow(&self.queue, wanted));
        if new.is_none() {
            // SAFETY: the caller's promise still holds: the first attempt did not refuse the block, and changed
            // nothing.
            let moved = self.locked(|state| unsafe { state.resize(block, layout, bytes, true) });
            match moved {
                Ok(Some(moved)) => return Some(moved),
                _ => new = self.allocate_slow(wanted),
            }
        }
        let new = new?;
        // SAFETY: two live blocks do not overlap; each has at least the smaller of the two sizes.
        unsafe { new.copy_from_nonoverlapping(block, layout.size().min(bytes)) };
        // SAFETY: the caller promises that the block is live; its bytes were copied, and it is used no more.
        unsafe { self.free(block, layout) };
        Some(new)
    }

    /// Statistics of the heap.
    ///
    /// Walks the free blocks under the lock, O(free blocks): for a console, not for a control loop.
    ///
    /// [`LockedHeap::counters`] is O(1).
    pub fn stats(&self) -> HeapStats {
        self.locked(|state| HeapStats::new(state.heap.usage(), state.counters))
    }

    /// The counters since the heap was created. O(1).
    pub fn counters(&self) -> HeapCounters {
        self.locked(|state| state.counters)
    }

    /// Whether an address lies in one of the regions.
    pub fn contains(&self, address: *const u8) -> bool {
        NonNull::new(address.cast_mut()).is_some_and(|address| self.locked(|state| state.heap.contains(address)))
    }

    /// Checks every invariant of the heap, under the lock. O(granules): for tests.
    ///
    /// # Errors
    /// The first invariant that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        self.locked(|state| state.heap.check())
    }

    /// Allocates after a failed attempt: completes all deferred frees, then runs the hook.
    #[cold]
    #[inline(never)]
    fn allocate_slow(&self, layout: Layout) -> Option<NonNull<u8>> {
        if self.collect() > 0 {
            let block = self.locked(|state| state.allocate(&self.queue, layout));
            if block.is_some() {
                return block;
            }
        }
        let (mut low_water, mut hook) = self.locked(|state| (state.low_water(), state.out_of_memory.take()));
        loop {
            let again = hook.is_some_and(|hook| call_out_of_memory_hook(hook, layout));
            let (tried, block) = self.locked(|state| {
                state.out_of_memory = state.out_of_memory.or(hook);
                state.drain(&self.queue, DRAIN_PER_CALL);
                let tried = low_water.lowered(state.low_water()) && again;
                let block = if tried { state.allocate(&self.queue, layout) } else { None };
                if !tried {
                    state.counters.failures = state.counters.failures.wrapping_add(1);
                } else if block.is_none() {
                    hook = state.out_of_memory.take();
                }
                (tried, block)
            });
            if block.is_some() || !tried {
                return block;
            }
        }
    }

    /// Runs the hook for bad frees, if there is one.
    #[cold]
    #[inline(never)]
    fn report_bad_free(&self, error: FreeError) {
        if let Some(hook) = self.locked(|state| state.bad_free) {
            call_bad_free_hook(hook, BadFree(error));
        }
    }
}

/// Runs the hook for failed requests. `extern "C"`: a panic aborts here, since it must not unwind through `GlobalAlloc`.
#[expect(improper_ctypes_definitions, reason = "called from here alone")]
extern "C" fn call_out_of_memory_hook(hook: fn(Layout) -> bool, layout: Layout) -> bool {
    hook(layout)
}

/// Runs the hook for bad frees. `extern "C"`: a panic aborts here, as in [`call_out_of_memory_hook`].
#[expect(improper_ctypes_definitions, reason = "called from here alone")]
extern "C" fn call_bad_free_hook(hook: fn(BadFree), what: BadFree) {
    hook(what);
}
