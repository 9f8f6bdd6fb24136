//! A heap behind a lock: requests, resizes and frees.
//!
//! Promises upward: the heap may be a static, and may be called wherever its lock may be taken. A call holds the lock
//! for one bounded operation at a time: not while it copies a large block, while a hook runs, or from one deferred free
//! to the next.
//! Asks from below: the core's heap, a [`Lock`], a [`DeferQueue`], accounts by task.
//!
//! ```text
//! allocate   lock( complete two deferred frees, heap.allocate, count )     the fast path: nothing else
//!   failed   lock( complete one deferred free ), for each; try again
//!   failed   run the hook, without the lock; try again, as long as it returns true and memory use fell
//!   failed   count a failure
//! ```

use core::alloc::Layout;
use core::ptr::NonNull;

use terrace_core::FreeError;
use terrace_core::heap::{Bounded, HeapConfig};

use crate::capabilities::MemoryCaps;
use crate::error::BadFree;
use crate::free_queue::{DeferQueue, DeferredFree, NoQueue, QueueFull};
use crate::lock::{Lock, Locked};
use crate::state::{DRAIN_PER_CALL, State, Want};
use crate::tasks::{NoTasks, TaskAccounts};

/// Bytes of the largest block that is copied under the lock: 64 words, whose copy takes about the instructions of one
/// request. A larger block is copied after the lock is released.
const COPY_LOCKED: usize = 256;

/// A heap behind a lock, which may be a static and the global allocator.
///
/// `FirmwareHeap` and `SpinHeap` name this type with a lock chosen.
///
/// `C` is [`Bounded`], [`Fast`](crate::Fast), [`Small`](crate::Small) or a configuration of your own; the heap takes up to `REGIONS` regions; `Q`
/// is a [`FreeQueue`](crate::FreeQueue) if interrupt handlers free blocks without the lock; `T` is a
/// [`TaskTable`](crate::TaskTable) to know which task has how much.
#[derive(Debug)]
pub struct LockedHeap<L, C = Bounded, const REGIONS: usize = 1, Q = NoQueue, T = NoTasks> {
    state: Locked<L, State<C, REGIONS, T>>,
    queue: Q,
}

impl<L: Lock, C: HeapConfig, const REGIONS: usize, Q: DeferQueue, T: TaskAccounts> LockedHeap<L, C, REGIONS, Q, T> {
    /// A heap without memory: every request fails.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// use terrace_embedded::{Bounded, FirmwareHeap};
    /// static HEAP: FirmwareHeap<Bounded, 6> = FirmwareHeap::empty(); // up to six regions
    /// assert!(HEAP.allocate(core::alloc::Layout::new::<u32>()).is_none());
    /// # }
    /// ```
    pub const fn empty() -> Self {
        Self { state: Locked::new(State::EMPTY), queue: Q::EMPTY }
    }

    /// Runs `run` on the state, behind the lock. It must call no hook, and not this heap.
    #[inline(always)]
    pub(crate) fn locked<R>(&self, run: impl FnOnce(&mut State<C, REGIONS, T>) -> R) -> R {
        // SAFETY: the closures of this crate call the core's heap and the queue, which call no hook and not this heap.
        unsafe { self.state.with(run) }
    }

