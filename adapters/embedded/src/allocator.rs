//! The face for collections: `allocator_api2::alloc::Allocator`, which `allocator_api2`'s own `Vec` and `Box`, hashbrown
//! and bumpalo take.
//!
//! Promises upward: as many bytes as asked for; none cost nothing.
//! Asks from below: [`LockedHeap`].

use core::alloc::Layout;
use core::num::NonZeroUsize;
use core::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use terrace_core::heap::Config;

use crate::free_queue::DeferQueue;
use crate::lock::Lock;
use crate::locked_heap::LockedHeap;

/// What stands for a block without bytes: an address of the layout's alignment.
fn dangling(layout: Layout) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(
        NonNull::without_provenance(layout.align().try_into().unwrap_or(NonZeroUsize::MIN)),
        0,
    )
}

// SAFETY: a block stays where it is until it is freed, as long as the heap is borrowed; a copy of the reference is the same
// allocator; blocks have at least the layout's size and its alignment.
unsafe impl<L: Lock, C: Config, const REGIONS: usize, Q: DeferQueue> Allocator for &LockedHeap<L, C, REGIONS, Q> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(dangling(layout));
        }
        let block = LockedHeap::allocate(self, layout).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: the caller's promise, which is the same.
            unsafe { self.free(block, layout) };
        }
    }

    unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise, which is the same.
        unsafe { resize(self, block, old, new) }
    }

    unsafe fn grow_zeroed(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise, which is the same.
        let block = unsafe { resize(self, block, old, new) }?;
        let rest = new.size() - old.size();
        // SAFETY: a block that grew has so many bytes behind those it had.
        let behind = unsafe { block.cast::<u8>().add(old.size()) };
        // SAFETY: the bytes up to the new size are the caller's.
        unsafe { behind.write_bytes(0, rest) };
        Ok(block)
    }

    unsafe fn shrink(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller's promise, which is the same.
        unsafe { resize(self, block, old, new) }
    }
}

/// # Safety
/// The block was given by this heap for the old layout.
unsafe fn resize<L: Lock, C: Config, const REGIONS: usize, Q: DeferQueue>(
    heap: &LockedHeap<L, C, REGIONS, Q>,
    block: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Result<NonNull<[u8]>, AllocError> {
    // A block can be resized when there is one before and after, and its alignment is enough.
    if old.size() > 0 && new.size() > 0 && new.align() <= old.align() {
        // SAFETY: the caller's promise, and neither has no bytes.
        let block = unsafe { heap.reallocate(block, old, new.size()) }.ok_or(AllocError)?;
        return Ok(NonNull::slice_from_raw_parts(block, new.size()));
    }
    let moved = Allocator::allocate(&heap, new)?;
    // SAFETY: two blocks of at least so many bytes, which is none where one has none.
    unsafe { moved.cast().copy_from_nonoverlapping(block, old.size().min(new.size())) };
    // SAFETY: the caller's promise; its bytes are used no more.
    unsafe { Allocator::deallocate(&heap, block, old) };
    Ok(moved)
}
