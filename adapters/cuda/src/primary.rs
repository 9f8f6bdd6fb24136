//! A device's primary context: the one that every library of a process shares.
//!
//! Promises upward: [`Primary::call`] runs one call of the driver with this context current on the calling thread, and the
//! thread has what it had again afterwards. In a forked child nothing reaches the driver.
//! Asks from below: the driver's functions.
//!
//! Which context is current is asked of the driver before every call. What a thread had last could be remembered beside it,
//! but not that another library changed it since: the answer would be wrong exactly where it matters. The driver keeps the
//! answer in the thread's own memory. A thread that had none has none again, too: a context that was left behind would be
//! current on threads that outlive the device, and destroyed.

use crate::codes::{self, Code};
use crate::functions::{Core, Functions};
use crate::layouts::RELAXED;
use cudarc::driver::sys::{CUcontext, CUdevice};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use terrace_device::{Fault, FaultReason, insist};
use terrace_guard::Process;

/// The result of a call.
pub fn checked(call: &'static str, code: Code) -> Result<(), Fault> {
    if code == codes::SUCCESS { Ok(()) } else { Err(codes::fault(call, code)) }
}

/// A handle of the driver as a number: it names something, and nothing here looks behind it.
pub fn number<T>(handle: *mut T) -> u64 {
    handle.expose_provenance() as u64
}

/// The handle that a number is.
pub fn handle<T>(number: u64) -> *mut T {
    with_exposed_provenance_mut(number as usize)
}

/// A reference to a device's primary context; dropping it gives the reference back.
pub struct Primary {
    pub functions: &'static Functions,
    pub device: CUdevice,
    /// The context, as a number.
    context: u64,
    /// The process that took the reference.
    process: Process,
}

impl Primary {
    /// Takes a reference to the primary context of a device.
    pub fn retain(functions: &'static Functions, device: CUdevice) -> Result<Self, Fault> {
        let process = Process::current();
        let mut context = null_mut();
        // SAFETY: the out parameter lives through the call.
        let code = unsafe { (functions.core.cuDevicePrimaryCtxRetain)(&raw mut context, device) };
        checked("cuDevicePrimaryCtxRetain", code)?;
        Ok(Self { functions, device, context: number(context), process })
    }

    /// The context, as the driver names it.
    pub fn context(&self) -> CUcontext {
        handle(self.context)
    }

    /// Whether this is the process that opened the device.
    pub fn is_at_home(&self) -> bool {
        self.process.is_current()
    }

    /// Refuses a call in a child.
    #[inline]
    pub fn at_home(&self, call: &'static str) -> Result<(), Fault> {
        if self.is_at_home() { Ok(()) } else { Err(Fault::of(call, FaultReason::Forked)) }
    }

    /// Runs a call with the context current.
    #[inline]
    pub fn call(&self, name: &'static str, call: impl FnOnce(&Core) -> Code) -> Result<(), Fault> {
        let _current = Current::enter(self, name)?;
        checked(name, call(&self.functions.core))
    }

    /// The same for a call that a capture in "global" mode on another thread would forbid, and would be broken by.
    #[inline]
    pub fn relaxed(&self, name: &'static str, call: impl FnOnce(&Core) -> Code) -> Result<(), Fault> {
        let _current = Current::enter(self, name)?;
        let _relaxed = Relaxed::begin(self.functions);
        checked(name, call(&self.functions.core))
    }

    /// Makes the context current on this thread for as long as it runs: calls find it and leave it.
    pub fn attach(&self) -> Result<(), Fault> {
        self.at_home("cuCtxSetCurrent")?;
        self.set_current(self.context())
    }

    fn current(&self) -> Result<CUcontext, Fault> {
        let mut current = null_mut();
        // SAFETY: the out parameter lives through the call.
        let code = unsafe { (self.functions.core.cuCtxGetCurrent)(&raw mut current) };
        checked("cuCtxGetCurrent", code).map(|()| current)
    }

    fn set_current(&self, context: CUcontext) -> Result<(), Fault> {
        // SAFETY: our own context, retained as long as `self` lives, or the one that the driver said was current.
        let code = unsafe { (self.functions.core.cuCtxSetCurrent)(context) };
        checked("cuCtxSetCurrent", code)
    }
}

impl Drop for Primary {
    fn drop(&mut self) {
        if self.is_at_home() {
            // Refused for good, e.g. since the process ends: the driver takes everything back with the process.
            let _ = insist(|| {
                // SAFETY: retained once by `retain`, given back once: a refused call gives nothing back.
                let code = unsafe { (self.functions.core.cuDevicePrimaryCtxRelease_v2)(self.device) };
                checked("cuDevicePrimaryCtxRelease_v2", code)
            });
        }
    }
}

/// While it lives, the context is current on this thread.
struct Current<'a> {
    primary: &'a Primary,
    /// What the thread had, and gets back: another context, or none (null). `None`: it had this one.
    before: Option<CUcontext>,
}

impl<'a> Current<'a> {
    #[inline]
    fn enter(primary: &'a Primary, call: &'static str) -> Result<Self, Fault> {
        primary.at_home(call)?;
        let current = primary.current()?;
        let before = (current != primary.context()).then_some(current);
        if before.is_some() {
            primary.set_current(primary.context())?;
        }
        Ok(Self { primary, before })
    }
}

impl Drop for Current<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // A context that was destroyed meanwhile cannot be given back; the thread keeps ours.
            let _ = insist(|| self.primary.set_current(before));
        }
    }
}

/// While it lives, this thread may make calls that a capture elsewhere forbids.
struct Relaxed<'a> {
    functions: &'a Functions,
    /// The thread's mode, which it gets back; `None`: unchanged.
    before: Option<u32>,
}

impl<'a> Relaxed<'a> {
    #[inline]
    fn begin(functions: &'a Functions) -> Self {
        // A driver that refuses leaves the mode as it is, and says itself what the capture forbids.
        Self { functions, before: exchange(functions, RELAXED).filter(|&mode| mode != RELAXED) }
    }
}

impl Drop for Relaxed<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(mode) = self.before {
            let _ = exchange(self.functions, mode).or_else(|| exchange(self.functions, mode));
        }
    }
}

/// Sets the thread's capture mode; gives the one it had. `None`: it is unchanged.
fn exchange(functions: &Functions, mut mode: u32) -> Option<u32> {
    let capture = functions.capture.as_ref().ok()?;
    // SAFETY: the mode lives through the call, which reads and writes it.
    let code = unsafe { (capture.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
    (code == codes::SUCCESS).then_some(mode)
}

/// The driver's handle of a device.
pub fn device(functions: &Functions, ordinal: u32) -> Result<i32, Fault> {
    let mut device = 0;
    // SAFETY: the out parameter lives through the call.
    let code = unsafe { (functions.core.cuDeviceGet)(&raw mut device, ordinal.cast_signed()) };
    checked("cuDeviceGet", code).map(|()| device)
}
