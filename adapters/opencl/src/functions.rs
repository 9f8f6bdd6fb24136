//! OpenCL's functions: pointers looked up by name once per process, in groups of one capability each.
//!
//! Promises upward: a missing library, a file that is none, and a library without a function are errors; nothing panics and
//! nothing of OpenCL is needed to build. No device opens unless all of [`CoreFunctions`] exist.
//! Asks from below: the system's loader, and a library with the prototypes of OpenCL's headers.
//!
//! `cl3`, on which `opencl3` stands, can load the library at run time too, and answers with an error where it or a function
//! is missing. But it calls through pointers that it declares as Rust's (`fn`, not `extern "C" fn`), whose convention is C's
//! by luck; so the calls here are our own. Handles are the same: an `opencl3` program shares its objects with this crate.

use crate::error::OpenClError;
use crate::layouts::{ClCode, ClHandle};
use libloading::Library;
use std::error::Error;
use std::ffi::{c_char, c_void};
use std::sync::OnceLock;
use terrace_device::{Fault, FaultReason};
use terrace_guard::Process;

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
        #[derive(Clone, Copy)]
        pub struct $group {
            $(pub $name: unsafe extern "system" fn($($argument),*) -> $result,)*
        }

        #[allow(non_snake_case, reason = "each is found by this name")]
        impl $group {
            const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            fn find(library: &Library) -> Result<Self, &'static str> {
                $(
                    // SAFETY: the prototype is copied from the headers; the library lives as long as the pointer.
                    let $name = unsafe { library.get(stringify!($name)) }.map(|found| *found).map_err(|_| stringify!($name))?;
                )*
                Ok(Self { $($name),* })
            }
        }
    };
}

/// Called by the driver about errors of a context. None is passed.
type ContextNotify = unsafe extern "system" fn(*const c_char, *const c_void, usize, *mut c_void);

group! {
    /// Functions of OpenCL 1.2, which every device needs.
    CoreFunctions;
    clGetPlatformIDs(u32, *mut ClHandle, *mut u32) -> ClCode;
    clGetPlatformInfo(ClHandle, u32, usize, *mut c_void, *mut usize) -> ClCode;
    clGetDeviceIDs(ClHandle, u64, u32, *mut ClHandle, *mut u32) -> ClCode;
    clGetDeviceInfo(ClHandle, u32, usize, *mut c_void, *mut usize) -> ClCode;
    clCreateContext(*const isize, u32, *const ClHandle, Option<ContextNotify>, *mut c_void, *mut ClCode) -> ClHandle;
    clRetainContext(ClHandle) -> ClCode;
    clReleaseContext(ClHandle) -> ClCode;
    clGetContextInfo(ClHandle, u32, usize, *mut c_void, *mut usize) -> ClCode;
    clCreateCommandQueue(ClHandle, ClHandle, u64, *mut ClCode) -> ClHandle;
    clRetainCommandQueue(ClHandle) -> ClCode;
    clReleaseCommandQueue(ClHandle) -> ClCode;
    clGetCommandQueueInfo(ClHandle, u32, usize, *mut c_void, *mut usize) -> ClCode;
    clCreateBuffer(ClHandle, u64, usize, *mut c_void, *mut ClCode) -> ClHandle;
    clCreateSubBuffer(ClHandle, u64, u32, *const c_void, *mut ClCode) -> ClHandle;
    clReleaseMemObject(ClHandle) -> ClCode;
    clEnqueueReadBuffer(ClHandle, ClHandle, u32, usize, usize, *mut c_void, u32, *const ClHandle, *mut ClHandle) -> ClCode;
    clEnqueueWriteBuffer(ClHandle, ClHandle, u32, usize, usize, *const c_void, u32, *const ClHandle, *mut ClHandle) -> ClCode;
    clEnqueueCopyBuffer(ClHandle, ClHandle, ClHandle, usize, usize, usize, u32, *const ClHandle, *mut ClHandle) -> ClCode;
    clEnqueueFillBuffer(ClHandle, ClHandle, *const c_void, usize, usize, usize, u32, *const ClHandle, *mut ClHandle) -> ClCode;
    clEnqueueMapBuffer(
        ClHandle, ClHandle, u32, u64, usize, usize, u32, *const ClHandle, *mut ClHandle, *mut ClCode,
    ) -> *mut c_void;
    clEnqueueUnmapMemObject(ClHandle, ClHandle, *mut c_void, u32, *const ClHandle, *mut ClHandle) -> ClCode;
    clEnqueueMigrateMemObjects(ClHandle, u32, *const ClHandle, u64, u32, *const ClHandle, *mut ClHandle) -> ClCode;
    clEnqueueMarkerWithWaitList(ClHandle, u32, *const ClHandle, *mut ClHandle) -> ClCode;
    clEnqueueBarrierWithWaitList(ClHandle, u32, *const ClHandle, *mut ClHandle) -> ClCode;
    clFlush(ClHandle) -> ClCode;
    clFinish(ClHandle) -> ClCode;
    clWaitForEvents(u32, *const ClHandle) -> ClCode;
    clGetEventInfo(ClHandle, u32, usize, *mut c_void, *mut usize) -> ClCode;
    clRetainEvent(ClHandle) -> ClCode;
    clReleaseEvent(ClHandle) -> ClCode;
    clSetKernelArg(ClHandle, u32, usize, *const c_void) -> ClCode;
}

