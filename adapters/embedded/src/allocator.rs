//! `allocator_api2::alloc::Allocator` for a locked heap: for the `Vec` and `Box` of `allocator_api2`, hashbrown and bumpalo.
//!
//! Promises upward: a block is a slice of the requested length. A request for 0 bytes never reaches the heap.
//! Asks from below: [`LockedHeap`].

use core::alloc::Layout;
use core::num::NonZeroUsize;
use core::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use terrace_core::heap::HeapConfig;

use crate::free_queue::DeferQueue;
use crate::lock::Lock;
use crate::locked_heap::LockedHeap;

/// A block of 0 bytes: a dangling pointer with the layout's alignment.
fn dangling(layout: Layout) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(
        NonNull::without_provenance(layout.align().try_into().unwrap_or(NonZeroUsize::MIN)),
        0,
    )
}

// SAFETY: a block stays valid while the heap is borrowed, until it is freed; a copy of the reference frees the same blocks;
// blocks have at least the layout's size and its alignment.
unsafe impl<L: Lock, C: HeapConfig, const REGIONS: usize, Q: DeferQueue> Allocator for &LockedHeap<L, C, REGIONS, Q> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(dangling(layout));
        }
        let block = LockedHeap::allocate(self, layout).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: the caller promises that this heap allocated the block with this layout.
            unsafe { self.free(block, layout) };
        }
    }

    unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller promises for `grow` what `resize` asks for.
        unsafe { resize(self, block, old, new) }
    }

    unsafe fn grow_zeroed(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller promises for `grow_zeroed` what `resize` asks for.
        let block = unsafe { resize(self, block, old, new) }?;
        // SAFETY: the block has `new.size()` bytes, and the caller promises that `old.size()` is not more.
        let tail = unsafe { block.cast::<u8>().add(old.size()) };
        // SAFETY: the tail ends where the block does.
        unsafe { tail.write_bytes(0, new.size() - old.size()) };
        Ok(block)
    }

    unsafe fn shrink(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller promises for `shrink` what `resize` asks for.
        unsafe { resize(self, block, old, new) }
    }
}

/// Resizes a block; moves it if the new alignment is larger or either size is 0.
///
/// # Safety
/// This heap must have allocated the live block with the old layout.
unsafe fn resize<L: Lock, C: HeapConfig, const REGIONS: usize, Q: DeferQueue>(
    heap: &LockedHeap<L, C, REGIONS, Q>,
    block: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Result<NonNull<[u8]>, AllocError> {
    // `reallocate` accepts neither a size of 0 nor a larger alignment.
    if old.size() > 0 && new.size() > 0 && new.align() <= old.align() {
        // SAFETY: the caller promises that this heap allocated the live block with `old`; neither size is 0.
        let block = unsafe { heap.reallocate(block, old, new.size()) }.ok_or(AllocError)?;
        return Ok(NonNull::slice_from_raw_parts(block, new.size()));
    }
    let moved = Allocator::allocate(&heap, new)?;
    // SAFETY: two distinct blocks, each of at least the smaller size; with 0 bytes nothing is copied.
    unsafe { moved.cast().copy_from_nonoverlapping(block, old.size().min(new.size())) };
    // SAFETY: the caller promises that the block is live; its bytes were copied, and it is used no more.
    unsafe { Allocator::deallocate(&heap, block, old) };
    Ok(moved)
}
