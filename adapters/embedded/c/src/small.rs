//! The functions of the smallest library: one region, neither hooks nor statistics.
//!
//! Promises upward: what the header says of them. Each function is linked only if the program calls it.
//! Asks from below: one `HeaderHeap`, the program's lock.

use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};

use embedded::{HeaderHeap, Locked, RegionError};

use crate::InitResult;
use crate::lock::ProgramLock;
use crate::malloc::{Config, HEADER, terrace_malloc};

static HEAP: Locked<ProgramLock, HeaderHeap<Config>> = Locked::new(HeaderHeap::empty());

/// Runs `run` while holding the lock.
#[inline(always)]
fn locked<R>(run: impl FnOnce(&mut HeaderHeap<Config>) -> R) -> R {
    // SAFETY: the closures of this library do not call `locked`.
    unsafe { HEAP.with(run) }
}

/// Whether what is freed can be a block, where frees are checked: it is aligned, and its header lies in the region.
fn may_be_block(heap: &HeaderHeap<Config>, block: NonNull<u8>) -> bool {
    let header = [HEADER, 1].map(|back| NonNull::new(block.as_ptr().wrapping_sub(back)));
    let inside = |at: Option<NonNull<u8>>| at.is_some_and(|at| heap.contains(at));
    !cfg!(feature = "checked") || block.addr().get().is_multiple_of(HEADER) && header.into_iter().all(inside)
}

/// See the header.
///
/// # Safety
/// From now on the bytes must be readable and writable, and only the heap and the users of its blocks may access them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_init(start: *mut c_void, bytes: usize) -> InitResult {
    let Some(start) = NonNull::new(start.cast()) else { return InitResult::Null };
    // SAFETY: the caller's promise.
    match locked(|heap| unsafe { heap.add_region(start, bytes) }) {
        Ok(()) => InitResult::Ok,
        Err(RegionError::TooSmall) => InitResult::TooSmall,
        Err(RegionError::TooLarge { .. }) => InitResult::TooLarge,
        Err(RegionError::Overlaps | RegionError::TooMany) => InitResult::AlreadyInitialised,
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_memalign(align: usize, bytes: usize) -> *mut c_void {
    locked(|heap| heap.allocate(bytes, align)).map_or(ptr::null_mut(), |block| block.as_ptr().cast())
}

/// See the header.
///
/// # Safety
/// `block` must be null, or a live block that is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_free(block: *mut c_void) {
    let Some(block) = NonNull::new(block.cast::<u8>()) else { return };
    locked(|heap| {
        if may_be_block(heap, block) {
            // SAFETY: the caller's promise.
            let _refused = unsafe { heap.free(block) };
        }
    });
}

/// See the header.
///
/// # Safety
/// `block` must be null or live. Only the returned pointer may be used afterwards, unless it is null and `bytes` is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(old) = NonNull::new(block.cast::<u8>()) else { return terrace_malloc(bytes) };
    if bytes == 0 {
        // SAFETY: the caller's promise.
        unsafe { terrace_free(block) };
        return ptr::null_mut();
    }
    let resized = locked(|heap| {
        if !may_be_block(heap, old) {
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe { heap.reallocate(old, bytes) }.ok().flatten()
    });
    resized.map_or(ptr::null_mut(), |block| block.as_ptr().cast())
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_check() -> c_int {
    c_int::from(locked(|heap| heap.check()).is_ok())
}
