//! The heaps, and the functions through which each call goes.
//!
//! Promises upward: a function does its heap's call and nothing else; it has a name of its own in the linked program.
//! [`Calls`] are what programs and workloads are run with, whichever heap is behind them.
//! Asks from below: one core, one call at a time.

use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};

use terrace_core::heap::{Bounded, Fast, HeapConfig, RegionHeap, Small};

/// A heap that only one core uses.
#[derive(Debug)]
pub struct Bare<C: HeapConfig>(UnsafeCell<RegionHeap<C>>);

// SAFETY: callers run on one core, one call at a time.
unsafe impl<C: HeapConfig> Sync for Bare<C> {}

impl<C: HeapConfig> Bare<C> {
    /// Without memory.
    pub const fn empty() -> Self {
        Self(UnsafeCell::new(RegionHeap::empty()))
    }

    #[allow(clippy::mut_from_ref, reason = "the reference lives for one call, and calls do not nest")]
    fn heap(&self) -> &mut RegionHeap<C> {
        // SAFETY: one core, one call at a time: there is no other reference.
        unsafe { &mut *self.0.get() }
    }

    /// Over this memory only. False: it refused it.
    ///
    /// # Safety
    /// As for `RegionHeap::add_region`. Blocks that it had are forgotten.
    pub unsafe fn fresh(&self, memory: NonNull<u8>, bytes: usize) -> bool {
        *self.heap() = RegionHeap::empty();
        // SAFETY: the caller's promise.
        unsafe { self.heap().add_region(memory, bytes) }.is_ok()
    }

    /// Whether the invariants hold.
    pub fn is_sound(&self) -> bool {
        self.heap().check().is_ok()
    }

    /// Whether nothing is live.
    pub fn is_empty(&self) -> bool {
        self.heap().usage().live == 0
    }

    /// A block, or null. The alignment is a power of two, the size at most what a layout can have.
    #[inline(always)]
    pub fn alloc(&self, size: usize, align: usize) -> *mut u8 {
        // SAFETY: the calls below have such sizes and alignments only.
        let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
        self.heap().allocate(layout).map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    /// Takes back a live block, with the layout it was allocated with.
    #[inline(always)]
    pub fn free(&self, block: NonNull<u8>, size: usize, align: usize) {
        // SAFETY: as when it was allocated.
        let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
        // SAFETY: only live blocks come here, with the layout they were allocated with.
        let _known = unsafe { self.heap().free(block, layout) };
    }

    /// Makes a live block larger or smaller where it is.
    #[inline(always)]
    pub fn resize(&self, block: NonNull<u8>, size: usize, align: usize, new: usize) -> bool {
        // SAFETY: as when it was allocated.
        let layout = unsafe { Layout::from_size_align_unchecked(size, align) };
        // SAFETY: only live blocks come here, with the layout they were allocated with.
        unsafe { self.heap().resize(block, layout, new) }.unwrap_or(false)
    }
}

/// Three calls, as a program makes them.
pub trait Caller {
    /// A block, or null.
    fn alloc(&mut self, size: usize, align: usize) -> *mut u8;
    /// Takes a live block back.
    fn free(&mut self, block: NonNull<u8>, size: usize, align: usize);
    /// Makes a live block larger or smaller where it is. False: it cannot.
    fn resize(&mut self, block: NonNull<u8>, size: usize, align: usize, new: usize) -> bool;
}

/// The calls of one heap, and what is done between trials.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// Makes the heap one over this memory only. False: it refused it.
    pub fresh: unsafe fn(NonNull<u8>, usize) -> bool,
    /// Whether its invariants hold.
    pub sound: fn() -> bool,
    /// Whether nothing is live.
    pub empty: fn() -> bool,
    /// See [`Caller::alloc`].
    pub alloc: extern "C" fn(usize, usize) -> *mut u8,
    /// See [`Caller::free`].
    pub free: extern "C" fn(NonNull<u8>, usize, usize),
    /// See [`Caller::resize`].
    pub resize: extern "C" fn(NonNull<u8>, usize, usize, usize) -> bool,
}

impl Caller for Calls {
    fn alloc(&mut self, size: usize, align: usize) -> *mut u8 {
        (self.alloc)(size, align)
    }

    fn free(&mut self, block: NonNull<u8>, size: usize, align: usize) {
        (self.free)(block, size, align);
    }

    fn resize(&mut self, block: NonNull<u8>, size: usize, align: usize, new: usize) -> bool {
        (self.resize)(block, size, align, new)
    }
}

/// A heap that is a static.
pub trait Place {
    /// Its configuration.
    type Config: HeapConfig + 'static;
    /// It.
    fn heap() -> &'static Bare<Self::Config>;
}

impl Calls {
    /// Those of a heap, through functions without a name of their own.
    pub const fn of<P: Place>() -> Self {
        Self {
            // SAFETY: the caller's promise is the same.
            fresh: |memory, bytes| unsafe { P::heap().fresh(memory, bytes) },
            sound: || P::heap().is_sound(),
            empty: || P::heap().is_empty(),
            alloc: alloc::<P>,
            free: free::<P>,
            resize: resize::<P>,
        }
    }
}

#[inline(never)]
extern "C" fn alloc<P: Place>(size: usize, align: usize) -> *mut u8 {
    P::heap().alloc(size, align)
}

#[inline(never)]
extern "C" fn free<P: Place>(block: NonNull<u8>, size: usize, align: usize) {
    P::heap().free(block, size, align);
}

#[inline(never)]
extern "C" fn resize<P: Place>(block: NonNull<u8>, size: usize, align: usize, new: usize) -> bool {
    P::heap().resize(block, size, align, new)
}

/// The calls of a profile's heap, through functions whose names are in the program.
macro_rules! named {
    ($calls:ident $config:ident $place:ident $alloc:ident $free:ident $resize:ident) => {
        struct $place;

        impl Place for $place {
            type Config = $config;

            fn heap() -> &'static Bare<$config> {
                static HEAP: Bare<$config> = Bare::empty();
                &HEAP
            }
        }

        #[unsafe(no_mangle)]
        #[inline(never)]
        extern "C" fn $alloc(size: usize, align: usize) -> *mut u8 {
            $place::heap().alloc(size, align)
        }

        #[unsafe(no_mangle)]
        #[inline(never)]
        extern "C" fn $free(block: NonNull<u8>, size: usize, align: usize) {
            $place::heap().free(block, size, align);
        }

        #[unsafe(no_mangle)]
        #[inline(never)]
        extern "C" fn $resize(block: NonNull<u8>, size: usize, align: usize, new: usize) -> bool {
            $place::heap().resize(block, size, align, new)
        }

        #[doc = concat!("The heap of the profile `", stringify!($config), "`.")]
        pub const $calls: Calls = Calls { alloc: $alloc, free: $free, resize: $resize, ..Calls::of::<$place>() };
    };
}

named!(FAST Fast FastPlace fast_alloc fast_free fast_resize);
named!(BOUNDED Bounded BoundedPlace bounded_alloc bounded_free bounded_resize);
named!(SMALL Small SmallPlace small_alloc small_free small_resize);
