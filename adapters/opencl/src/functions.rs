//! OpenCL's functions: pointers looked up by name once per process, in groups of one capability each.
//!
//! Promises upward: a missing library, a file that is none, and a library without a function are errors; nothing panics and
//! nothing of OpenCL is needed to build. No device opens unless all of [`CoreFunctions`] exist.
//! Asks from below: the system's loader, and a library with the prototypes of OpenCL's headers.
//!
//! `cl3`, on which `opencl3` stands, can load the library at run time too, and answers with an error where it or a function
//! is missing. But it calls through pointers that it declares as Rust's (`fn`, not `extern "C" fn`), whose convention is C's
//! by luck; so the calls here are our own. Handles are the same: an `opencl3` program shares its objects with this crate.

use crate::error::OpenError;
use crate::layouts::{Code, Handle};
use libloading::Library;
use std::ffi::{c_char, c_void};
use std::sync::OnceLock;
use terrace_device::{Fault, FaultReason};

/// What `opencl3` reads too: paths of libraries to try first, with `;` between them.
pub const PATHS: &str = "OPENCL_DYLIB_PATH";

/// The loader of drivers (ICDs), by which every driver is found.
pub const NAME: &str = if cfg!(windows) {
    "OpenCL.dll"
} else if cfg!(target_vendor = "apple") {
    "/System/Library/Frameworks/OpenCL.framework/OpenCL"
} else {
    "libOpenCL.so.1"
};

macro_rules! group {
    ($(#[$doc:meta])* $group:ident; $($name:ident($($argument:ty),* $(,)?) -> $result:ty;)*) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "each is found by this name")]
        pub struct $group {
            $(pub $name: unsafe extern "system" fn($($argument),*) -> $result,)*
        }

        #[allow(non_snake_case, reason = "each is found by this name")]
        impl $group {
            fn find(library: &Library) -> Result<Self, &'static str> {
                $(
                    // SAFETY: the prototype is copied from the headers; the library is never unloaded.
                    let $name = unsafe { library.get(stringify!($name)) }.map(|found| *found).map_err(|_| stringify!($name))?;
                )*
                Ok(Self { $($name),* })
            }
        }
    };
}

/// Called by the driver about errors of a context. None is passed.
type Notify = unsafe extern "system" fn(*const c_char, *const c_void, usize, *mut c_void);

group! {
    /// Functions of OpenCL 1.2, which every device needs.
    CoreFunctions;
    clGetPlatformIDs(u32, *mut Handle, *mut u32) -> Code;
    clGetPlatformInfo(Handle, u32, usize, *mut c_void, *mut usize) -> Code;
    clGetDeviceIDs(Handle, u64, u32, *mut Handle, *mut u32) -> Code;
    clGetDeviceInfo(Handle, u32, usize, *mut c_void, *mut usize) -> Code;
    clCreateContext(*const isize, u32, *const Handle, Option<Notify>, *mut c_void, *mut Code) -> Handle;
    clRetainContext(Handle) -> Code;
    clReleaseContext(Handle) -> Code;
    clGetContextInfo(Handle, u32, usize, *mut c_void, *mut usize) -> Code;
    clCreateCommandQueue(Handle, Handle, u64, *mut Code) -> Handle;
    clRetainCommandQueue(Handle) -> Code;
    clReleaseCommandQueue(Handle) -> Code;
    clGetCommandQueueInfo(Handle, u32, usize, *mut c_void, *mut usize) -> Code;
    clCreateBuffer(Handle, u64, usize, *mut c_void, *mut Code) -> Handle;
    clCreateSubBuffer(Handle, u64, u32, *const c_void, *mut Code) -> Handle;
    clReleaseMemObject(Handle) -> Code;
    clEnqueueReadBuffer(Handle, Handle, u32, usize, usize, *mut c_void, u32, *const Handle, *mut Handle) -> Code;
    clEnqueueWriteBuffer(Handle, Handle, u32, usize, usize, *const c_void, u32, *const Handle, *mut Handle) -> Code;
    clEnqueueCopyBuffer(Handle, Handle, Handle, usize, usize, usize, u32, *const Handle, *mut Handle) -> Code;
    clEnqueueFillBuffer(Handle, Handle, *const c_void, usize, usize, usize, u32, *const Handle, *mut Handle) -> Code;
    clEnqueueMapBuffer(
        Handle, Handle, u32, u64, usize, usize, u32, *const Handle, *mut Handle, *mut Code,
    ) -> *mut c_void;
    clEnqueueUnmapMemObject(Handle, Handle, *mut c_void, u32, *const Handle, *mut Handle) -> Code;
    clEnqueueMigrateMemObjects(Handle, u32, *const Handle, u64, u32, *const Handle, *mut Handle) -> Code;
    clEnqueueMarkerWithWaitList(Handle, u32, *const Handle, *mut Handle) -> Code;
    clEnqueueBarrierWithWaitList(Handle, u32, *const Handle, *mut Handle) -> Code;
    clFlush(Handle) -> Code;
    clFinish(Handle) -> Code;
    clWaitForEvents(u32, *const Handle) -> Code;
    clGetEventInfo(Handle, u32, usize, *mut c_void, *mut usize) -> Code;
    clRetainEvent(Handle) -> Code;
    clReleaseEvent(Handle) -> Code;
    clSetKernelArg(Handle, u32, usize, *const c_void) -> Code;
}

