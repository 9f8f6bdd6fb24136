//! `allocator_api2::alloc::Allocator` for a locked heap: for the `Vec` and `Box` of `allocator_api2`, hashbrown and bumpalo.
//!
//! Promises upward: a block is a slice of the requested length. A request for 0 bytes never reaches the heap.
//! Asks from below: [`LockedHeap`].

use core::alloc::Layout;
use core::num::NonZeroUsize;
use core::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};
use terrace_core::heap::HeapConfig;

use crate::capabilities::MemoryCaps;
use crate::free_queue::DeferQueue;
use crate::lock::Lock;
use crate::locked_heap::LockedHeap;
use crate::state::Want;
use crate::tasks::TaskAccounts;

/// A block of 0 bytes: a dangling pointer with the layout's alignment.
fn dangling(layout: Layout) -> NonNull<[u8]> {
    NonNull::slice_from_raw_parts(
        NonNull::without_provenance(layout.align().try_into().unwrap_or(NonZeroUsize::MIN)),
        0,
    )
}

/// A heap for collections whose blocks lie in certain regions: [`LockedHeap::within`].
///
/// ```
/// # #[cfg(feature = "critical-section")] {
/// use allocator_api2::vec::Vec;
/// use terrace_embedded::{MemoryCaps, Bounded, FirmwareHeap, heap_arena};
/// static HEAP: FirmwareHeap<Bounded, 2> = FirmwareHeap::empty();
/// heap_arena!(HEAP, 4096, MemoryCaps::INTERNAL)?;
/// heap_arena!(HEAP, 65536, MemoryCaps::EXTERNAL)?;
///
/// let mut samples = Vec::new_in(HEAP.within(&[MemoryCaps::EXTERNAL]));
/// samples.extend(0..1000u32);
/// assert!(HEAP.usage_of(MemoryCaps::EXTERNAL).live >= 4000 && HEAP.usage_of(MemoryCaps::INTERNAL).live == 0);
/// # }
/// # Ok::<(), terrace_embedded::InitError>(())
/// ```
#[derive(Debug)]
pub struct Within<'a, L, C, const REGIONS: usize, Q, T> {
    heap: &'a LockedHeap<L, C, REGIONS, Q, T>,
    want: Want<'a>,
}

impl<L, C, const REGIONS: usize, Q, T> Clone for Within<'_, L, C, REGIONS, Q, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L, C, const REGIONS: usize, Q, T> Copy for Within<'_, L, C, REGIONS, Q, T> {}

impl<L: Lock, C: HeapConfig, const REGIONS: usize, Q: DeferQueue, T: TaskAccounts> LockedHeap<L, C, REGIONS, Q, T> {
    /// This heap for a collection whose blocks lie in regions that `want` names.
    ///
    /// `want` is a list as in [`LockedHeap::allocate_in`].
    ///
    /// Only with feature `allocator-api2`.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use allocator_api2::boxed::Box;
    /// # use terrace_embedded::{MemoryCaps, FirmwareHeap, heap_arena};
    /// # static HEAP: FirmwareHeap = FirmwareHeap::empty();
    /// heap_arena!(HEAP, 4096, MemoryCaps::DMA)?;
    /// let buffer = Box::new_in([0u8; 512], HEAP.within(&[MemoryCaps::DMA]));
    /// assert!(HEAP.contains(buffer.as_ptr()));
    /// assert!(Box::try_new_in(0u8, HEAP.within(&[MemoryCaps::EXTERNAL])).is_err(), "there is none");
    /// # }
    /// # Ok::<(), terrace_embedded::InitError>(())
    /// ```
    pub const fn within<'a>(&'a self, want: &'a [MemoryCaps]) -> Within<'a, L, C, REGIONS, Q, T> {
        Within { heap: self, want: Some(want) }
    }
}

