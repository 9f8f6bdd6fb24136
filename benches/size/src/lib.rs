//! One heap, chosen by a feature, behind three functions: `init(base, bytes)`, `alloc(size, align)`, `free(ptr, size,
//! align)`. Linked with unused sections dropped, what stays is what a firmware would pay.
//!
//! This weighs ours beside peers, on one target. `firmware/text` weighs ours alone, for every board, and needs no peer's
//! crate.
#![no_std]

use core::alloc::Layout;
use core::ptr::{NonNull, null_mut};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[cfg(feature = "fast-narrow")]
type Heap = terrace_core::heap::RegionHeap<terrace_core::heap::Fast<terrace_core::heap::Narrow>>;
#[cfg(feature = "small-narrow")]
type Heap = terrace_core::heap::RegionHeap<terrace_core::heap::Small<terrace_core::heap::Narrow>>;
#[cfg(feature = "bounded-narrow")]
type Heap = terrace_core::heap::RegionHeap<terrace_core::heap::Bounded<terrace_core::heap::Narrow>>;
#[cfg(any(feature = "fast-narrow", feature = "bounded-narrow", feature = "small-narrow"))]
mod face {
    use super::*;

    pub static mut HEAP: Heap = Heap::empty();

    pub unsafe fn init(heap: &mut Heap, base: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { heap.add_region(base, bytes) }.is_ok()
    }

    pub unsafe fn allocate(heap: &mut Heap, layout: Layout) -> Option<NonNull<u8>> {
        heap.allocate(layout)
    }

    pub unsafe fn free(heap: &mut Heap, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        let _ = unsafe { heap.free(block, layout) };
    }
}

/// talc names the library `alloc`, which cannot be linked without one; nothing calls it, so it is dropped.
#[cfg(feature = "talc")]
mod unused {
    use core::alloc::{GlobalAlloc, Layout};

    struct Unused;

    // SAFETY: gives nothing.
    unsafe impl GlobalAlloc for Unused {
        unsafe fn alloc(&self, _: Layout) -> *mut u8 {
            core::ptr::null_mut()
        }
        unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
    }

    #[global_allocator]
    static UNUSED: Unused = Unused;
}

#[cfg(feature = "rlsf")]
type Heap = rlsf::Tlsf<'static, u32, u32, 20, 32>;
#[cfg(feature = "rlsf")]
mod face {
    use super::*;

    pub static mut HEAP: Heap = Heap::new();

    pub unsafe fn init(heap: &mut Heap, base: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { heap.insert_free_block_ptr(NonNull::slice_from_raw_parts(base, bytes)) }.is_some()
    }

    pub unsafe fn allocate(heap: &mut Heap, layout: Layout) -> Option<NonNull<u8>> {
        heap.allocate(layout)
    }

    pub unsafe fn free(heap: &mut Heap, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { heap.deallocate(block, layout.align()) }
    }
}

#[cfg(feature = "talc")]
type Heap = talc::base::Talc<talc::source::Manual, talc::base::binning::DefaultBinning>;
#[cfg(feature = "talc")]
mod face {
    use super::*;

    pub static mut HEAP: Heap = Heap::new(talc::source::Manual);

    pub unsafe fn init(heap: &mut Heap, base: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: the caller's promise.
        unsafe { heap.claim(base.as_ptr(), bytes) }.is_some()
    }

    pub unsafe fn allocate(heap: &mut Heap, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the caller's promise: no size is 0.
        unsafe { heap.allocate(layout) }
    }

    pub unsafe fn free(heap: &mut Heap, block: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { heap.deallocate(block.as_ptr(), layout) }
    }
}

fn heap() -> &'static mut Heap {
    let heap = &raw mut face::HEAP;
    // SAFETY: the functions below are called by one thread, one at a time.
    unsafe { &mut *heap }
}

/// # Safety
/// Once, with memory that is the heap's alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn init(base: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { face::init(heap(), base, bytes) }
}

/// # Safety
/// After `init`; the alignment is a power of two, the size not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn alloc(size: usize, align: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
    // SAFETY: the caller's promise.
    unsafe { face::allocate(heap(), layout) }.map_or(null_mut(), NonNull::as_ptr)
}

/// # Safety
/// A live block with its size and alignment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: NonNull<u8>, size: usize, align: usize) {
    // SAFETY: the caller's promise.
    let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
    // SAFETY: the caller's promise.
    unsafe { face::free(heap(), block, layout) }
}
