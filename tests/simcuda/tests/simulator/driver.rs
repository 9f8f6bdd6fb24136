//! The driver's functions, by name, with results.
//!
//! Upward: functions that give `Err(code)` as the driver does. They take numbers for pointers and handles, also wrong
//! ones: the simulation looks at them before it uses them.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use terrace_tests::simcuda::Simulator;

/// What a call gives.
pub type Done<T = ()> = Result<T, i32>;

/// Error codes, named as in `cuda.h`.
pub const INVALID_VALUE: i32 = 1;
pub const INVALID_IMAGE: i32 = 200;
pub const OUT_OF_MEMORY: i32 = 2;
pub const NOT_INITIALIZED: i32 = 3;
pub const NO_DEVICE: i32 = 100;
pub const INVALID_DEVICE: i32 = 101;
pub const INVALID_CONTEXT: i32 = 201;
pub const PEER_ACCESS_UNSUPPORTED: i32 = 217;
pub const INVALID_PTX: i32 = 218;
pub const INVALID_HANDLE: i32 = 400;
pub const NOT_FOUND: i32 = 500;
pub const NOT_READY: i32 = 600;
pub const ILLEGAL_ADDRESS: i32 = 700;
pub const CONTEXT_IS_DESTROYED: i32 = 709;
pub const ALREADY_REGISTERED: i32 = 712;
pub const NOT_REGISTERED: i32 = 713;
pub const NOT_PERMITTED: i32 = 800;
pub const NOT_SUPPORTED: i32 = 801;
pub const INVALID_RESOURCE_TYPE: i32 = 914;
pub const INVALID_RESOURCE_CONFIGURATION: i32 = 915;
pub const STREAM_DETACHED: i32 = 917;

/// A function of the library.
pub fn symbol<T: Copy>(name: &str) -> T {
    // SAFETY: the macros below name the function's type as `cuda.h` declares it.
    let symbol = unsafe { Simulator::get().library().get::<T>(name.as_bytes()) };
    *symbol.unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// A call: its result, nothing or the error code.
macro_rules! call {
    ($name:ident($($value:expr => $type:ty),* $(,)?)) => {{
        let function: unsafe extern "C" fn($($type),*) -> i32 = $crate::driver::symbol(stringify!($name));
        // SAFETY: pointers to results are to locals; all other addresses the simulation checks before it uses them, or
        // they are of buffers that outlive the operation.
        match unsafe { function($($value),*) } {
            0 => Ok(()),
            code => Err(code),
        }
    }};
}

/// A call whose first argument is where its result goes.
macro_rules! make {
    ($name:ident -> $result:ty; $($value:expr => $type:ty),* $(,)?) => {{
        let mut result = <$result>::default();
        $crate::driver::call!($name(&mut result => *mut $result, $($value => $type),*)).map(|()| result)
    }};
}

pub(crate) use {call, make};

/// `cuInit`.
pub fn init() -> Done {
    call!(cuInit(0 => c_uint))
}

/// Retains a device's context and makes it the thread's.
pub fn enter(device: c_int) -> Done<u64> {
    let context = make!(cuDevicePrimaryCtxRetain -> u64; device => c_int)?;
    current(context)?;
    Ok(context)
}

/// Makes a context the thread's.
pub fn current(context: u64) -> Done {
    call!(cuCtxSetCurrent(context => u64))
}

/// Gives a device's context back.
pub fn leave(device: c_int) -> Done {
    call!(cuDevicePrimaryCtxRelease_v2(device => c_int))
}

pub fn alloc(bytes: usize) -> Done<u64> {
    make!(cuMemAlloc_v2 -> u64; bytes => usize)
}

pub fn free(pointer: u64) -> Done {
    call!(cuMemFree_v2(pointer => u64))
}

/// Free and all bytes of the thread's device.
pub fn info() -> Done<(usize, usize)> {
    let (mut free, mut total) = (0, 0);
    call!(cuMemGetInfo_v2(&mut free => *mut usize, &mut total => *mut usize))?;
    Ok((free, total))
}

pub fn stream(flags: c_uint) -> Done<u64> {
    make!(cuStreamCreate -> u64; flags => c_uint)
}

pub fn stream_destroy(stream: u64) -> Done {
    call!(cuStreamDestroy_v2(stream => u64))
}

pub fn stream_sync(stream: u64) -> Done {
    call!(cuStreamSynchronize(stream => u64))
}

pub fn stream_query(stream: u64) -> Done {
    call!(cuStreamQuery(stream => u64))
}

pub fn stream_wait(stream: u64, event: u64) -> Done {
    call!(cuStreamWaitEvent(stream => u64, event => u64, 0 => c_uint))
}

pub fn sync() -> Done {
    call!(cuCtxSynchronize())
}

/// An event that keeps no time.
pub fn event() -> Done<u64> {
    make!(cuEventCreate -> u64; 2 => c_uint)
}

pub fn event_destroy(event: u64) -> Done {
    call!(cuEventDestroy_v2(event => u64))
}

pub fn record(event: u64, stream: u64) -> Done {
    call!(cuEventRecord(event => u64, stream => u64))
}

pub fn event_query(event: u64) -> Done {
    call!(cuEventQuery(event => u64))
}

pub fn event_sync(event: u64) -> Done {
    call!(cuEventSynchronize(event => u64))
}

/// Sets bytes on a stream.
pub fn set(pointer: u64, value: u8, bytes: usize, stream: u64) -> Done {
    call!(cuMemsetD8Async(pointer => u64, value => u8, bytes => usize, stream => u64))
}

/// Copies on the device, on a stream.
pub fn copy(to: u64, from: u64, bytes: usize, stream: u64) -> Done {
    call!(cuMemcpyDtoDAsync_v2(to => u64, from => u64, bytes => usize, stream => u64))
}

/// Copies to the device and waits.
pub fn upload(to: u64, bytes: &[u8]) -> Done {
    call!(cuMemcpyHtoD_v2(to => u64, bytes.as_ptr() => *const u8, bytes.len() => usize))
}

/// Copies from the device and waits.
pub fn download(from: u64, bytes: usize) -> Done<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    call!(cuMemcpyDtoH_v2(buffer.as_mut_ptr() => *mut u8, from => u64, bytes => usize))?;
    Ok(buffer)
}

