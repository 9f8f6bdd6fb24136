//! `allocator_api2::alloc::Allocator` for the global heap and for first-class heaps, so that collections can live in
//! either.

use crate::{Global, Heap, api};
use allocator_api2::alloc::{AllocError, Allocator};
use core::alloc::Layout;
use core::ptr::NonNull;

// SAFETY: blocks have the layout's size and alignment and do not move until they are freed; every `Global` is the same
// allocator.
unsafe impl Allocator for Global {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let block = NonNull::new(api::allocate(layout.size(), layout.align())).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let block = NonNull::new(api::allocate_zeroed(layout.size(), layout.align())).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, _: Layout) {
        // SAFETY: the caller's promise.
        unsafe { api::free(block.as_ptr()) };
    }

    unsafe fn grow(&self, block: NonNull<u8>, _: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        unsafe { resize(block, new) }
    }

    unsafe fn shrink(&self, block: NonNull<u8>, _: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise.
        unsafe { resize(block, new) }
    }
}

/// Resizes a block, in place or by moving it; the new layout may have another alignment.
///
/// # Safety
/// The block must be live, and no other thread may use it during the call.
unsafe fn resize(block: NonNull<u8>, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
    // SAFETY: the caller's promise.
    let moved = unsafe { api::resize(block.as_ptr(), new.size(), new.align()) };
    let moved = NonNull::new(moved).ok_or(AllocError)?;
    Ok(NonNull::slice_from_raw_parts(moved, new.size()))
}

// SAFETY: blocks have the layout's size and alignment and do not move until they are freed or the heap is dropped, and
// the borrow that a collection holds keeps the heap from being dropped.
unsafe impl Allocator for &Heap {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let block = Heap::allocate(self, layout).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { Heap::deallocate(self, block, layout) };
    }
}
