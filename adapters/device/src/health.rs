//! Whether the device is still usable.
//!
//! Promises upward: once a driver reports that a device is lost, every call fails with that fault, and no memory of the
//! device is handed out again.
//! Asks from below: faults that say whether they are fatal ([`Fault::is_fatal`]).

use crate::fault::{Fault, FaultReason};
use std::sync::OnceLock;
use terrace_guard::Process;

/// The first fatal fault of a device, shared by all objects of the device.
#[derive(Debug)]
pub(crate) struct DeviceHealth {
    fault: OnceLock<Fault>,
    /// The process that opened the device.
    process: Process,
}

impl DeviceHealth {
    pub(crate) fn new() -> Self {
        Self { fault: OnceLock::new(), process: Process::current() }
    }

    /// Fails if the device is lost, or this process is a child of the one that opened it. Costs a load or two.
    #[inline]
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if self.forked() {
            return Err(Fault::of("fork", FaultReason::Forked));
        }
        self.fault.get().map_or(Ok(()), |fault| Err(*fault))
    }

    /// Whether this process is a child of the one that opened the device.
    pub(crate) fn forked(&self) -> bool {
        !self.process.is_current()
    }

    /// Records a fault if it is fatal; returns it.
    pub(crate) fn note(&self, fault: Fault) -> Fault {
        if fault.is_fatal() {
            let _ = self.fault.set(fault);
        }
        fault
    }
}

/// Makes a call, and once more if it is refused, so that a temporary reason does not make it fail.
///
/// For calls that release memory or handles, which otherwise leak until the process ends.
///
/// # Errors
/// The first refusal if it is fatal, otherwise the second.
pub fn insist<T>(mut call: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
    call().or_else(|fault| if fault.is_fatal() { Err(fault) } else { call() })
}
