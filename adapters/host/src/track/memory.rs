//! Memory of the tracker: whole pages, mapped one request at a time.
//!
//! Promises upward: no call takes a lock of the allocator or comes back to it.
//! Asks from below: [`os::map`], [`os::unmap`].

use crate::{os, process};
use allocator_api2::alloc::{AllocError, Allocator};
use core::alloc::Layout;
use core::ptr::NonNull;

/// Pages from the system. The tracker's tables double as they grow, so requests are few.
#[derive(Clone, Copy, Debug)]
pub struct PageMemory;

/// Bytes of the mapping for a layout.
fn mapped(layout: Layout) -> usize {
    layout.size().next_multiple_of(process::page_bytes())
}

// SAFETY: a mapping is valid until it is unmapped, whichever copy of the allocator does so: there is no state.
unsafe impl Allocator for PageMemory {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        if layout.size() == 0 || layout.align() > process::page_bytes() {
            return Err(AllocError);
        }
        let bytes = mapped(layout);
        os::map(bytes).map(|at| NonNull::slice_from_raw_parts(at, bytes)).ok_or(AllocError)
    }

    unsafe fn deallocate(&self, at: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise: the mapping of this layout, which is not used any more.
        unsafe { os::unmap(at, mapped(layout)) };
    }
}
