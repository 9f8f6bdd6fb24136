//! The allocator for Rust programs: `#[global_allocator]`.

use crate::{api, class};
use core::alloc::{GlobalAlloc, Layout};

/// The allocator for `#[global_allocator]`; the compiler computes the class of a constant size.
///
/// # Example
/// ```
/// #[global_allocator]
/// static A: terrace_host::Global = terrace_host::Global::new();
///
/// let text = String::from("in a terrace block");
/// assert!(terrace_host::stats().live_blocks > 0, "{text}");
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Global(());

impl Global {
    /// Makes a handle to the process's one allocator; all handles are equivalent.
    pub const fn new() -> Self {
        Self(())
    }

    /// The tracker of what all of the process's threads allocate.
    #[cfg(feature = "track")]
    pub const fn tracker() -> &'static crate::HeapTracker {
        crate::track::HEAP_TRACKER
    }
}

// SAFETY: blocks have the layout's size and alignment (`class::of_layout`), are live until they are freed, and no call
// panics.
unsafe impl GlobalAlloc for Global {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        api::allocate_of(class::of_layout(layout), layout.size(), layout.align())
    }

    #[inline(always)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        api::free_class(block, class::of_layout(layout));
    }

    #[inline(always)]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        api::allocate_zeroed_of(class::of_layout(layout), layout.size(), layout.align())
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        let (before, after) = (class::of_layout(layout), class::serving(bytes, layout.align()));
        if before == after && before != class::NONE {
            return block;
        }
        // SAFETY: the caller's promise: a live block of this layout.
        unsafe { api::move_block(block, before, layout.size(), bytes, layout.align()) }
    }
}
