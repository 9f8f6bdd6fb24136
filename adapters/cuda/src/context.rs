//! A device's primary context, which all libraries of a process share.
//!
//! Promises upward: [`PrimaryContext::call`] runs one call of the driver while this context is current on the calling
//! thread, and restores the thread's previous context afterwards. In a forked child no call reaches the driver.
//! Asks from below: the driver's functions.
//!
//! Each call queries the driver for the current context. A cached value would be wrong as soon as another library
//! changes the context, and the query is cheap: the driver keeps the answer in thread-local memory. A thread that had
//! no context has none after the call: otherwise ours would stay current on threads that outlive the device, even after
//! it was destroyed.

use crate::functions::{CoreFunctions, DriverFunctions};
use crate::layouts::CAPTURE_MODE_RELAXED;
use crate::result_codes::{self, Code};
use cudarc::driver::sys::{CUcontext, CUdevice};
use std::ptr::{null_mut, with_exposed_provenance_mut};
use terrace_device::{Fault, FaultReason, insist};
use terrace_guard::Process;

/// Turns a driver handle into a number; this crate never dereferences handles.
pub fn number<T>(handle: *mut T) -> u64 {
    handle.expose_provenance() as u64
}

/// Turns the number that [`number`] returned back into the driver's handle.
pub fn handle<T>(number: u64) -> *mut T {
    with_exposed_provenance_mut(number as usize)
}

/// A reference to a device's primary context; dropping it releases the context.
pub struct PrimaryContext {
    pub functions: &'static DriverFunctions,
    pub device: CUdevice,
    /// The context's handle, as a number.
    context: u64,
    /// The process that retained the context.
    process: Process,
}

impl PrimaryContext {
    /// Retains the primary context of a device.
    pub fn retain(functions: &'static DriverFunctions, device: CUdevice) -> Result<Self, Fault> {
        let process = Process::current();
        let mut context = null_mut();
        // SAFETY: the out parameter lives through the call.
        let code = unsafe { (functions.core.cuDevicePrimaryCtxRetain)(&raw mut context, device) };
        functions.check("cuDevicePrimaryCtxRetain", code)?;
        Ok(Self { functions, device, context: number(context), process })
    }

    /// The context as the driver's handle.
    pub fn context(&self) -> CUcontext {
        handle(self.context)
    }

    /// Whether this process retained the context itself, not the parent of which it is a forked child.
    pub fn is_own_process(&self) -> bool {
        self.process.is_current()
    }

    /// Returns an error in a forked child, where the driver does not work.
    #[inline]
    pub fn check_process(&self, call: &'static str) -> Result<(), Fault> {
        if self.is_own_process() { Ok(()) } else { Err(self.fault(call, FaultReason::Forked)) }
    }

    /// A fault of a call, by CUDA's name, that the driver did not tell.
    #[cold]
    pub fn fault(&self, call: &'static str, reason: FaultReason) -> Fault {
        Fault::of(self.functions.dialect.name(call), reason)
    }

    /// Runs a call with the context current on the calling thread.
    #[inline]
    pub fn call(&self, name: &'static str, call: impl FnOnce(&CoreFunctions) -> Code) -> Result<(), Fault> {
        let _current = CurrentContext::enter(self, name)?;
        self.functions.check(name, call(&self.functions.core))
    }

    /// Like [`call`](Self::call), for calls that would break a capture in "global" mode.
    ///
    /// Such a capture, on any thread, forbids certain calls to all threads and becomes invalid by them, unless the
    /// calling thread has set its own capture mode to relaxed, as this function does for the call.
    #[inline]
    pub fn call_relaxed(&self, name: &'static str, call: impl FnOnce(&CoreFunctions) -> Code) -> Result<(), Fault> {
        let _current = CurrentContext::enter(self, name)?;
        let _relaxed = RelaxedCapture::begin(self.functions);
        self.functions.check(name, call(&self.functions.core))
    }

