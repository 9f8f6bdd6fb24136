//! Throws a C++ exception with a message.
//!
//! Promises upward: if the process has loaded the GNU C++ library, [`throw`] does not return, and PyTorch turns the
//! exception into Python's `RuntimeError`. Otherwise [`throw`] returns, and its caller must return null.
//! Asks from below: the GNU C++ library, if it is loaded; the Itanium C++ ABI, which defines exceptions on Linux.
//!
//! PyTorch does not check whether a pluggable allocator returned null: it uses the tensor, and a later access destroys
//! the CUDA context. So the Python package installs the allocation function that throws.

use std::ffi::{CStr, CString, c_char, c_void};

/// Bytes of a `std::runtime_error`: a vtable pointer and a pointer to the text.
const RUNTIME_ERROR_BYTES: usize = 16;

/// `void* __cxa_allocate_exception(size_t)`
type AllocateException = unsafe extern "C-unwind" fn(usize) -> *mut c_void;
/// `std::runtime_error::runtime_error(const char*)`
type ConstructError = unsafe extern "C-unwind" fn(*mut c_void, *const c_char);
/// `void __cxa_throw(void*, std::type_info*, void (*)(void*))`
type ThrowException = unsafe extern "C-unwind" fn(*mut c_void, *const c_void, *const c_void) -> !;

/// The functions and type data of the C++ library that throwing needs.
struct CxxRuntime {
    make: AllocateException,
    construct: ConstructError,
    throw: ThrowException,
    type_info: *const c_void,
    destruct: *const c_void,
}

/// Looks up a symbol of the C++ library.
fn symbol(library: *mut c_void, name: &CStr) -> Option<*const c_void> {
    // SAFETY: a lookup in a loaded library by a C string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found.cast_const())
}

/// Finds the C++ library if the process has loaded it; does not load it.
fn find() -> Option<CxxRuntime> {
    // SAFETY: a lookup only (`RTLD_NOLOAD`). The reference is never closed, so the functions stay valid.
    let library = unsafe { libc::dlopen(c"libstdc++.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    let make = symbol(library, c"__cxa_allocate_exception")?;
    let construct = symbol(library, c"_ZNSt13runtime_errorC1EPKc")?;
    let throw = symbol(library, c"__cxa_throw")?;
    Some(CxxRuntime {
        // SAFETY: the ABI gives this name this prototype.
        make: unsafe { std::mem::transmute::<*const c_void, AllocateException>(make) },
        // SAFETY: the mangled name is this constructor's; constructors return nothing on x86-64 and AArch64.
        construct: unsafe { std::mem::transmute::<*const c_void, ConstructError>(construct) },
        // SAFETY: the ABI gives this name this prototype; the function does not return.
        throw: unsafe { std::mem::transmute::<*const c_void, ThrowException>(throw) },
        type_info: symbol(library, c"_ZTISt13runtime_error")?,
        destruct: symbol(library, c"_ZNSt13runtime_errorD1Ev")?,
    })
}

/// Throws `std::runtime_error(message)`; returns if the process has no C++ library.
pub fn throw(message: String) {
    let Some(library) = find() else { return };
    let text = CString::new(message.replace('\0', " ")).unwrap_or_default();
    // SAFETY: any size may be allocated.
    let error = unsafe { (library.make)(RUNTIME_ERROR_BYTES) };
    // SAFETY: `error` has room for the object; the constructor copies the string.
    unsafe { (library.construct)(error, text.as_ptr()) };
    // The exception unwinds through this frame, so no value that has a destructor may be live from here on.
    drop((message, text));
    // SAFETY: the exception made above, with the type info and destructor of its class.
    unsafe { (library.throw)(error, library.type_info, library.destruct) }
}