// SAFETY: a block stays valid while the heap is borrowed, until it is freed; a copy of the reference frees the same blocks;
// blocks have at least the layout's size and its alignment.
unsafe impl<L: Lock, C: HeapConfig, const REGIONS: usize, Q: DeferQueue, T: TaskAccounts> Allocator
    for Within<'_, L, C, REGIONS, Q, T>
{
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 {
            return Ok(dangling(layout));
        }
        let block = self.heap.request(layout, self.want).ok_or(AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        if layout.size() > 0 {
            // SAFETY: the caller promises that this heap allocated the block with this layout.
            unsafe { self.heap.free(block, layout) };
        }
    }

    unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller promises for `grow` what `resize` asks for.
        unsafe { resize(*self, block, old, new) }
    }

    unsafe fn grow_zeroed(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller promises for `grow_zeroed` what `resize` asks for.
        let block = unsafe { resize(*self, block, old, new) }?;
        // SAFETY: the block has `new.size()` bytes, and the caller promises that `old.size()` is not more.
        let tail = unsafe { block.cast::<u8>().add(old.size()) };
        // SAFETY: the tail ends where the block does.
        unsafe { tail.write_bytes(0, new.size() - old.size()) };
        Ok(block)
    }

    unsafe fn shrink(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: the caller promises for `shrink` what `resize` asks for.
        unsafe { resize(*self, block, old, new) }
    }
}

// SAFETY: a block stays valid while the heap is borrowed, until it is freed; a copy of the reference frees the same blocks;
// blocks are those of `Within`.
unsafe impl<L: Lock, C: HeapConfig, const REGIONS: usize, Q: DeferQueue, T: TaskAccounts> Allocator
    for &LockedHeap<L, C, REGIONS, Q, T>
{
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        anywhere(self).allocate(layout)
    }

    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller promises for this heap what `Within` asks for.
        unsafe { anywhere(self).deallocate(block, layout) };
    }

    unsafe fn grow(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: as above.
        unsafe { anywhere(self).grow(block, old, new) }
    }

    unsafe fn grow_zeroed(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: as above.
        unsafe { anywhere(self).grow_zeroed(block, old, new) }
    }

    unsafe fn shrink(&self, block: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        // SAFETY: as above.
        unsafe { anywhere(self).shrink(block, old, new) }
    }
}

/// A heap whose blocks lie where its preference leads.
fn anywhere<L, C, const REGIONS: usize, Q, T>(
    heap: &LockedHeap<L, C, REGIONS, Q, T>,
) -> Within<'_, L, C, REGIONS, Q, T> {
    Within { heap, want: None }
}

/// Resizes a block; moves it if the new alignment is larger or either size is 0.
///
/// # Safety
/// This heap must have allocated the live block with the old layout.
unsafe fn resize<L: Lock, C: HeapConfig, const REGIONS: usize, Q: DeferQueue, T: TaskAccounts>(
    at: Within<'_, L, C, REGIONS, Q, T>,
    block: NonNull<u8>,
    old: Layout,
    new: Layout,
) -> Result<NonNull<[u8]>, AllocError> {
    // `resize` of the heap accepts neither a size of 0 nor a larger alignment.
    if old.size() > 0 && new.size() > 0 && new.align() <= old.align() {
        // SAFETY: the caller promises that this heap allocated the live block with `old`; neither size is 0.
        let block = unsafe { at.heap.resize(block, old, new.size(), at.want) }.ok_or(AllocError)?;
        return Ok(NonNull::slice_from_raw_parts(block, new.size()));
    }
    let moved = at.allocate(new)?;
    // SAFETY: two distinct blocks, each of at least the smaller size; with 0 bytes nothing is copied.
    unsafe { moved.cast().copy_from_nonoverlapping(block, old.size().min(new.size())) };
    // SAFETY: the caller promises that the block is live; its bytes were copied, and it is used no more.
    unsafe { at.deallocate(block, old) };
    Ok(moved)
}
