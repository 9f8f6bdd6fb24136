//! A driver's refusal of a call.
//!
//! Promises upward: a small `Copy` value that names the call, the driver's code and the kind of refusal; showing it
//! makes no driver call, so an error can be shown when no driver is loaded.
//! Asks from below: each backend maps its driver's codes to a [`FaultReason`].

use std::fmt;
use terrace_core::SourceError;

/// Kinds of refusal: the layers above decide by the kind alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultReason {
    /// The device has too little memory left.
    OutOfMemory,
    /// This device or driver cannot do what the call asks.
    Unsupported,
    /// The driver does not know the stream, event or address, or knows it no longer.
    BadHandle,
    /// The call is refused for now: it would disturb a graph capture.
    Capturing,
    /// The context is gone for good: a kernel faulted, the device fell off the bus, or the process is ending.
    Lost,
    /// This process is a forked child of the one that opened the driver: the driver does not work here.
    Forked,
    /// The call is refused for a temporary reason of the system's: the same call may succeed later.
    Transient,
    /// The driver's library lacks the function.
    Missing,
    /// Any other refusal.
    Other,
}

/// A refused call of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The driver's function that was called.
    pub call: &'static str,
    /// The driver's own code; 0 when it has none.
    pub code: i32,
    /// The driver's name for the code; empty when it has none.
    pub name: &'static str,
    /// The kind of refusal.
    pub reason: FaultReason,
}

impl Fault {
    /// A refusal of `call` for `reason`, without a code of the driver's.
    pub const fn of(call: &'static str, reason: FaultReason) -> Self {
        Self { call, code: 0, name: "", reason }
    }

    /// For a refused wait before memory is reused: nothing proves now that work in flight is done, so the fault becomes
    /// [`FaultReason::Lost`]. Fatal faults, and refusals because of a graph capture, stay as they are.
    pub(crate) fn unproven(self) -> Self {
        if self.reason == FaultReason::Capturing || self.is_fatal() {
            self
        } else {
            Self { reason: FaultReason::Lost, ..self }
        }
    }

    /// Whether the device is unusable from now on.
    pub const fn is_fatal(&self) -> bool {
        matches!(self.reason, FaultReason::Lost | FaultReason::Forked)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.reason {
            FaultReason::OutOfMemory => "out of memory",
            FaultReason::Unsupported => "not supported by this device or driver",
            FaultReason::BadHandle => "a stream, event or address that the driver does not know",
            FaultReason::Capturing => "not allowed while a graph is captured",
            FaultReason::Lost => "the device is lost; open it again in a new process",
            FaultReason::Forked => {
                "a driver does not work in a child of the process that opened it; start a new process, or fork before that"
            }
            FaultReason::Transient => "not possible at the moment; try again",
            FaultReason::Missing => "this driver has no such function",
            FaultReason::Other => "failed",
        };
        write!(f, "{}: {what}", self.call)?;
        match (self.code, self.name) {
            (0, _) => Ok(()),
            (code, "") => write!(f, " (code {code})"),
            (code, name) => write!(f, " ({name}, code {code})"),
        }
    }
}

impl std::error::Error for Fault {}

/// The refusal of a call that a backend lacks.
pub(crate) const fn unsupported<T>(call: &'static str) -> Result<T, Fault> {
    Err(Fault::of(call, FaultReason::Unsupported))
}

impl From<Fault> for SourceError {
    /// The fault as an error of the core's: no memory, unsupported, or a source that failed.
    fn from(fault: Fault) -> Self {
        match fault.reason {
            FaultReason::OutOfMemory => Self::OutOfMemory { available: 0 },
            FaultReason::Unsupported | FaultReason::Missing => Self::Unsupported,
            _ => Self::Failed { code: fault.code },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Fault, FaultReason};

    /// A forked child cannot open a device, so the text must not advise to open one.
    #[test]
    fn a_forked_child_is_told_what_can_be_done() {
        let said = Fault::of("fork", FaultReason::Forked).to_string();
        assert!(said.contains("start a new process, or fork before") && !said.contains("open the device"), "{said}");
    }
}