    /// Runs a call that works on a device, whatever context is current.
    ///
    /// That is three calls fewer than [`call_relaxed`](Self::call_relaxed). Where the answer is fatal and the thread has another context,
    /// the call is made once more in this one: the driver may have judged the other, which its own code has lost.
    #[inline]
    pub fn call_on_device(&self, name: &'static str, mut call: impl FnMut() -> Code) -> Result<(), Fault> {
        self.check_process(name)?;
        match self.functions.check(name, call()) {
            Err(fault) if fault.is_fatal() && self.is_other_current() => self.call_relaxed(name, |_| call()),
            done => done,
        }
    }

    /// Runs such a call if it would break a capture in "global" mode.
    #[inline]
    pub fn call_on_device_relaxed(&self, name: &'static str, call: impl FnMut() -> Code) -> Result<(), Fault> {
        self.check_process(name)?;
        let _relaxed = RelaxedCapture::begin(self.functions);
        self.call_on_device(name, call)
    }

    /// Makes the context current on the calling thread until it ends, so that later calls need not switch.
    pub fn attach(&self) -> Result<(), Fault> {
        self.check_process("cuCtxSetCurrent")?;
        self.set_current(self.context())
    }

    /// Whether the thread may have a context that is not this one.
    fn is_other_current(&self) -> bool {
        !self.current().is_ok_and(|current| current.is_null() || current == self.context())
    }

    fn current(&self) -> Result<CUcontext, Fault> {
        let mut current = null_mut();
        // SAFETY: the out parameter lives through the call.
        let code = unsafe { (self.functions.core.cuCtxGetCurrent)(&raw mut current) };
        self.functions.check("cuCtxGetCurrent", code).map(|()| current)
    }

    fn set_current(&self, context: CUcontext) -> Result<(), Fault> {
        // SAFETY: either our own context, retained while `self` lives, or a handle that the driver returned as current.
        let code = unsafe { (self.functions.core.cuCtxSetCurrent)(context) };
        self.functions.check("cuCtxSetCurrent", code)
    }
}

impl Drop for PrimaryContext {
    fn drop(&mut self) {
        if self.is_own_process() {
            // Ignores a permanent refusal, e.g. because the process ends: the driver frees everything at process exit.
            let _ = insist(|| {
                // SAFETY: balances the one call in `retain`; a refused release releases nothing, so a retry is sound.
                let code = unsafe { (self.functions.core.cuDevicePrimaryCtxRelease_v2)(self.device) };
                self.functions.check("cuDevicePrimaryCtxRelease_v2", code)
            });
        }
    }
}

/// Guard: keeps our context current on the calling thread until it is dropped.
struct CurrentContext<'a> {
    primary: &'a PrimaryContext,
    /// The thread's previous context, to be restored (null: none). `None`: our context was current already.
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
            // If the previous context was destroyed in the meantime, this fails and the thread keeps our context.
            let _ = insist(|| self.primary.set_current(before));
        }
    }
}

/// Guard: sets the calling thread's capture mode to relaxed until it is dropped.
struct RelaxedCapture<'a> {
    functions: &'a DriverFunctions,
    /// The thread's previous mode, to be restored. `None`: the mode was not changed.
    previous: Option<u32>,
}

impl<'a> RelaxedCapture<'a> {
    #[inline]
    fn begin(functions: &'a DriverFunctions) -> Self {
        // If the driver refuses, the mode stays unchanged, and the call that follows reports what a capture forbids.
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

/// Sets the thread's capture mode and returns the previous one; `None` if the driver refused.
fn exchange_capture_mode(functions: &DriverFunctions, mut mode: u32) -> Option<u32> {
    let capture = functions.capture.as_ref().ok()?;
    // SAFETY: the call reads and writes the mode, a local variable.
    let code = unsafe { (capture.cuThreadExchangeStreamCaptureMode)(&raw mut mode) };
    (code == result_codes::SUCCESS).then_some(mode)
}

/// The driver's handle of the device with an ordinal.
pub fn device(functions: &DriverFunctions, ordinal: u32) -> Result<i32, Fault> {
    let mut device = 0;
    // SAFETY: the out parameter lives through the call.
    let code = unsafe { (functions.core.cuDeviceGet)(&raw mut device, ordinal.cast_signed()) };
    functions.check("cuDeviceGet", code).map(|()| device)
}
