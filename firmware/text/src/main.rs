//! A heap's three functions and nothing else: not to be run, but weighed. `.text` and `.rodata` of this program are what
//! init, alloc and free take, linked with everything they need (memory-clearing included).
//!
//! This weighs ours alone, for every board. `benches/size` weighs ours beside peers, on one target; the peers' crates stay
//! out of this.
#![no_std]
#![no_main]

use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::panic::PanicInfo;
use core::ptr::{self, NonNull};

use terrace_core::heap::RegionHeap;

#[cfg(not(any(feature = "bounded", feature = "small")))]
type Weighed = RegionHeap;
#[cfg(feature = "bounded")]
type Weighed = RegionHeap<terrace_core::heap::Bounded>;
#[cfg(feature = "small")]
type Weighed = RegionHeap<terrace_core::heap::Small>;

struct Bare(UnsafeCell<Weighed>);

// SAFETY: the functions below say that they are called on one core, one at a time.
unsafe impl Sync for Bare {}

static HEAP: Bare = Bare(UnsafeCell::new(RegionHeap::empty()));

#[allow(clippy::mut_from_ref, reason = "the reference lives for one call, and calls do not nest")]
fn heap() -> &'static mut Weighed {
    // SAFETY: one core, one call at a time: there is no other reference.
    unsafe { &mut *HEAP.0.get() }
}

/// Gives the heap its memory.
///
/// # Safety
/// The bytes are the heap's from now on. One core, one call at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heap_init(base: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { heap().add_region(base, bytes) }.is_ok()
}

/// A block, or null.
///
/// # Safety
/// The two make a layout. One core, one call at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heap_alloc(size: usize, align: usize) -> *mut u8 {
    // SAFETY: the caller's promise.
    let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
    heap().allocate(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
}

/// Takes a block back.
///
/// # Safety
/// It is live and was allocated with this layout. One core, one call at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heap_free(block: NonNull<u8>, size: usize, align: usize) {
    // SAFETY: the caller's promise.
    let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
    // SAFETY: the caller's promise.
    let _known = unsafe { heap().free(block, layout) };
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    loop {}
}
