//! C's functions for aligned blocks: aligned_alloc, memalign, posix_memalign, valloc, pvalloc.

use crate::malloc::{fail_with, out_of_memory};
use core::ffi::{c_int, c_void};
use terrace_host::api;

/// Bytes of the system's page.
fn page() -> usize {
    // SAFETY: sysconf only reads a setting.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Allocates `bytes` bytes at a multiple of `align`, rounded up to a power of two, as glibc does.
///
/// Returns null and sets `errno` to `EINVAL` if no power of two in a `usize` is as large as `align`.
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    match align.checked_next_power_of_two() {
        Some(align) => api::allocate_aligned(bytes, align).cast(),
        None => fail_with(libc::EINVAL),
    }
}

/// Allocates `bytes` bytes at a multiple of `align`.
///
/// Returns null and sets `errno` to `EINVAL` if `align` is no power of two.
///
/// The size need not be a multiple of the alignment, as C17 allows.
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    if align.is_power_of_two() { api::allocate_aligned(bytes, align).cast() } else { fail_with(libc::EINVAL) }
}

/// Allocates `bytes` bytes at a multiple of `align`, and writes their address to `*block`.
///
/// Returns 0 on success; `EINVAL` if `align` is no power of two or smaller than a pointer; `ENOMEM` without memory.
/// Never changes `errno`, and leaves `*block` unchanged when it fails.
///
/// # Safety
/// `block` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(block: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    if !align.is_power_of_two() || align < size_of::<*mut c_void>() {
        return libc::EINVAL;
    }
    // SAFETY: takes nothing, and returns the address of this thread's `errno`.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` points to this thread's `errno`.
    let before = unsafe { *errno };
    let found = api::allocate_aligned(bytes, align);
    if found.is_null() {
        // SAFETY: `errno` points to this thread's `errno`.
        unsafe { *errno = before };
        return libc::ENOMEM;
    }
    // SAFETY: the caller's promise.
    unsafe { *block = found.cast() };
    0
}

/// Allocates `bytes` bytes at the start of a page.
#[unsafe(no_mangle)]
pub extern "C" fn valloc(bytes: usize) -> *mut c_void {
    api::allocate(bytes, page()).cast()
}

/// Allocates `bytes` bytes, rounded up to whole pages (at least one), at the start of a page.
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.max(1).checked_next_multiple_of(page()) {
        Some(bytes) => api::allocate(bytes, page()).cast(),
        None => out_of_memory(),
    }
}
