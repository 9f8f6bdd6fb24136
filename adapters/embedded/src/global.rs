//! `GlobalAlloc` for a locked heap.
//!
//! Promises upward: null when no block is large enough; never a panic.
//! Asks from below: [`LockedHeap`].

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};

use terrace_core::heap::HeapConfig;

use crate::free_queue::DeferQueue;
use crate::lock::Lock;
use crate::locked_heap::LockedHeap;
use crate::tasks::TaskAccounts;

// SAFETY: blocks do not overlap, have at least the layout's size and its alignment; `reallocate` keeps a block's contents.
// Nothing unwinds: this crate does not panic, and a panic in a hook aborts.
unsafe impl<L: Lock, C: HeapConfig, const REGIONS: usize, Q: DeferQueue, T: TaskAccounts> GlobalAlloc
    for LockedHeap<L, C, REGIONS, Q, T>
{
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.allocate(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(block) = NonNull::new(block) {
            // SAFETY: the caller of `dealloc` promises what `free` asks for.
            unsafe { self.free(block, layout) };
        }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let Some(block) = NonNull::new(block) else { return ptr::null_mut() };
        // SAFETY: the caller of `realloc` promises what `reallocate` asks for.
        unsafe { self.reallocate(block, layout, bytes) }.map_or(ptr::null_mut(), NonNull::as_ptr)
    }
}
