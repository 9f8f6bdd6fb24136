//! malloc, free, calloc, realloc, reallocarray, as C17, POSIX.1-2024 and glibc's manual describe them.

use core::ffi::c_void;
use core::ptr::null_mut;
use terrace_host::{api, class};

/// Alignment in bytes of every block: that of `max_align_t`.
const ALIGN: usize = 16;

/// Allocates `bytes` bytes at a multiple of 16.
///
/// Without memory sets `errno` to `ENOMEM` and returns null.
#[unsafe(no_mangle)]
pub extern "C" fn malloc(bytes: usize) -> *mut c_void {
    api::allocate_small(bytes).cast()
}

/// Frees a block; does nothing for null.
///
/// # Safety
/// `block` must be null, or a live block of this library.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { api::free(block.cast()) };
}

/// [`free`] under its name in old System V programs.
///
/// # Safety
/// See [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { api::free(block.cast()) };
}

/// Frees a block for which the program requested `_bytes` bytes (C23).
///
/// # Safety
/// See [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_sized(block: *mut c_void, _bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { api::free(block.cast()) };
}

/// Frees a block for which the program requested `_bytes` bytes at a multiple of `_align` (C23).
///
/// # Safety
/// See [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free_aligned_sized(block: *mut c_void, _align: usize, _bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { api::free(block.cast()) };
}

/// Allocates `count` times `bytes` zeros.
///
/// Sets `errno` to `ENOMEM` and returns null without memory, or if the product overflows.
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        Some(bytes) => api::allocate_zeroed_small(bytes).cast(),
        None => out_of_memory(),
    }
}

/// Resizes a block to `bytes` bytes, in place or by moving it.
///
/// Without memory returns null and leaves the block unchanged. Size 0 frees the block and returns null, as glibc does.
///
/// # Safety
/// See [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    if block.is_null() {
        return malloc(bytes);
    }
    if bytes == 0 {
        // SAFETY: the caller's promise.
        unsafe { api::free(block.cast()) };
        return null_mut();
    }
    // SAFETY: the caller's promise.
    unsafe { api::resize(block.cast(), bytes, ALIGN) }.cast()
}

/// Resizes a block to `count` times `bytes` bytes, as [`realloc`] does.
///
/// Sets `errno` to `ENOMEM` and returns null if the product overflows.
///
/// # Safety
/// See [`free`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(block: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: the caller's promise.
        Some(bytes) => unsafe { realloc(block, bytes) },
        None => out_of_memory(),
    }
}

/// Sets `errno` to `ENOMEM` and returns null.
#[cold]
pub fn out_of_memory() -> *mut c_void {
    fail_with(libc::ENOMEM)
}

/// Sets `errno` to `reason` and returns null.
#[cold]
pub fn fail_with(reason: i32) -> *mut c_void {
    // SAFETY: takes nothing, and returns the address of this thread's `errno`.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: `place` points to this thread's `errno`.
    unsafe { *place = reason };
    null_mut()
}

const _: () = assert!(class::size(1) == ALIGN, "every block lies at a multiple of the smallest class");
