//! Whether the device is still there.
//!
//! Promises upward: once a driver said that a device is lost, every call fails with that same fault, and nothing that lay on
//! the device is handed out again.
//! Asks from below: faults that say so themselves ([`Fault::is_fatal`]).

use crate::fault::{Fault, FaultReason};
use std::sync::OnceLock;
use terrace_guard::Process;

/// The first fatal fault of one device; everything that belongs to the device shares it.
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

    /// Fails when the device is lost, or this process is a child of the one that opened it. A load or two.
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

/// Makes a call that must not fail for a passing reason: twice, if it is refused once.
///
/// What is not released now is lost until the process ends. A second refusal is the driver's last word.
///
/// # Errors
/// The first one if it is fatal, else the second.
pub fn insist<T>(mut call: impl FnMut() -> Result<T, Fault>) -> Result<T, Fault> {
    call().or_else(|fault| if fault.is_fatal() { Err(fault) } else { call() })
}