    /// Allocates a block. `None`: no free block is large enough, or the layout's size is 0.
    ///
    /// A request just below the largest free block may be refused: see [`RegionHeap::allocate`](crate::RegionHeap::allocate).
    ///
    /// O(1). A request that would fail first merges what waits ([`Fast`](crate::Fast) only; O(such blocks)), completes all
    /// deferred frees, O(1) each, and then runs the hook.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{FirmwareHeap, heap_arena};
    /// # static HEAP: FirmwareHeap = FirmwareHeap::empty();
    /// # heap_arena!(HEAP, 4096)?;
    /// let layout = core::alloc::Layout::new::<[u32; 25]>();
    /// let block = HEAP.allocate(layout).expect("room");
    /// // SAFETY: live, and used no more.
    /// unsafe { HEAP.free(block, layout) };
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    #[inline]
    pub fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        self.request(layout, None)
    }

    /// Allocates a block in a region with the capabilities of an entry of `want`.
    ///
    /// The list begins with the wish; the other entries are fallbacks. The first region with room serves the request.
    ///
    /// `None`: no such region has room. O(regions), for each entry. An empty list is served by no region.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// use terrace_embedded::{MemoryCaps, Bounded, FirmwareHeap, heap_arena};
    /// static HEAP: FirmwareHeap<Bounded, 2> = FirmwareHeap::empty();
    /// heap_arena!(HEAP, 4096, MemoryCaps::INTERNAL | MemoryCaps::DMA)?;
    /// heap_arena!(HEAP, 65536, MemoryCaps::EXTERNAL)?;
    ///
    /// let layout = core::alloc::Layout::new::<[u8; 3000]>();
    /// let dma = HEAP.allocate_in(layout, &[MemoryCaps::DMA]).expect("room");
    /// assert!(HEAP.allocate_in(layout, &[MemoryCaps::DMA]).is_none(), "no room for a second");
    /// // On the chip if there is room, else anywhere.
    /// let other = HEAP.allocate_in(layout, &[MemoryCaps::INTERNAL, MemoryCaps::ANY]).expect("a fallback");
    /// # let _ = (dma, other);
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    #[inline]
    pub fn allocate_in(&self, layout: Layout, want: &[MemoryCaps]) -> Option<NonNull<u8>> {
        self.request(layout, Some(want))
    }

    /// Allocates for the running task.
    #[inline(always)]
    pub(crate) fn request(&self, layout: Layout, want: Want<'_>) -> Option<NonNull<u8>> {
        let owner = T::current();
        match self.locked(|state| state.allocate(&self.queue, layout, owner, want)) {
            Some(block) => Some(block),
            None => self.allocate_slow(layout, owner, want),
        }
    }

    /// Frees a block, in whichever region it lies.
    ///
    /// O(1) with one region, else O(regions); with [`Checked`](crate::Checked) O(size of the block) more.
    ///
    /// # Safety
    /// This heap must have allocated the block, and `layout` must be that of the request or of the last resize. The
    /// block must be live, and must not be used afterwards.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{FirmwareHeap, heap_arena};
    /// # static HEAP: FirmwareHeap = FirmwareHeap::empty();
    /// # heap_arena!(HEAP, 4096)?;
    /// let layout = core::alloc::Layout::new::<u64>();
    /// let block = HEAP.allocate(layout).expect("room");
    /// // SAFETY: live, and used no more.
    /// unsafe { HEAP.free(block, layout) };
    /// assert_eq!(HEAP.counters().requested, 0);
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
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
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// use terrace_embedded::{Bounded, FirmwareHeap, FreeQueue, heap_arena};
    /// static HEAP: FirmwareHeap<Bounded, 1, FreeQueue<8>> = FirmwareHeap::empty();
    /// heap_arena!(HEAP, 4096)?;
    /// let layout = core::alloc::Layout::new::<u64>();
    /// let block = HEAP.allocate(layout).expect("room");
    /// // SAFETY: live, and used no more.
    /// unsafe { HEAP.free_later(block, layout) }.expect("eight places");
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub unsafe fn free_later(&self, block: NonNull<u8>, layout: Layout) -> Result<(), QueueFull> {
        // SAFETY: the caller promises for the block and layout what `free` asks for.
        let pending = unsafe { DeferredFree::new(block, layout) };
        self.queue.push(pending).map_err(QueueFull)
    }

    /// Completes deferred frees, at most the capacity of `Q`; returns how many.
    ///
    /// For an idle loop. The lock is released after each of the frees.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{Bounded, FirmwareHeap, FreeQueue, heap_arena};
    /// # static HEAP: FirmwareHeap<Bounded, 1, FreeQueue<8>> = FirmwareHeap::empty();
    /// # heap_arena!(HEAP, 4096)?;
    /// let layout = core::alloc::Layout::new::<u64>();
    /// let block = HEAP.allocate(layout).expect("room");
    /// // SAFETY: live, and used no more.
    /// unsafe { HEAP.free_later(block, layout) }.expect("eight places");
    /// assert_eq!((HEAP.collect(), HEAP.collect()), (1, 0));
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub fn collect(&self) -> usize {
        (0..Q::CAPACITY).take_while(|_| self.locked(|state| state.drain(&self.queue, 1)) == 1).count()
    }

    /// Merges the freed blocks that wait for a request of their size, in a heap with [`Fast`](crate::Fast).
    ///
    /// For an idle loop, or before [`LockedHeap::stats`], which counts blocks as they are. O(such blocks), at most 128 a
    /// region; the lock is released after each region.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{Fast, FirmwareHeap, heap_arena};
    /// # static HEAP: FirmwareHeap<Fast> = FirmwareHeap::empty();
    /// # heap_arena!(HEAP, 65536)?;
    /// let layout = core::alloc::Layout::new::<[u64; 8]>();
    /// let blocks = [(); 9].map(|()| HEAP.allocate(layout).expect("room"));
    /// // Every second block first.
    /// for i in [0, 2, 4, 6, 8, 1, 3, 5, 7] {
    ///     // SAFETY: live, and used no more.
    ///     unsafe { HEAP.free(blocks[i], layout) };
    /// }
    /// assert!(HEAP.stats().free_blocks > 1);
    /// HEAP.merge();
    /// assert_eq!(HEAP.stats().free_blocks, 1);
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub fn merge(&self) {
        (0..REGIONS).for_each(|region| self.locked(|state| state.regions.merge(region)));
    }

    /// Resizes a block, in place or by moving it with its contents.
    ///
    /// `None`: no room, a size of 0, or a refused block; the block is unchanged.
    ///
    /// A block that moves stays in its region if there is room, and else goes where a request would. A block of more than 256
    /// bytes that moves is copied without the lock, unless there was no room before deferred frees were completed.
    ///
    /// # Safety
    /// This heap must have allocated the block with this layout; it must be live, and not be used during the call. Of a block
    /// that was resized only the returned pointer may be used, with the new size and the same alignment.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{FirmwareHeap, heap_arena};
    /// # static HEAP: FirmwareHeap = FirmwareHeap::empty();
    /// # heap_arena!(HEAP, 4096)?;
    /// let layout = core::alloc::Layout::new::<[u8; 100]>();
    /// let block = HEAP.allocate(layout).expect("room");
    /// // SAFETY: live; the old pointer is used no more.
    /// let longer = unsafe { HEAP.reallocate(block, layout, 1000) }.expect("room");
    /// assert_eq!((longer, HEAP.counters().requested), (block, 1000), "nothing was behind it");
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub unsafe fn reallocate(&self, block: NonNull<u8>, layout: Layout, bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        unsafe { self.resize(block, layout, bytes, None) }
    }

    /// Resizes a block, which leaves its region only for one that `want` names.
    ///
    /// Otherwise as [`LockedHeap::reallocate`]; `want` is a list as in [`LockedHeap::allocate_in`].
    ///
    /// # Safety
    /// As for [`LockedHeap::reallocate`].
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{MemoryCaps, Bounded, FirmwareHeap, heap_arena};
    /// # static HEAP: FirmwareHeap<Bounded, 2> = FirmwareHeap::empty();
    /// heap_arena!(HEAP, 4096, MemoryCaps::DMA)?;
    /// heap_arena!(HEAP, 65536, MemoryCaps::EXTERNAL)?;
    /// let layout = core::alloc::Layout::new::<[u8; 100]>();
    /// let block = HEAP.allocate_in(layout, &[MemoryCaps::DMA]).expect("room");
    /// // SAFETY: live, and unchanged where the call returns `None`.
    /// let longer = unsafe { HEAP.reallocate_in(block, layout, 5000, &[MemoryCaps::DMA]) };
    /// assert!(longer.is_none(), "it does not leave the memory that a DMA controller reaches");
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub unsafe fn reallocate_in(
        &self,
        block: NonNull<u8>,
        layout: Layout,
        bytes: usize,
        want: &[MemoryCaps],
    ) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        unsafe { self.resize(block, layout, bytes, Some(want)) }
    }

    /// Resizes a block; see [`LockedHeap::reallocate`].
    ///
    /// # Safety
    /// As for [`LockedHeap::reallocate`].
    pub(crate) unsafe fn resize(
        &self,
        block: NonNull<u8>,
        layout: Layout,
        bytes: usize,
        want: Want<'_>,
    ) -> Option<NonNull<u8>> {
        let wanted = Layout::from_size_align(bytes, layout.align()).ok().filter(|wanted| wanted.size() > 0)?;
        let resized = self.locked(|state| {
            // SAFETY: the caller promises that this heap allocated the live block with this layout; `wanted` shows that
            // the new size is valid and not 0.
            unsafe { state.resize(block, layout, bytes, layout.size() <= COPY_LOCKED, want) }
        });
        match resized {
            Ok(None) => {}
            Ok(found) => return found,
            Err(error) => {
                self.report_bad_free(error);
                return None;
            }
        }
        // SAFETY: the caller promises a live block with this layout, behind which its task stands.
        let owner = unsafe { T::owner_of(block, layout.size()) };
        // SAFETY: as above.
        let owner = unsafe { owner.assume_init() };
        let mut new = self.locked(|state| state.allocate_to_grow(&self.queue, wanted, owner, want, block));
        if new.is_none() {
            // SAFETY: the caller's promise still holds: the first attempt did not refuse the block, and changed
            // nothing.
            let moved = self.locked(|state| unsafe { state.resize(block, layout, bytes, true, want) });
            match moved {
                Ok(Some(moved)) => return Some(moved),
                _ => new = self.allocate_slow(wanted, owner, want),
            }
        }
        let new = new?;
        // SAFETY: two live blocks do not overlap; each has at least the smaller of the two sizes.
        unsafe { new.copy_from_nonoverlapping(block, layout.size().min(bytes)) };
        // SAFETY: the caller promises that the block is live; its bytes were copied, and it is used no more.
        unsafe { self.free(block, layout) };
        Some(new)
    }

    /// Allocates after a failed attempt: completes all deferred frees, then runs the hook.
    #[cold]
    #[inline(never)]
    fn allocate_slow(&self, layout: Layout, owner: T::Owner, want: Want<'_>) -> Option<NonNull<u8>> {
        if self.collect() > 0 {
            let block = self.locked(|state| state.allocate(&self.queue, layout, owner, want));
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
                let block = if tried { state.allocate(&self.queue, layout, owner, want) } else { None };
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
