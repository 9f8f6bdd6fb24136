//! The heaps, and the functions through which each call goes.
//!
//! Promises upward: a function does its heap's call and nothing else; it has a name of its own in the linked program.
//! Asks from below: one core, one call at a time.

use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};

use terrace_core::heap::{Config, Fast, Heap, Small};

/// A heap that only one core uses.
struct Bare<C>(UnsafeCell<Heap<C>>);

// SAFETY: `measure` says that it runs once at a time, on one core.
unsafe impl<C> Sync for Bare<C> {}

static FAST: Bare<Fast> = Bare(UnsafeCell::new(Heap::empty()));
static SMALL: Bare<Small> = Bare(UnsafeCell::new(Heap::empty()));

impl<C: Config> Bare<C> {
    #[allow(clippy::mut_from_ref, reason = "the reference lives for one call, and calls do not nest")]
    fn heap(&self) -> &mut Heap<C> {
        // SAFETY: one core, one call at a time: there is no other reference.
        unsafe { &mut *self.0.get() }
    }

    /// # Safety
    /// As for `Heap::add_region`. Blocks that it had are forgotten.
    unsafe fn fresh(&self, memory: NonNull<u8>, bytes: usize) -> bool {
        *self.heap() = Heap::empty();
        // SAFETY: the caller's promise.
        unsafe { self.heap().add_region(memory, bytes) }.is_ok()
    }

    #[inline(always)]
    fn alloc(&self, size: usize, align: usize) -> *mut u8 {
        // SAFETY: the calls below have such sizes and alignments only.
        let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
        self.heap().allocate(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    #[inline(always)]
    fn free(&self, block: NonNull<u8>, size: usize, align: usize) {
        // SAFETY: as when it was allocated.
        let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
        // SAFETY: only live blocks come here, with the layout they were allocated with.
        let _known = unsafe { self.heap().free(block, layout) };
    }

    #[inline(always)]
    fn resize(&self, block: NonNull<u8>, size: usize, align: usize, new: usize) -> bool {
        // SAFETY: as when it was allocated.
        let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
        // SAFETY: only live blocks come here, with the layout they were allocated with.
        unsafe { self.heap().resize(block, layout, new) }.unwrap_or(false)
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn fast_alloc(size: usize, align: usize) -> *mut u8 {
    FAST.alloc(size, align)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn fast_free(block: NonNull<u8>, size: usize, align: usize) {
    FAST.free(block, size, align);
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn fast_resize(block: NonNull<u8>, size: usize, align: usize, new: usize) -> bool {
    FAST.resize(block, size, align, new)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn small_alloc(size: usize, align: usize) -> *mut u8 {
    SMALL.alloc(size, align)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn small_free(block: NonNull<u8>, size: usize, align: usize) {
    SMALL.free(block, size, align);
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn small_resize(block: NonNull<u8>, size: usize, align: usize, new: usize) -> bool {
    SMALL.resize(block, size, align, new)
}

/// The three calls of one heap, and what is done between trials.
#[derive(Clone, Copy)]
pub struct Calls {
    /// Makes the heap one over this memory only. False: it refused it.
    pub fresh: unsafe fn(NonNull<u8>, usize) -> bool,
    /// Whether its invariants hold.
    pub sound: fn() -> bool,
    /// Whether nothing is live.
    pub empty: fn() -> bool,
    pub alloc: extern "C" fn(usize, usize) -> *mut u8,
    pub free: extern "C" fn(NonNull<u8>, usize, usize),
    pub resize: extern "C" fn(NonNull<u8>, usize, usize, usize) -> bool,
}

/// The heap for speed.
pub const FAST_CALLS: Calls = Calls {
    // SAFETY: the caller's promise is the same.
    fresh: |memory, bytes| unsafe { FAST.fresh(memory, bytes) },
    sound: || FAST.heap().check().is_ok(),
    empty: || FAST.heap().usage().live == 0,
    alloc: fast_alloc,
    free: fast_free,
    resize: fast_resize,
};

/// The heap for size.
pub const SMALL_CALLS: Calls = Calls {
    // SAFETY: the caller's promise is the same.
    fresh: |memory, bytes| unsafe { SMALL.fresh(memory, bytes) },
    sound: || SMALL.heap().check().is_ok(),
    empty: || SMALL.heap().usage().live == 0,
    alloc: small_alloc,
    free: small_free,
    resize: small_resize,
};
