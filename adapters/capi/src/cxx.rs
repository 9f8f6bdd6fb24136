//! operator new and delete, under the names of the Itanium C++ ABI (which Linux uses on every processor).
//!
//! The forms of `new` that must not throw are the C++ library's own: they call the throwing ones, which are ours, and catch
//! what those or the program's new-handler throw, which Rust cannot.
//!
//! A failed `new` asks the program's new-handler, then throws `std::bad_alloc`; both live in the C++ library, which C
//! programs need not have.

#![allow(non_snake_case, reason = "the names are those of the ABI")]

use crate::malloc::free;
use core::ffi::{CStr, c_void};
use terrace_host::api;

/// The new-handler's type.
type NewHandler = extern "C-unwind" fn();

// Addresses of two functions of the C++ library, where it is linked or loaded with the program; 0 where it is not.
core::arch::global_asm!(
    ".pushsection .data.rel.ro,\"aw\",@progbits",
    ".p2align 3",
    ".weak _ZSt15get_new_handlerv",
    ".weak _ZSt17__throw_bad_allocv",
    ".hidden terrace_malloc_cxx",
    ".globl terrace_malloc_cxx",
    "terrace_malloc_cxx:",
    ".quad _ZSt15get_new_handlerv",
    ".quad _ZSt17__throw_bad_allocv",
    ".popsection",
);

unsafe extern "C" {
    static terrace_malloc_cxx: [usize; 2];
}

/// `std::get_new_handler`.
const GET_NEW_HANDLER: (usize, &CStr) = (0, c"_ZSt15get_new_handlerv");
/// `std::__throw_bad_alloc`.
const THROW_BAD_ALLOC: (usize, &CStr) = (1, c"_ZSt17__throw_bad_allocv");

/// A function of the C++ library, which may also have been loaded later.
fn cxx_function((at, name): (usize, &CStr)) -> *const c_void {
    // SAFETY: two addresses, written before the program began.
    let linked = unsafe { terrace_malloc_cxx }[at];
    if linked != 0 {
        return core::ptr::with_exposed_provenance(linked);
    }
    // SAFETY: a query; the name is a string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// The program's new-handler, if it has one.
fn new_handler() -> Option<NewHandler> {
    let get = cxx_function(GET_NEW_HANDLER);
    if get.is_null() {
        return None;
    }
    // SAFETY: `std::get_new_handler` takes nothing and returns a function or null.
    let get: extern "C-unwind" fn() -> Option<NewHandler> = unsafe { core::mem::transmute(get) };
    get()
}

/// Throws `std::bad_alloc`, or ends a process that has no C++ library.
fn throw_bad_alloc() -> ! {
    let throw = cxx_function(THROW_BAD_ALLOC);
    if throw.is_null() {
        terrace_host::report::fatal("operator new: out of memory, and no C++ library to throw", 0);
    }
    // SAFETY: `std::__throw_bad_alloc` takes nothing and does not return.
    let throw: extern "C-unwind" fn() -> ! = unsafe { core::mem::transmute(throw) };
    throw()
}

/// Asks the new-handler for memory until there is some, or throws: as the standard says of the forms that throw.
#[cold]
fn new_or_throw(bytes: usize, align: usize) -> *mut c_void {
    loop {
        let Some(handler) = new_handler() else { throw_bad_alloc() };
        handler();
        let block = api::allocate(bytes, align);
        if !block.is_null() {
            return block.cast();
        }
    }
}

#[inline(always)]
fn new(bytes: usize) -> *mut c_void {
    let block = api::allocate_small(bytes);
    if block.is_null() { new_or_throw(bytes, 16) } else { block.cast() }
}

#[inline(always)]
fn new_aligned(bytes: usize, align: usize) -> *mut c_void {
    let block = api::allocate_aligned(bytes, align);
    if block.is_null() { new_or_throw(bytes, align) } else { block.cast() }
}

/// `operator new(size_t)`
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _Znwm(bytes: usize) -> *mut c_void {
    new(bytes)
}

/// `operator new(size_t, align_val_t)`
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _ZnwmSt11align_val_t(bytes: usize, align: usize) -> *mut c_void {
    new_aligned(bytes, align)
}

/// `operator new[](size_t)`
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _Znam(bytes: usize) -> *mut c_void {
    new(bytes)
}

/// `operator new[](size_t, align_val_t)`
#[unsafe(no_mangle)]
pub extern "C-unwind" fn _ZnamSt11align_val_t(bytes: usize, align: usize) -> *mut c_void {
    new_aligned(bytes, align)
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
