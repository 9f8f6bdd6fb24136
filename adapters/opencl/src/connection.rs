//! A context and a device of it, and the calls that ask about them.
//!
//! Promises upward: [`Connection::call`] turns a code into a `Result`; in a forked child no call reaches the driver.
//! Asks from below: the library's functions.
//!
//! A driver has threads of its own from the first call on, which a child does not have: so a process whose parent used the
//! driver cannot open a device either.

use crate::functions::{CoreFunctions, Functions};
use crate::layouts::{CL_DEVICE_TYPE_ALL, ClCode, ClHandle};
use crate::result_codes::{DEVICE_NOT_FOUND, PLATFORM_NOT_FOUND, SUCCESS, fault};
use std::ffi::c_void;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::{Mutex, PoisonError};
use terrace_device::{Fault, FaultReason};
use terrace_guard::Process;

/// Turns the code of a call into a `Result`.
pub fn check(call: &'static str, code: ClCode) -> Result<(), Fault> {
    if code == SUCCESS { Ok(()) } else { Err(fault(call, code)) }
}

/// Turns an object of the driver's, or an address, into a number.
///
/// This crate never dereferences objects.
pub fn number<T>(object: *mut T) -> u64 {
    object.expose_provenance() as u64
}

/// Turns the number that [`number`] returned back.
pub fn handle<T>(number: u64) -> *mut T {
    with_exposed_provenance_mut(number as usize)
}

/// A size as the driver's type: a size that the process cannot address is memory that there is not.
pub fn size(call: &'static str, bytes: u64) -> Result<usize, Fault> {
    usize::try_from(bytes).map_err(|_| Fault::of(call, FaultReason::OutOfMemory))
}

/// A context, retained, and a device of it.
pub struct Connection {
    pub functions: &'static Functions,
    context: u64,
    device: u64,
    process: Process,
}

impl Connection {
    /// Creates a context for a device.
    pub fn create(functions: &'static Functions, device: u64) -> Result<Self, Fault> {
        let (process, devices, mut code) = (Process::current(), [handle::<c_void>(device)], 0);
        // SAFETY: one device of the driver's own list; the out parameter lives through the call.
        let context = unsafe {
            (functions.core.clCreateContext)(std::ptr::null(), 1, devices.as_ptr(), None, null_mut(), &raw mut code)
        };
        check("clCreateContext", code)?;
        Ok(Self { functions, context: number(context), device, process })
    }

    /// Shares a context.
    ///
    /// # Safety
    /// The context must be live, and the device one of its.
    pub unsafe fn share(functions: &'static Functions, context: ClHandle, device: u64) -> Result<Self, Fault> {
        let process = Process::current();
        // SAFETY: the caller promises a live context.
        check("clRetainContext", unsafe { (functions.core.clRetainContext)(context) })?;
        Ok(Self { functions, context: number(context), device, process })
    }

    pub fn context(&self) -> ClHandle {
        handle(self.context)
    }

    pub fn device(&self) -> ClHandle {
        handle(self.device)
    }

    /// Returns an error in a forked child, where the driver does not work.
    #[inline]
    pub fn check_process(&self, call: &'static str) -> Result<(), Fault> {
        if self.process.is_current() { Ok(()) } else { Err(Fault::of(call, FaultReason::Forked)) }
    }

    /// Runs a call.
    #[inline]
    pub fn call(&self, name: &'static str, call: impl FnOnce(&CoreFunctions) -> ClCode) -> Result<(), Fault> {
        self.made(name, |core, code| *code = call(core))
    }

    /// Runs a call that returns an object, and its code beside it.
    #[inline]
    pub fn made<T>(&self, name: &'static str, call: impl FnOnce(&CoreFunctions, &mut ClCode) -> T) -> Result<T, Fault> {
        self.check_process(name)?;
        let mut code = SUCCESS;
        let made = call(&self.functions.core, &mut code);
        check(name, code).map(|()| made)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A refusal is ignored: the driver frees everything at the process's end.
        let _ = self.call("clReleaseContext", |core| {
            // SAFETY: balances the one reference of this value.
            unsafe { (core.clReleaseContext)(self.context()) }
        });
    }
}

/// Devices of all platforms, in the loader's order, which is the order of ordinals.
///
/// A platform that fails has none, so that a broken driver does not take away the others' devices.
///
/// # Errors
/// The loader's error; the first platform's if no other has a device.
pub fn devices(functions: &Functions) -> Result<Vec<u64>, Fault> {
    /// PoCL 3.1 hands out devices that another thread's first call is still making.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let platforms = list("clGetPlatformIDs", PLATFORM_NOT_FOUND, |room, into, found| {
        // SAFETY: the vector has `room` places; the out parameter lives through the call.
        unsafe { (functions.core.clGetPlatformIDs)(room, into, found) }
    })?;
    let (mut all, mut failed) = (Vec::new(), None);
    for platform in platforms {
        let of_platform = list("clGetDeviceIDs", DEVICE_NOT_FOUND, |room, into, found| {
            // SAFETY: as above, and the platform comes from the driver.
            unsafe { (functions.core.clGetDeviceIDs)(handle(platform), CL_DEVICE_TYPE_ALL, room, into, found) }
        });
        match of_platform {
            Ok(devices) => all.extend(devices),
            Err(fault) => _ = failed.get_or_insert(fault),
        }
    }
    if all.is_empty() { failed.map_or(Ok(all), Err) } else { Ok(all) }
}

/// A list of the driver's objects, whose length is asked first. The code `none` says that it is empty.
fn list(
    call: &'static str,
    none: ClCode,
    get: impl Fn(u32, *mut ClHandle, *mut u32) -> ClCode,
) -> Result<Vec<u64>, Fault> {
    let mut found = 0;
    match get(0, null_mut(), &raw mut found) {
        code if code == none => return Ok(Vec::new()),
        code => check(call, code)?,
    }
    let mut objects = vec![null_mut(); found as usize];
    if found > 0 {
        check(call, get(found, objects.as_mut_ptr(), null_mut()))?;
    }
    Ok(objects.into_iter().map(number).collect())
}

/// A property of an object: its bytes, as `get` writes them.
pub fn property(call: &'static str, get: impl Fn(usize, *mut c_void, *mut usize) -> ClCode) -> Result<Vec<u8>, Fault> {
    let mut size = 0;
    check(call, get(0, null_mut(), &raw mut size))?;
    let mut bytes = vec![0_u8; size];
    if size > 0 {
        check(call, get(size, bytes.as_mut_ptr().cast(), null_mut()))?;
    }
    Ok(bytes)
}

/// A property that is a number of four or eight bytes, or an object.
pub fn as_number(bytes: &[u8]) -> u64 {
    match bytes.len() {
        4 => bytes.try_into().map_or(0, u32::from_ne_bytes).into(),
        _ => bytes.try_into().map_or(0, u64::from_ne_bytes),
    }
}

/// A property of a device.
///
/// # Safety
/// The device must be live.
pub unsafe fn device_property(functions: &Functions, device: u64, which: u32) -> Result<Vec<u8>, Fault> {
    property("clGetDeviceInfo", |room, into, size| {
        // SAFETY: the caller promises a live device; `property` lends `room` bytes.
        unsafe { (functions.core.clGetDeviceInfo)(handle(device), which, room, into, size) }
    })
}

/// A property that is text, which ends with a zero.
pub fn as_text(bytes: &[u8]) -> String {
    let text = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).trim().to_string()
}
