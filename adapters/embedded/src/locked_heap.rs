//! A heap behind a lock.
//!
//! Promises upward: may be a static, and called from everywhere that the lock allows; the lock is held for one bounded
//! step at a time: not while a large block is copied, while a hook runs, or from one block of the queue to the next.
//! Asks from below: the core's heap, a [`Lock`], a [`DeferQueue`].
//!
//! ```text
//! allocate   lock( two of the queue -> heap, heap.allocate, count )                       the usual way, all of it
//!            none: one lock for each block that waits in the queue; again
//!            none: hook, outside of the lock; again, as long as it says so and something came back
//!            none: count a failure
//! ```

use core::alloc::Layout;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use terrace_core::heap::{Config, Fast};
use terrace_core::{FreeError, Violation};

use crate::error::{BadFree, InitError};
use crate::free_queue::{DeferQueue, DeferredFree, NoQueue, QueueFull};
use crate::lock::{Lock, Locked};
use crate::state::{DRAIN_PER_CALL, State};
use crate::stats::{HeapCounters, HeapStats};

/// Bytes that are copied under the lock: 64 words, about the instructions of one request. In return the heap may place the
/// block where it can grow further.
const COPY_LOCKED: usize = 256;

/// A heap that may be a static and the global allocator: `FirmwareHeap` and `SpinHeap` are this with a lock. `C` is
/// [`Fast`], [`Small`](crate::Small) or one of your own; it has room for `REGIONS` regions; `Q` is a
/// [`FreeQueue`](crate::FreeQueue) if interrupts free blocks without the lock.
#[derive(Debug)]
pub struct LockedHeap<L, C = Fast, const REGIONS: usize = 1, Q = NoQueue> {
    state: Locked<L, State<C, REGIONS>>,
    queue: Q,
}

impl<L: Lock, C: Config, const REGIONS: usize, Q: DeferQueue> LockedHeap<L, C, REGIONS, Q> {
    /// A heap without memory: every request fails.
    pub const fn empty() -> Self {
        Self { state: Locked::new(State::EMPTY), queue: Q::EMPTY }
    }

    #[inline(always)]
    fn locked<R>(&self, run: impl FnOnce(&mut State<C, REGIONS>) -> R) -> R {
        // SAFETY: what this file runs under the lock calls the core, the queue and nothing of the user's.
        unsafe { self.state.with(run) }
    }

    /// Gives the heap memory; again for each further region, up to `REGIONS`. Its ends may lie anywhere.
    ///
    /// # Errors
    /// [`InitError`]: null, too small, too large, overlapping what it has, or no room for another region.
    ///
    /// # Safety
    /// From now on the bytes are readable and writable memory that nobody but this heap and the users of its blocks touch.
    pub unsafe fn init(&self, start: *mut u8, bytes: usize) -> Result<(), InitError> {
        let start = NonNull::new(start).ok_or(InitError::Null)?;
        self.locked(|state| {
            // SAFETY: the caller's promise.
            unsafe { state.heap.add_region(start, bytes) }?;
            state.regions += 1;
            Ok(())
        })
    }

    /// Gives the heap memory that is yours for ever, as [`StaticMemory::take`](crate::StaticMemory::take) does.
    ///
    /// # Errors
    /// As [`LockedHeap::init`].
    pub fn add_memory(&self, memory: &'static mut [MaybeUninit<u8>]) -> Result<(), InitError> {
        // SAFETY: a reference that is never given back is the only way to these bytes.
        unsafe { self.init(memory.as_mut_ptr().cast(), memory.len()) }
    }

    /// What is called when a request finds nothing, with the layout asked for, outside of the lock. It may free blocks or
    /// add a region, and returns true to have the request tried again; it is called again as long as that fails and
    /// something came back meanwhile.
    ///
    /// While it runs it is not called again: requests that fail then, its own included, fail.
    pub fn on_out_of_memory(&self, hook: fn(Layout) -> bool) {
        self.locked(|state| state.out_of_memory = Some(hook));
    }

    /// What is called when a free or a resize is refused, outside of the lock: a double free, a foreign pointer, a wrong
    /// layout. Which of them are recognised depends on `C`: all, until the memory is handed out again, by
    /// [`Checked`](crate::Checked); foreign pointers by heaps of several regions; none otherwise.
    pub fn on_bad_free(&self, hook: fn(BadFree)) {
        self.locked(|state| state.bad_free = Some(hook));
    }

