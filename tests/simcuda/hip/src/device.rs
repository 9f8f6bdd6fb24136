//! Devices: their number, attributes, names; the version.
//!
//! Promises upward: functions by name. Asks from below: the driver's of the same meaning.

#![allow(non_snake_case, reason = "HIP's names")]

use crate::call::{self, Code, INVALID_VALUE, SUCCESS, driver, exports, on_device, passed_on, primary};
use std::sync::atomic::{AtomicI32, Ordering};

/// ROCm 7.1: `HIP_VERSION_MAJOR * 10000000 + HIP_VERSION_MINOR * 100000 + HIP_VERSION_PATCH`.
const VERSION: i32 = 70_152_802;

/// `hipErrorNotInitialized`: the driver's answer in a forked child.
const NOT_INITIALIZED: Code = 3;

/// How many devices there were.
static FOUND: AtomicI32 = AtomicI32::new(0);

/// `hipDeviceAttribute_t` and the driver's number, of the attributes that terrace asks for.
const ATTRIBUTES: [(i32, i32); 9] =
    [(16, 18), (85, 41), (24, 83), (15, 86), (65, 88), (9, 89), (90, 99), (89, 102), (88, 115)];

driver! {
    fn cuInit(flags: u32);
    fn cuDeviceGetCount(count: Option<&mut i32>);
    fn cuDeviceGetAttribute(value: Option<&mut i32>, attribute: i32, device: i32);
    fn cuDriverGetVersion(version: Option<&mut i32>);
    fn cuCtxEnablePeerAccess(context: u64, flags: u32);
}

passed_on! {
    hipDeviceSynchronize = cuCtxSynchronize();
    hipMemGetInfo = cuMemGetInfo_v2(free: Option<&mut usize>, total: Option<&mut usize>);
    hipThreadExchangeStreamCaptureMode = cuThreadExchangeStreamCaptureMode(mode: Option<&mut i32>);
}

// What names its device itself.
macro_rules! plain {
    ($($hip:ident = $driver:ident($($argument:ident: $kind:ty),*);)*) => {
        driver! { $(fn $driver($($argument: $kind),*);)* }
        exports! { $(fn $hip($($argument: $kind),*) { $driver($($argument),*) })* }
    };
}

plain! {
    hipDeviceGet = cuDeviceGet(device: Option<&mut i32>, ordinal: i32);
    hipDeviceGetName = cuDeviceGetName(name: u64, length: i32, device: i32);
    hipDeviceTotalMem = cuDeviceTotalMem_v2(bytes: Option<&mut usize>, device: i32);
    hipDeviceCanAccessPeer = cuDeviceCanAccessPeer(can: Option<&mut i32>, device: i32, peer: i32);
}

// Both answer the error itself, which is not noted once more.
macro_rules! errors {
    ($($name:ident: $forget:literal;)*) => {$(
        // SAFETY: the name is HIP's, whose place this library takes; it is loaded by path, never linked.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> Code {
            call::last_error($forget)
        }
    )*};
}

errors! {
    hipGetLastError: true;
    hipPeekAtLastError: false;
}

exports! {
    /// In a forked child too, where nothing works: HIP only looks whether it was called before.
    fn hipInit(flags: u32) {
        match cuInit(flags) {
            NOT_INITIALIZED => SUCCESS,
            code => code,
        }
    }
    /// In a forked child as well.
    fn hipGetDeviceCount(count: Option<&mut i32>) {
        let mut found = 0;
        match (count, cuDeviceGetCount(Some(&mut found))) {
            (None, _) => INVALID_VALUE,
            (Some(count), NOT_INITIALIZED) => { *count = FOUND.load(Ordering::Relaxed); SUCCESS }
            (Some(count), code) => { *count = found; FOUND.store(found, Ordering::Relaxed); code }
        }
    }
    /// The version of ROCm, if the driver under it says one.
    fn hipDriverGetVersion(version: Option<&mut i32>) {
        let mut drivers = 0;
        match (version, cuDriverGetVersion(Some(&mut drivers))) {
            (Some(version), SUCCESS | NOT_INITIALIZED) => { *version = VERSION; SUCCESS }
            (None, SUCCESS) => INVALID_VALUE,
            (_, code) => code,
        }
    }
    fn hipGetDevice(device: Option<&mut i32>) {
        device.map_or(INVALID_VALUE, |device| { *device = call::device(); SUCCESS })
    }
    fn hipSetDevice(device: i32) {
        let mut found = 0;
        match cuDeviceGetCount(Some(&mut found)) {
            SUCCESS => call::set_device(device, found),
            code => code,
        }
    }
    fn hipDeviceGetAttribute(value: Option<&mut i32>, attribute: i32, device: i32) {
        let known = ATTRIBUTES.iter().find(|(own, _)| *own == attribute);
        known.map_or(INVALID_VALUE, |&(_, number)| cuDeviceGetAttribute(value, number, device))
    }
    fn hipDeviceEnablePeerAccess(peer: i32, flags: u32) {
        on_device(|| primary(peer).map_or_else(|code: Code| code, |context| cuCtxEnablePeerAccess(context, flags)))
    }
}
