//! C++'s operator new and delete, under their names in the Itanium C++ ABI, which Linux uses on every processor.
//!
//! This library does not replace the nothrow forms of `new`. Those of the C++ library call the throwing forms, which
//! are defined here, and catch the exceptions that these, or the program's new-handler, throw. Rust code could not
//! catch them.
//!
//! Without memory, `new` calls the program's new-handler, or throws `std::bad_alloc` if none is installed. The C++
//! library has functions for both. They are looked up at run time, since a C program need not link the C++ library.

#![allow(non_snake_case, reason = "the names are those of the ABI")]

use crate::malloc::free;
use core::ffi::{CStr, c_void};
use terrace_host::api;

/// A new-handler of the program: it frees memory, throws an exception, or ends the program.
type NewHandler = extern "C-unwind" fn();

// Addresses of two functions of the C++ library. The references are weak: the linker writes 0 if no library defines
// them.
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

/// `std::get_new_handler`: index in the array of addresses, and symbol.
const GET_NEW_HANDLER: (usize, &CStr) = (0, c"_ZSt15get_new_handlerv");
/// `std::__throw_bad_alloc`: index in the array of addresses, and symbol.
const THROW_BAD_ALLOC: (usize, &CStr) = (1, c"_ZSt17__throw_bad_allocv");

/// The address of a function of the C++ library; null if the program has not loaded that library, not even by `dlopen`.
fn cxx_function((at, name): (usize, &CStr)) -> *const c_void {
    // SAFETY: the dynamic linker wrote both addresses before the program began.
    let linked = unsafe { terrace_malloc_cxx }[at];
    if linked != 0 {
        return core::ptr::with_exposed_provenance(linked);
    }
    // SAFETY: the name is a C string.
    unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
}

/// The program's new-handler, if it installed one.
fn new_handler() -> Option<NewHandler> {
    let get = cxx_function(GET_NEW_HANDLER);
    if get.is_null() {
        return None;
    }
    // SAFETY: `std::get_new_handler` takes nothing and returns a function or null.
    let get: extern "C-unwind" fn() -> Option<NewHandler> = unsafe { core::mem::transmute(get) };
    get()
}

/// Throws `std::bad_alloc`; aborts the process if it has no C++ library.
fn throw_bad_alloc() -> ! {
    let throw = cxx_function(THROW_BAD_ALLOC);
    if throw.is_null() {
        terrace_host::report::fatal("operator new: out of memory, and no C++ library to throw", 0);
    }
    // SAFETY: `std::__throw_bad_alloc` takes nothing and does not return.
    let throw: extern "C-unwind" fn() -> ! = unsafe { core::mem::transmute(throw) };
    throw()
}

/// Calls the new-handler and tries to allocate, in turn, until that succeeds; throws if there is no handler. The C++
/// standard demands this.
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

/// Allocates a block at a multiple of 16, or throws.
#[inline(always)]
fn new(bytes: usize) -> *mut c_void {
    let block = api::allocate_small(bytes);
    if block.is_null() { new_or_throw(bytes, 16) } else { block.cast() }
}

/// Allocates a block at a multiple of `align`, or throws.
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

/// Defines forms of `operator delete`, all of which free the block and ignore their other arguments.
macro_rules! operator_delete {
    ($($form:literal $name:ident($($ignored:ty),*);)*) => {$(
        #[doc = $form]
        ///
        /// # Safety
        /// `block` must be null, or a live block that the matching `new` allocated.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(block: *mut c_void $(, _: $ignored)*) {
            // SAFETY: the caller's promise.
            unsafe { free(block) };
        }
    )*};
}

operator_delete! {
    "`operator delete(void*)`" _ZdlPv();
    "`operator delete(void*, size_t)`" _ZdlPvm(usize);
    "`operator delete(void*, nothrow_t const&)`" _ZdlPvRKSt9nothrow_t(*const c_void);
    "`operator delete(void*, align_val_t)`" _ZdlPvSt11align_val_t(usize);
    "`operator delete(void*, size_t, align_val_t)`" _ZdlPvmSt11align_val_t(usize, usize);
    "`operator delete(void*, align_val_t, nothrow_t const&)`" _ZdlPvSt11align_val_tRKSt9nothrow_t(usize, *const c_void);
    "`operator delete[](void*)`" _ZdaPv();
    "`operator delete[](void*, size_t)`" _ZdaPvm(usize);
    "`operator delete[](void*, nothrow_t const&)`" _ZdaPvRKSt9nothrow_t(*const c_void);
    "`operator delete[](void*, align_val_t)`" _ZdaPvSt11align_val_t(usize);
    "`operator delete[](void*, size_t, align_val_t)`" _ZdaPvmSt11align_val_t(usize, usize);
    "`operator delete[](void*, align_val_t, nothrow_t const&)`" _ZdaPvSt11align_val_tRKSt9nothrow_t(usize, *const c_void);
}
