//! Devices, versions and errors.
//!
//! Promises upward: functions by name. Asks from below: the driver's of the same meaning.

#![allow(non_snake_case)]

use crate::call::{self, Code, INVALID_VALUE, SUCCESS, device, driver, exports, in_context, passed_on, started};
use crate::properties::DeviceProperties;
use std::ffi::{c_char, c_void};

/// The version of the runtime whose functions these are: `CUDART_VERSION` of PyTorch 2.15's.
const VERSION: i32 = 13_020;

/// `cudaDriverEntryPointQueryResult`: found, and not.
const FOUND: i32 = 0;
const NOT_FOUND: i32 = 1;

driver! {
    fn cuDeviceGetCount(count: Option<&mut i32>);
    fn cuDriverGetVersion(version: Option<&mut i32>);
    fn cuDeviceGetAttribute(value: Option<&mut i32>, attribute: i32, device: i32);
    fn cuDeviceCanAccessPeer(can: Option<&mut i32>, device: i32, peer: i32);
    fn cuDeviceGetPCIBusId(name: *mut c_char, length: i32, device: i32);
    fn cuDeviceGetDefaultMemPool(pool: Option<&mut u64>, device: i32);
    fn cuCtxEnablePeerAccess(context: u64, flags: u32);
    fn cuGetErrorName(code: Code, name: &mut *const c_char);
    fn cuGetErrorString(code: Code, text: &mut *const c_char);
    fn cuGetProcAddress_v2(name: *const c_char, found: &mut *mut c_void, version: i32, flags: u64, status: *mut i32);
}

passed_on! {
    cudaDeviceSynchronize = cuCtxSynchronize();
    cudaDeviceGetStreamPriorityRange = cuCtxGetStreamPriorityRange(least: Option<&mut i32>, greatest: Option<&mut i32>);
    cudaMemGetInfo = cuMemGetInfo_v2(free: Option<&mut usize>, total: Option<&mut usize>);
    cudaThreadExchangeStreamCaptureMode = cuThreadExchangeStreamCaptureMode(mode: Option<&mut i32>);
    cudaProfilerStart = cuProfilerStart();
    cudaProfilerStop = cuProfilerStop();
}

exports! {
    fn cudaGetDeviceCount(count: Option<&mut i32>) { started(|| cuDeviceGetCount(count)) }
    fn cudaGetDevice(found: Option<&mut i32>) { put(found, device()) }
    fn cudaSetDevice(device: i32) { started(|| call::enter(device).err().unwrap_or(SUCCESS)) }
    fn cudaDriverGetVersion(version: Option<&mut i32>) { cuDriverGetVersion(version) }
    fn cudaRuntimeGetVersion(version: Option<&mut i32>) { put(version, VERSION) }
    fn cudaDeviceGetAttribute(value: Option<&mut i32>, attribute: i32, device: i32) {
        started(|| cuDeviceGetAttribute(value, attribute, device))
    }
    fn cudaDeviceCanAccessPeer(can: Option<&mut i32>, device: i32, peer: i32) {
        started(|| cuDeviceCanAccessPeer(can, device, peer))
    }
    /// Opens the peer's memory to this device's context.
    fn cudaDeviceEnablePeerAccess(peer: i32, flags: u32) {
        in_context(|| call::primary(peer).map_or_else(|code| code, |context| cuCtxEnablePeerAccess(context, flags)))
    }
    fn cudaDeviceGetPCIBusId(name: *mut c_char, length: i32, device: i32) {
        started(|| cuDeviceGetPCIBusId(name, length, device))
    }
    fn cudaDeviceGetDefaultMemPool(pool: Option<&mut u64>, device: i32) {
        started(|| cuDeviceGetDefaultMemPool(pool, device))
    }
    fn cudaGetDeviceProperties(properties: Option<&mut DeviceProperties>, device: i32) {
        started(|| match DeviceProperties::of(device) {
            Ok(found) => put(properties, found),
            Err(code) => code,
        })
    }
    /// A function of the driver; those that the simulated one lacks are found beside it, and refuse.
    fn cudaGetDriverEntryPointByVersion(
        name: *const c_char,
        found: Option<&mut *mut c_void>,
        version: u32,
        flags: u64,
        status: Option<&mut i32>,
    ) {
        let Some(found) = found.filter(|_| !name.is_null()) else { return INVALID_VALUE };
        *found = std::ptr::null_mut();
        let mut said = NOT_FOUND;
        if cuGetProcAddress_v2(name, found, version.cast_signed(), flags, &mut said) != SUCCESS || found.is_null() {
            // SAFETY: the caller's name is not null, and ends with a zero, as C's names do.
            *found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name) };
        }
        put(status, if found.is_null() { NOT_FOUND } else { FOUND })
    }
}

/// Writes a result; null is refused.
pub fn put<T>(place: Option<&mut T>, value: T) -> Code {
    place.map_or(INVALID_VALUE, |place| {
        *place = value;
        SUCCESS
    })
}

/// The last error of the thread, which is then gone.
// SAFETY: as in `exports`; it notes no error of its own.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetLastError() -> Code {
    call::last(true)
}

/// The last error of the thread, which stays.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn cudaPeekAtLastError() -> Code {
    call::last(false)
}

/// An error's name.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorName(code: Code) -> *const c_char {
    told(|text| cuGetErrorName(code, text))
}

/// What an error means.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn cudaGetErrorString(code: Code) -> *const c_char {
    told(|text| cuGetErrorString(code, text))
}

/// The driver's text, which lives as long as the process.
fn told(ask: impl FnOnce(&mut *const c_char) -> Code) -> *const c_char {
    let mut text = c"unrecognized error code".as_ptr();
    let _ = ask(&mut text);
    text
}
