//! The heaps with records for any region, where `measure` has those that the target proposes, of 512 KiB at most.

use core::ptr::NonNull;

use measure::calls::{Bare, Calls};
use terrace_core::heap::{Fast, Small, Wide};

static FAST_HEAP: Bare<Fast<Wide>> = Bare::empty();
static SMALL_HEAP: Bare<Small<Wide>> = Bare::empty();

#[inline(never)]
extern "C" fn fast_alloc(size: usize, align: usize) -> *mut u8 {
    FAST_HEAP.alloc(size, align)
}

#[inline(never)]
extern "C" fn fast_free(block: NonNull<u8>, size: usize, align: usize) {
    FAST_HEAP.free(block, size, align);
}

#[inline(never)]
extern "C" fn fast_resize(block: NonNull<u8>, size: usize, align: usize, new: usize) -> bool {
    FAST_HEAP.resize(block, size, align, new)
}

#[inline(never)]
extern "C" fn small_alloc(size: usize, align: usize) -> *mut u8 {
    SMALL_HEAP.alloc(size, align)
}

#[inline(never)]
extern "C" fn small_free(block: NonNull<u8>, size: usize, align: usize) {
    SMALL_HEAP.free(block, size, align);
}

#[inline(never)]
extern "C" fn small_resize(block: NonNull<u8>, size: usize, align: usize, new: usize) -> bool {
    SMALL_HEAP.resize(block, size, align, new)
}

/// The heap for speed.
pub const FAST: Calls = Calls {
    // SAFETY: the caller's promise is the same.
    fresh: |memory, bytes| unsafe { FAST_HEAP.fresh(memory, bytes) },
    sound: || FAST_HEAP.is_sound(),
    empty: || FAST_HEAP.is_empty(),
    alloc: fast_alloc,
    free: fast_free,
    resize: fast_resize,
};

/// The heap for size.
pub const SMALL: Calls = Calls {
    // SAFETY: the caller's promise is the same.
    fresh: |memory, bytes| unsafe { SMALL_HEAP.fresh(memory, bytes) },
    sound: || SMALL_HEAP.is_sound(),
    empty: || SMALL_HEAP.is_empty(),
    alloc: small_alloc,
    free: small_free,
    resize: small_resize,
};