    /// Hands out a block. `None`: the heap has nothing that is large enough, or the layout has no bytes.
    ///
    /// O(1), but for the last resort described at the head of this file: then once for each block in the queue.
    #[inline]
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        match self.locked(|state| state.allocate(&self.queue, layout)) {
            Some(block) => Some(block),
            None => self.allocate_slow(layout),
        }
    }

    /// Takes a block back. O(1).
    ///
    /// # Safety
    /// The block was given by this heap for this layout (of the last resize, if any), is live, and is not used any more.
    #[inline]
    pub unsafe fn free(&self, block: NonNull<u8>, layout: Layout) {
        let refused = self.locked(|state| {
            state.drain(&self.queue, DRAIN_PER_CALL);
            // SAFETY: the caller's promise.
            unsafe { state.free(block, layout) }
        });
        if let Err(error) = refused {
            self.report_bad_free(error);
        }
    }

    /// Frees a block without taking the lock, from wherever it must not be taken: the next calls do it, two blocks each.
    /// Until then the block counts as live.
    ///
    /// # Errors
    /// [`QueueFull`] with the block, which is still yours: all of `Q`'s places are taken ([`NoQueue`] has none).
    ///
    /// # Safety
    /// As for [`LockedHeap::free`], unless the block comes back.
    pub unsafe fn free_later(&self, block: NonNull<u8>, layout: Layout) -> Result<(), QueueFull> {
        // SAFETY: the caller's promise.
        let pending = unsafe { DeferredFree::new(block, layout) };
        self.queue.push(pending).map_err(QueueFull)
    }

    /// Frees what waits in the queue, each block under a lock of its own; for an idle loop. How many there were, at most
    /// as many as the queue has places.
    pub fn collect(&self) -> usize {
        (0..Q::CAPACITY).take_while(|_| self.locked(|state| state.drain(&self.queue, 1)) == 1).count()
    }

    /// Makes a block larger or smaller, where it is if it can, or elsewhere; what it holds goes along. `None`: nothing free
    /// is large enough (or the block was refused), and the block is as it was.
    ///
    /// A block of more than 256 bytes that moves is copied outside of the lock, unless there is no other way than to move
    /// it down over itself.
    ///
    /// # Safety
    /// The block was given by this heap for this layout and is live, and nobody uses it meanwhile. `bytes` is not 0. When
    /// a block comes back, only that pointer may be used, with the layout's alignment.
    pub unsafe fn reallocate(&self, block: NonNull<u8>, layout: Layout, bytes: usize) -> Option<NonNull<u8>> {
        let wanted = Layout::from_size_align(bytes, layout.align()).ok().filter(|wanted| wanted.size() > 0)?;
        let resized = self.locked(|state| {
            // SAFETY: the caller's promise, and the new size is a layout's and not 0.
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
            // SAFETY: as above: it was refused by nobody there, and nothing was changed.
            let moved = self.locked(|state| unsafe { state.resize(block, layout, bytes, true) });
            match moved {
                Ok(Some(moved)) => return Some(moved),
                _ => new = self.allocate_slow(wanted),
            }
        }
        let new = new?;
        // SAFETY: two live blocks of at least so many bytes.
        unsafe { new.copy_from_nonoverlapping(block, layout.size().min(bytes)) };
        // SAFETY: the caller's promise; its bytes are used no more.
        unsafe { self.free(block, layout) };
        Some(new)
    }

    /// What the heap holds. Walks the free blocks under the lock: O(free blocks), so rather for a console than for a
    /// control loop; [`LockedHeap::counters`] is O(1).
    pub fn stats(&self) -> HeapStats {
        self.locked(|state| HeapStats::new(state.heap.usage(), state.counters))
    }

    /// What was counted. O(1).
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
    /// The first that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        self.locked(|state| state.heap.check())
    }

    /// Nothing was found at once.
    #[cold]
    #[inline(never)]
    fn allocate_slow(&self, layout: Layout) -> Option<NonNull<u8>> {
        let mut block = None;
        if self.collect() > 0 {
            block = self.locked(|state| state.allocate(&self.queue, layout));
        }
        let mut low_water = self.locked(|state| state.low_water());
        while block.is_none() {
            let hook = self.locked(|state| state.out_of_memory.take());
            let again = hook.is_some_and(|hook| call_out_of_memory_hook(hook, layout));
            let tried;
            (tried, block) = self.locked(|state| {
                state.out_of_memory = state.out_of_memory.or(hook);
                state.drain(&self.queue, DRAIN_PER_CALL);
                let again = low_water.lowered(state.low_water()) && again;
                (again, if again { state.allocate(&self.queue, layout) } else { None })
            });
            if !tried {
                self.locked(|state| state.counters.failures = state.counters.failures.wrapping_add(1));
                return None;
            }
        }
        block
    }

    #[cold]
    #[inline(never)]
    fn report_bad_free(&self, error: FreeError) {
        if let Some(hook) = self.locked(|state| state.bad_free) {
            call_bad_free_hook(hook, BadFree(error));
        }
    }
}

/// Calls a hook of the program. It must not unwind through `GlobalAlloc`: out of a function of this kind it aborts.
#[expect(improper_ctypes_definitions, reason = "called from here alone")]
extern "C" fn call_out_of_memory_hook(hook: fn(Layout) -> bool, layout: Layout) -> bool {
    hook(layout)
}

/// The same.
#[expect(improper_ctypes_definitions, reason = "called from here alone")]
extern "C" fn call_bad_free_hook(hook: fn(BadFree), what: BadFree) {
    hook(what);
}
