//! operator new and delete, under the names of the Itanium C++ ABI (which Linux uses on every processor).
//!
//! A failed `new` asks the program's new-handler, then throws `std::bad_alloc`; both live in the C++ library, which is
//! looked up then: C programs need none.

#![allow(non_snake_case, reason = "the names are those of the ABI")]

use crate::c::free;
use core::ffi::{CStr, c_void};
use terrace_host::calls;

/// The new-handler's type.
type Handler = extern "C-unwind" fn();

/// A function of the C++ library.
fn find(name: &CStr) -> *mut c_void {
    // SAFETY: a query; the name is a string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// Calls the program's new-handler; `false` when it has none.
fn handle() -> bool {
    let get = find(c"_ZSt15get_new_handlerv");
    if get.is_null() {
        return false;
    }
    // SAFETY: `std::get_new_handler` takes nothing and returns a function or null.
    let get: extern "C-unwind" fn() -> Option<Handler> = unsafe { core::mem::transmute(get) };
    let Some(handler) = get() else { return false };
    handler();
    true
}

/// Throws `std::bad_alloc`, or ends a process that has no C++ library.
fn throw() -> ! {
    let throw = find(c"_ZSt17__throw_bad_allocv");
    if throw.is_null() {
        terrace_host::report::fatal("operator new: out of memory, and no C++ library to throw", 0);
    }
    // SAFETY: `std::__throw_bad_alloc` takes nothing and does not return.
    let throw: extern "C-unwind" fn() -> ! = unsafe { core::mem::transmute(throw) };
    throw()
}

/// Memory, or what the standard says is done without.
#[cold]
fn new_slowly(bytes: usize, align: usize, throws: bool) -> *mut c_void {
    loop {
        if !handle() {
            if throws {
                throw();
            }
            return core::ptr::null_mut();
        }
        let block = calls::allocate(bytes, align);
        if !block.is_null() {
            return block.cast();
        }
    }
}

#[inline(always)]
fn new(bytes: usize, align: usize, throws: bool) -> *mut c_void {
    let block = if align == 16 { calls::allocate_small(bytes) } else { calls::allocate(bytes, align.max(16)) };
    if block.is_null() { new_slowly(bytes, align.max(16), throws) } else { block.cast() }
}

/// `operator new(size_t)`
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _Znwm(bytes: usize) -> *mut c_void {
    new(bytes, 16, true)
}

/// `operator new(size_t, nothrow_t const&)`
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _ZnwmRKSt9nothrow_t(bytes: usize, _: *const c_void) -> *mut c_void {
    new(bytes, 16, false)
}

/// `operator new(size_t, align_val_t)`
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _ZnwmSt11align_val_t(bytes: usize, align: usize) -> *mut c_void {
    new(bytes, align, true)
}

/// `operator new(size_t, align_val_t, nothrow_t const&)`
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _ZnwmSt11align_val_tRKSt9nothrow_t(
    bytes: usize,
    align: usize,
    _: *const c_void,
) -> *mut c_void {
    new(bytes, align, false)
}

/// `operator new[](size_t)`
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _Znam(bytes: usize) -> *mut c_void {
    new(bytes, 16, true)
}

/// `operator new[](size_t, nothrow_t const&)`
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _ZnamRKSt9nothrow_t(bytes: usize, _: *const c_void) -> *mut c_void {
    new(bytes, 16, false)
}

/// `operator new[](size_t, align_val_t)`
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _ZnamSt11align_val_t(bytes: usize, align: usize) -> *mut c_void {
    new(bytes, align, true)
}

/// `operator new[](size_t, align_val_t, nothrow_t const&)`
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _ZnamSt11align_val_tRKSt9nothrow_t(
    bytes: usize,
    align: usize,
    _: *const c_void,
) -> *mut c_void {
    new(bytes, align, false)
}

/// `operator delete(void*)`
///
/// # Safety
/// A block of the matching `new`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdlPv(block: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// `operator delete(void*, size_t)`
///
/// # Safety
/// A block of the matching `new`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdlPvm(block: *mut c_void, _: usize) {
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// `operator delete(void*, nothrow_t const&)`
///
/// # Safety
/// A block of the matching `new`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdlPvRKSt9nothrow_t(block: *mut c_void, _: *const c_void) {
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// `operator delete(void*, align_val_t)`
///
/// # Safety
/// A block of the matching `new`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdlPvSt11align_val_t(block: *mut c_void, _: usize) {
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// `operator delete(void*, size_t, align_val_t)`
///
/// # Safety
/// A block of the matching `new`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdlPvmSt11align_val_t(block: *mut c_void, _: usize, _: usize) {
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// `operator delete(void*, align_val_t, nothrow_t const&)`
///
/// # Safety
/// A block of the matching `new`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdlPvSt11align_val_tRKSt9nothrow_t(block: *mut c_void, _: usize, _: *const c_void) {
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// `operator delete[](void*)`
///
/// # Safety
/// A block of the matching `new`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdaPv(block: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// `operator delete[](void*, size_t)`
///
/// # Safety
/// A block of the matching `new`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdaPvm(block: *mut c_void, _: usize) {
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// `operator delete[](void*, nothrow_t const&)`
///
/// # Safety
/// A block of the matching `new`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdaPvRKSt9nothrow_t(block: *mut c_void, _: *const c_void) {
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// `operator delete[](void*, align_val_t)`
///
/// # Safety
/// A block of the matching `new`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdaPvSt11align_val_t(block: *mut c_void, _: usize) {
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// `operator delete[](void*, size_t, align_val_t)`
///
/// # Safety
/// A block of the matching `new`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdaPvmSt11align_val_t(block: *mut c_void, _: usize, _: usize) {
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}

/// `operator delete[](void*, align_val_t, nothrow_t const&)`
///
/// # Safety
/// A block of the matching `new`, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _ZdaPvSt11align_val_tRKSt9nothrow_t(block: *mut c_void, _: usize, _: *const c_void) {
    // SAFETY: the caller's promise.
    unsafe { free(block) };
}
