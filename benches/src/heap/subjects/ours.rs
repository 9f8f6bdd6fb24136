//! terrace's heap, in any configuration.

#![allow(unsafe_code, reason = "memory is given, and blocks are taken back, by pointers")]

use super::Subject;
use std::alloc::Layout;
use std::ptr::NonNull;
use terrace_core::heap::{HeapConfig, RegionHeap};

impl<C: HeapConfig> Subject for RegionHeap<C> {
    type Block = NonNull<u8>;

    unsafe fn over(start: NonNull<u8>, bytes: usize) -> Option<Self> {
        let mut heap = Self::empty();
        // SAFETY: the caller's promise.
        unsafe { heap.add_region(start, bytes) }.ok()?;
        Some(heap)
    }

    #[inline(always)]
    fn allocate(&mut self, layout: Layout) -> Option<NonNull<u8>> {
        Self::allocate(self, layout)
    }

    #[inline(always)]
    unsafe fn free(&mut self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        let freed = unsafe { Self::free(self, block, layout) };
        debug_assert!(freed.is_ok());
    }

    unsafe fn grow(&mut self, block: NonNull<u8>, layout: Layout, size: usize) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise.
        unsafe { self.reallocate(block, layout, size) }.ok()?
    }
}
