//! What a driver says when it refuses a call.
//!
//! Promises upward: a small `Copy` value that names the call, the driver's code and what kind of refusal it is; nothing
//! here asks a driver anything, so an error can be shown when there is no driver.
//! Asks from below: backends translate their codes once.

use std::fmt;
use terrace_core::SourceError;

/// What kind of refusal a code is: all that the layers above decide by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultReason {
    /// The device has not that much memory left.
    OutOfMemory,
    /// This device or driver cannot do that.
    Unsupported,
    /// A stream, event or address that the driver does not know (any more).
    BadHandle,
    /// Not now: the call would disturb a graph capture.
    Capturing,
    /// The context is gone for good: a kernel faulted, the device fell off the bus, the process ends.
    Lost,
    /// A driver does not work in a child of the process that opened it.
    Forked,
    /// Not now, for a reason of the system's: the same call may do later.
    Transient,
    /// The driver has no such function.
    Missing,
    /// Anything else.
    Other,
}

/// A refused call of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The function that was called.
    pub call: &'static str,
    /// The driver's own code; 0 when it has none.
    pub code: i32,
    /// The driver's name for the code; empty when it has none.
    pub name: &'static str,
    /// What kind it is.
    pub reason: FaultReason,
}

impl Fault {
    /// A refusal that has no code: of `call`, for `reason`.
    pub const fn of(call: &'static str, reason: FaultReason) -> Self {
        Self { call, code: 0, name: "", reason }
    }

    /// The same of a wait after which memory goes to others: what is not known to be done is never done. A capture in the way
    /// is no such thing.
    pub(crate) fn unproven(self) -> Self {
        if self.reason == FaultReason::Capturing || self.is_fatal() {
            self
        } else {
            Self { reason: FaultReason::Lost, ..self }
        }
    }

    /// Whether the device cannot be used any more.
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

impl From<Fault> for SourceError {
    /// As the core's structures see it: memory that is not there, or a source that failed.
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

    /// In the child no device can be opened, whatever it does first.
    #[test]
    fn a_forked_child_is_told_what_can_be_done() {
        let said = Fault::of("fork", FaultReason::Forked).to_string();
        assert!(said.contains("start a new process, or fork before") && !said.contains("open the device"), "{said}");
    }
}
