//! A C++ exception with a message.
//!
//! Promises upward: [`throw`] does not come back where the process has a C++ library; PyTorch turns what it throws into
//! Python's `RuntimeError`. Elsewhere it comes back, and the caller gives null.
//! Asks from below: the GNU C++ library, if it is loaded; the Itanium C++ ABI, by which exceptions are made on Linux.
//!
//! PyTorch does not look whether a pluggable allocator gave null: the tensor is used, and the context dies of an access
//! somewhere later. So the Python package installs the allocation that throws.

use std::ffi::{CStr, CString, c_char, c_void};

/// Bytes of a `std::runtime_error`: a table of functions, and one pointer to the text.
const RUNTIME_ERROR_BYTES: usize = 16;

/// `void* __cxa_allocate_exception(size_t)`
type AllocateException = unsafe extern "C-unwind" fn(usize) -> *mut c_void;
/// `std::runtime_error::runtime_error(const char*)`
type ConstructError = unsafe extern "C-unwind" fn(*mut c_void, *const c_char);
/// `void __cxa_throw(void*, std::type_info*, void (*)(void*))`
type ThrowException = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, *const c_void) -> !;

/// What throwing needs, all there.
struct CxxRuntime {
    make: AllocateException,
    construct: ConstructError,
    throw: ThrowException,
    type_info: *const c_void,
    destruct: *const c_void,
}

/// A symbol of the C++ library.
fn symbol(library: *mut c_void, name: &CStr) -> Option<*const c_void> {
    // SAFETY: a query of a loaded library by a string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast_const())
}

/// The C++ library that the process has loaded; it is not loaded for this.
fn find() -> Option<CxxRuntime> {
    // SAFETY: a query. The reference it takes is kept: the functions stay good.
    let library = unsafe { libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    let make = symbol(library, c"__cxa_allocate_exception")?;
    let construct = symbol(library, c"_ZNSt13runtime_errorC1EPKc")?;
    let throw = symbol(library, c"__cxa_throw")?;
    Some(CxxRuntime {
        // SAFETY: the function of this name in the ABI.
        make: unsafe { std::mem::transmute::<*const c_void, AllocateException>(make) },
        // SAFETY: the constructor of this name; constructors give nothing back on the processors that CUDA is for.
        construct: unsafe { std::mem::transmute::<*const c_void, ConstructError>(construct) },
        // SAFETY: the function of this name in the ABI; it does not return.
        throw: unsafe { std::mem::transmute::<*const c_void, ThrowException>(throw) },
        type_info: symbol(library, c"_ZTISt13runtime_error")?,
        destruct: symbol(library, c"_ZNSt13runtime_errorD1Ev")?,
    })
}

/// Throws `std::runtime_error(message)`, if the process has a C++ library.
pub fn throw(message: String) {
    let Some(library) = find() else { return };
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    // SAFETY: any number of bytes may be asked for.
    let error = unsafe { (library.make)(RUNTIME_ERROR_BYTES) };
    // SAFETY: room for one, and a string that it copies.
    unsafe { (library.construct)(error, text.as_ptr()) };
    // Nothing with an end of its own lives from here on: the exception passes through this frame.
    drop(text);
    // SAFETY: an exception made above, with its own type and destructor.
    unsafe { (library.throw)(error, library.type_info, library.destruct) }
}
