//! A device's primary context: the one that every library of a process shares.
//!
//! Promises upward: [`PrimaryContext::call`] runs one call of the driver with this context current on the calling thread, and the
//! thread has what it had again afterwards. In a forked child nothing reaches the driver.
//! Asks from below: the driver's functions.
//!
//! Which context is current is asked of the driver before every call. What a thread had last could be remembered beside it,
//! but not that another library changed it since: the answer would be wrong exactly where it matters. The driver keeps the
//! answer in the thread's own memory. A thread that had none has none again, too: a context that was left behind would be
//! current on threads that outlive the device, and destroyed.

use crate::functions::{CoreFunctions, DriverFunctions};
use crate::layouts::CAPTURE_MODE_RELAXED;
use crate::result_codes::{self, Code};
use cudarc::driver::sys::{CUcontext, CUdevice};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use terrace_device::{Fault, Reason, insist};
use terrace_guard::Process;

/// The result of a call.
pub fn check(call: &'static str, code: Code) -> Result<(), Fault> {
    if code == result_codes::SUCCESS { Ok(()) } else { Err(result_codes::fault(call, code)) }
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
pub struct PrimaryContext {
    pub functions: &'static DriverFunctions,
    pub device: CUdevice,
    /// The context, as a number.
    context: u64,
    /// The process that took the reference.
    process: Process,
}

impl PrimaryContext {
    /// Takes a reference to the primary context of a device.
    pub fn retain(functions: &'static DriverFunctions, device: CUdevice) -> Result<Self, Fault> {
        let process = Process::current();
        let mut context = null_mut();
        // SAFETY: the out parameter lives through the call.
        let code = unsafe { (functions.core.cuDevicePrimaryCtxRetain)(&raw mut context, device) };
        check("cuDevicePrimaryCtxRetain", code)?;
        Ok(Self { functions, device, context: number(context), process })
    }

    /// The context, as the driver names it.
    pub fn context(&self) -> CUcontext {
        handle(self.context)
    }

    /// Whether this is the process that opened the device.
    pub fn is_own_process(&self) -> bool {
        self.process.is_current()
    }

    /// Refuses a call in a child.
    #[inline]
    pub fn check_process(&self, call: &'static str) -> Result<(), Fault> {
        if self.is_own_process() { Ok(()) } else { Err(Fault::of(call, Reason::Forked)) }
    }

    /// Runs a call with the context current.
    #[inline]
    pub fn call(&self, name: &'static str, call: impl FnOnce(&CoreFunctions) -> Code) -> Result<(), Fault> {
        let _current = CurrentContext::enter(self, name)?;
        check(name, call(&self.functions.core))
    }

    /// The same for a call that a capture in "global" mode on another thread would forbid, and would be broken by.
    #[inline]
    pub fn call_relaxed(&self, name: &'static str, call: impl FnOnce(&CoreFunctions) -> Code) -> Result<(), Fault> {
        let _current = CurrentContext::enter(self, name)?;
        let _relaxed = RelaxedCapture::begin(self.functions);
        check(name, call(&self.functions.core))
    }

    /// Makes the context current on this thread for as long as it runs: calls find it and leave it.
    pub fn attach(&self) -> Result<(), Fault> {
        self.check_process("cuCtxSetCurrent")?;
        self.set_current(self.context())
    }

    fn current(&self) -> Result<CUcontext, Fault> {
        let mut current = null_mut();
        // SAFETY: the out parameter lives through the call.
        let code = unsafe { (self.functions.core.cuCtxGetCurrent)(&raw mut current) };
        check("cuCtxGetCurrent", code).map(|()| current)
    }

    fn set_current(&self, context: CUcontext) -> Result<(), Fault> {
        // SAFETY: our own context, retained as long as `self` lives, or the one that the driver said was current.
        let code = unsafe { (self.functions.core.cuCtxSetCurrent)(context) };
        check("cuCtxSetCurrent", code)
    }
}

impl Drop for PrimaryContext {
    fn drop(&mut self) {
        if self.is_own_process() {
            // Refused for good, e.g. since the process ends: the driver takes everything back with the process.
            let _ = insist(|| {
                // SAFETY: retained once by `retain`, given back once: a refused call gives nothing back.
                let code = unsafe { (self.functions.core.cuDevicePrimaryCtxRelease_v2)(self.device) };
                check("cuDevicePrimaryCtxRelease_v2", code)
            });
        }
    }
}

/// While it lives, the context is current on this thread.
struct CurrentContext<'a> {
    primary: &'a PrimaryContext,
    /// What the thread had, and gets back: another context, or none (null). `None`: it had this one.
    previous: Option<CUcontext>,
}

impl<'a> CurrentContext<'a> {
    #[inline]
    fn enter(primary: &'a PrimaryContext, call: &'static str) -> Result<Self, Fault> {
        primary.check_process(call)?;
        let current = primary.current()?;
        let previous = (current != primary.context()).then_some(current);
        if previous.is_some() {
            primary.set_current(primary.context())?;
        }
        Ok(Self { primary, previous })
    }
}

impl Drop for CurrentContext<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(before) = self.previous {
            // A context that was destroyed meanwhile cannot be given back; the thread keeps ours.
            let _ = insist(|| self.primary.set_current(before));
        }
    }
}

/// While it lives, this thread may make calls that a capture elsewhere forbids.
struct RelaxedCapture<'a> {
    functions: &'a DriverFunctions,
    /// The thread's mode, which it gets back; `None`: unchanged.
    previous: Option<u32>,
}

impl<'a> RelaxedCapture<'a> {
    #[inline]
    fn begin(functions: &'a DriverFunctions) -> Self {
        // A driver that refuses leaves the mode as it is, and says itself what the capture forbids.
        Self {
            functions,
            previous: exchange_capture_mode(functions, CAPTURE_MODE_RELAXED)
                .filter(|&mode| mode != CAPTURE_MODE_RELAXED),
        }
    }
}

impl Drop for RelaxedCapture<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(mode) = self.previous {
            let _ = exchange_capture_mode(self.functions, mode).or_else(|| exchange_capture_mode(self.functions, mode));
        }
    }
}

/// Sets the thread's capture mode; gives the one it had. `None`: it is unchanged.
fn exchange_capture_mode(functions: &DriverFunctions, mut mode: u32) -> Option<u32> {
    let capture = functions.capture.as_ref().ok()?;
    // SAFETY: the mode lives through the call, which reads and writes it.
    let code = unsafe { (capture.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
    (code == result_codes::SUCCESS).then_some(mode)
}

/// The driver's handle of a device.
pub fn device(functions: &DriverFunctions, ordinal: u32) -> Result<i32, Fault> {
    let mut device = 0;
    // SAFETY: the out parameter lives through the call.
    let code = unsafe { (functions.core.cuDeviceGet)(&raw mut device, ordinal.cast_signed()) };
    check("cuDeviceGet", code).map(|()| device)
}