group! {
    /// Shared virtual memory, of OpenCL 2.0.
    SvmFunctions;
    clSVMAlloc(Handle, u64, usize, u32) -> *mut c_void;
    clSVMFree(Handle, *mut c_void) -> ();
    clEnqueueSVMMemcpy(Handle, u32, *mut c_void, *const c_void, usize, u32, *const Handle, *mut Handle) -> Code;
    clEnqueueSVMMemFill(Handle, *mut c_void, *const c_void, usize, usize, u32, *const Handle, *mut Handle) -> Code;
    clEnqueueSVMMap(Handle, u32, u64, *mut c_void, usize, u32, *const Handle, *mut Handle) -> Code;
    clEnqueueSVMUnmap(Handle, *mut c_void, u32, *const Handle, *mut Handle) -> Code;
    clSetKernelArgSVMPointer(Handle, u32, *const c_void) -> Code;
}

group! {
    /// Prefetches of shared virtual memory, of OpenCL 2.1.
    MigrateFunctions;
    clEnqueueSVMMigrateMem(
        Handle, u32, *const *const c_void, *const usize, u64, u32, *const Handle, *mut Handle,
    ) -> Code;
}

/// All functions of the library. A group that is missing says the name of a function that is.
pub struct Functions {
    pub core: CoreFunctions,
    pub svm: Result<SvmFunctions, &'static str>,
    pub migrate: Result<MigrateFunctions, &'static str>,
}

/// The fault of a call to a function that the library lacks.
pub fn missing(function: &&'static str) -> Fault {
    Fault::of(function, FaultReason::Missing)
}

/// The functions of the loaded library. The answer of the first call holds.
///
/// # Errors
/// [`OpenError::NoLibrary`], [`OpenError::MissingSymbol`].
pub fn loaded() -> Result<&'static Functions, OpenError> {
    static LOADED: OnceLock<Result<Functions, OpenError>> = OnceLock::new();
    LOADED.get_or_init(load).as_ref().map_err(OpenError::clone)
}

fn load() -> Result<Functions, OpenError> {
    let named = std::env::var(PATHS).unwrap_or_default();
    let (mut tried, mut first) = (Vec::new(), None);
    for name in named.split(';').filter(|path| !path.is_empty()).chain([NAME]) {
        // SAFETY: loading runs the initialisers of OpenCL's loader, which any OpenCL program runs.
        match unsafe { Library::new(name) } {
            Ok(library) => {
                // Never unloaded: drivers leave threads behind.
                let library: &Library = Box::leak(Box::new(library));
                let core = CoreFunctions::find(library)
                    .map_err(|symbol| OpenError::MissingSymbol { library: name.into(), symbol })?;
                let (svm, migrate) = (SvmFunctions::find(library), MigrateFunctions::find(library));
                return Ok(Functions { core, svm, migrate });
            }
            Err(error) => {
                tried.push(name.to_string());
                first.get_or_insert_with(|| error.to_string());
            }
        }
    }
    Err(OpenError::NoLibrary { searched: tried, reason: first.unwrap_or_default() })
}