group! {
    /// Shared virtual memory, of OpenCL 2.0.
    SvmFunctions;
    clSVMAlloc(ClHandle, u64, usize, u32) -> *mut c_void;
    clSVMFree(ClHandle, *mut c_void) -> ();
    clEnqueueSVMMemcpy(ClHandle, u32, *mut c_void, *const c_void, usize, u32, *const ClHandle, *mut ClHandle) -> ClCode;
    clEnqueueSVMMemFill(ClHandle, *mut c_void, *const c_void, usize, usize, u32, *const ClHandle, *mut ClHandle) -> ClCode;
    clEnqueueSVMMap(ClHandle, u32, u64, *mut c_void, usize, u32, *const ClHandle, *mut ClHandle) -> ClCode;
    clEnqueueSVMUnmap(ClHandle, *mut c_void, u32, *const ClHandle, *mut ClHandle) -> ClCode;
    clSetKernelArgSVMPointer(ClHandle, u32, *const c_void) -> ClCode;
}

group! {
    /// Prefetches of shared virtual memory, of OpenCL 2.1.
    MigrateFunctions;
    clEnqueueSVMMigrateMem(
        ClHandle, u32, *const *const c_void, *const usize, u64, u32, *const ClHandle, *mut ClHandle,
    ) -> ClCode;
}

/// All functions of the library. A group that is missing says the name of a function that is.
pub struct Functions {
    pub core: CoreFunctions,
    pub svm: Result<SvmFunctions, &'static str>,
    pub migrate: Result<MigrateFunctions, &'static str>,
    /// As long as the pointers; [`loaded`] keeps it for ever, since drivers leave threads behind.
    _library: Library,
}

/// A function of OpenCL that this crate looks up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenClFunction {
    /// The exported name.
    pub symbol: &'static str,
    /// Whether opening a device fails without the function.
    pub required: bool,
}

/// All functions that this crate looks up.
pub fn functions() -> impl Iterator<Item = OpenClFunction> {
    let of =
        |names: &'static [&'static str], required| names.iter().map(move |&symbol| OpenClFunction { symbol, required });
    of(CoreFunctions::NAMES, true).chain(of(SvmFunctions::NAMES, false)).chain(of(MigrateFunctions::NAMES, false))
}

/// The fault of a call to a function that the library lacks.
pub fn missing(function: &&'static str) -> Fault {
    Fault::of(function, FaultReason::Missing)
}

/// The functions of the loaded library. The answer of the first call holds.
///
/// # Errors
/// [`OpenClError::NoLibrary`], [`OpenClError::MissingSymbol`]; [`OpenClError::Driver`] in a forked child of a process that called this:
/// what its other threads held at the fork is never let go of.
pub fn loaded() -> Result<&'static Functions, OpenClError> {
    /// The process that used the library first. It is stored at once, whereas a library is loaded for long.
    static FIRST: OnceLock<Process> = OnceLock::new();
    static LOADED: OnceLock<Result<Functions, OpenClError>> = OnceLock::new();
    if !FIRST.get_or_init(Process::current).is_current() {
        return Err(Fault::of("dlopen", FaultReason::Forked).into());
    }
    LOADED.get_or_init(load).as_ref().map_err(OpenClError::clone)
}

/// File names of OpenCL's loader, in the order in which they are tried.
pub fn library_names() -> Vec<String> {
    let named = std::env::var(PATHS).unwrap_or_default();
    named.split(';').filter(|path| !path.is_empty()).chain([NAME]).map(String::from).collect()
}

/// File names of the drivers that OpenCL's loader loads on Linux.
///
/// All of those in `/etc/OpenCL/vendors`, or in the folder that `OCL_ICD_VENDORS` names.
pub fn driver_names() -> Vec<String> {
    let vendors = std::env::var("OCL_ICD_VENDORS").unwrap_or_else(|_| "/etc/OpenCL/vendors".into());
    let files = std::fs::read_dir(vendors).into_iter().flatten().flatten().map(|entry| entry.path());
    let files = files.filter(|path| path.extension().is_some_and(|ending| ending == "icd"));
    files.filter_map(|path| Some(std::fs::read_to_string(path).ok()?.trim().to_string())).collect()
}

/// The library's functions, of which a test replaces some; kept for ever.
#[cfg(test)]
pub fn altered(change: impl FnOnce(&mut Functions)) -> Result<&'static Functions, OpenClError> {
    let mut functions = load()?;
    change(&mut functions);
    Ok(Box::leak(Box::new(functions)))
}

fn load() -> Result<Functions, OpenClError> {
    let (mut tried, mut first) = (Vec::new(), None);
    for name in &library_names() {
        // SAFETY: loading runs the initialisers of OpenCL's loader, which any OpenCL program runs.
        match unsafe { Library::new(name) } {
            Ok(library) => {
                let core = CoreFunctions::find(&library)
                    .map_err(|symbol| OpenClError::MissingSymbol { library: name.into(), symbol })?;
                let (svm, migrate) = (SvmFunctions::find(&library), MigrateFunctions::find(&library));
                return Ok(Functions { core, svm, migrate, _library: library });
            }
            Err(error) => {
                tried.push(name.to_string());
                // The system's words are the error behind it.
                first.get_or_insert_with(|| error.source().map_or_else(|| error.to_string(), ToString::to_string));
            }
        }
    }
    Err(OpenClError::NoLibrary { searched: tried, reason: first.unwrap_or_default() })
}