/// A module and a kernel of it.
pub fn kernel(name: &str) -> Done<(u64, u64)> {
    kernel_of("image", name)
}

/// A kernel of an image, and its module.
pub fn kernel_of(image: &str, name: &str) -> Done<(u64, u64)> {
    let name = CString::new(name).expect("no zero inside");
    let image = CString::new(image).expect("no zero inside");
    let module = make!(cuModuleLoadData -> u64; image.as_ptr().cast() => *const c_void)?;
    let function = make!(cuModuleGetFunction -> u64; module => u64, name.as_ptr() => *const i8);
    match function {
        Ok(function) => Ok((module, function)),
        Err(code) => unload(module).and(Err(code)),
    }
}

pub fn unload(module: u64) -> Done {
    call!(cuModuleUnload(module => u64))
}

/// Runs a kernel; its arguments are words of 8 bytes, of which a kernel that wants 4 takes the lower.
pub fn launch(function: u64, stream: u64, arguments: &[u64]) -> Done {
    let pointers: Vec<*const u64> = arguments.iter().map(|argument| argument as *const u64).collect();
    call!(cuLaunchKernel(
        function => u64, 1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint, 1 => c_uint, 0 => c_uint,
        stream => u64, pointers.as_ptr() => *const *const u64, std::ptr::null() => *const c_void,
    ))
}

/// Closes a descriptor.
pub fn close(descriptor: c_int) {
    // SAFETY: the driver gave it to the test.
    assert_eq!(unsafe { libc::close(descriptor) }, 0);
}

/// A text of the driver's.
pub fn text_at(text: *const c_char) -> String {
    // SAFETY: the driver gave it, ended with a zero, and what it names lives.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Runs a kernel by its name, once.
pub fn run(name: &str, stream: u64, arguments: &[u64]) -> Done {
    let (module, function) = kernel(name)?;
    let launched = launch(function, stream, arguments);
    unload(module).and(launched)
}
