//! Other heaps for firmware, behind the same functions.
//!
//! Promises upward: each is used as its documentation says, without a lock.
//! Asks from below: the crates.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};

use measure::calls::Calls;

/// With the lists that its documentation proposes for 32 bits.
type Rlsf = rlsf::Tlsf<'static, u32, u32, 20, 32>;
/// The part below its locks.
type Talc = talc::base::Talc<talc::source::Manual, talc::base::binning::DefaultBinning>;

struct Bare<T>(UnsafeCell<T>);

// SAFETY: `answer` runs once at a time, on one core.
unsafe impl<T> Sync for Bare<T> {}

impl<T> Bare<T> {
    #[allow(clippy::mut_from_ref, reason = "the reference lives for one call, and calls do not nest")]
    fn heap(&self) -> &mut T {
        // SAFETY: one core, one call at a time: there is no other reference.
        unsafe { &mut *self.0.get() }
    }
}

static RLSF_HEAP: Bare<Rlsf> = Bare(UnsafeCell::new(Rlsf::new()));
static TALC_HEAP: Bare<Talc> = Bare(UnsafeCell::new(Talc::new(talc::source::Manual)));

#[inline(always)]
fn layout(size: usize, align: usize) -> Layout {
    // SAFETY: programs and workloads have such sizes and alignments only.
    unsafe { Layout::from_size_align_unchecked(size, align) }
}

fn or_null(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(ptr::null_mut(), NonNull::as_ptr)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn rlsf_alloc(size: usize, align: usize) -> *mut u8 {
    or_null(RLSF_HEAP.heap().allocate(layout(size, align)))
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn rlsf_free(block: NonNull<u8>, _: usize, align: usize) {
    // SAFETY: only live blocks come here, with the alignment they were allocated with.
    unsafe { RLSF_HEAP.heap().deallocate(block, align) }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn talc_alloc(size: usize, align: usize) -> *mut u8 {
    // SAFETY: no size is 0.
    or_null(unsafe { TALC_HEAP.heap().allocate(layout(size, align)) })
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn talc_free(block: NonNull<u8>, size: usize, align: usize) {
    // SAFETY: only live blocks come here, with the layout they were allocated with.
    unsafe { TALC_HEAP.heap().deallocate(block.as_ptr(), layout(size, align)) }
}

/// Neither is resized here.
extern "C" fn refused(_: NonNull<u8>, _: usize, _: usize, _: usize) -> bool {
    false
}

/// rlsf.
pub const RLSF: Calls = Calls {
    fresh: |memory, bytes| {
        *RLSF_HEAP.heap() = Rlsf::new();
        // SAFETY: the caller's promise.
        unsafe { RLSF_HEAP.heap().insert_free_block_ptr(NonNull::slice_from_raw_parts(memory, bytes)) }.is_some()
    },
    sound: || true,
    empty: || true,
    alloc: rlsf_alloc,
    free: rlsf_free,
    resize: refused,
};

/// talc.
pub const TALC: Calls = Calls {
    fresh: |memory, bytes| {
        *TALC_HEAP.heap() = Talc::new(talc::source::Manual);
        // SAFETY: the caller's promise.
        unsafe { TALC_HEAP.heap().claim(memory.as_ptr(), bytes) }.is_some()
    },
    sound: || true,
    empty: || true,
    alloc: talc_alloc,
    free: talc_free,
    resize: refused,
};

/// talc names the library `alloc`, which cannot be linked without one; nothing calls it.
struct Unused;

// SAFETY: gives nothing.
unsafe impl GlobalAlloc for Unused {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static UNUSED: Unused = Unused;
