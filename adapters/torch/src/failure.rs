//! Records failures: keeps the last message for the caller, and prints the first failure of each kind.
//!
//! Promises upward: [`last`] returns the last message. The first failure of each kind goes to standard error, so that
//! it is seen even if the program never calls [`last`], while a program that retries does not flood its log.
//! Asks from below: nothing.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use terrace_device::{DeviceError, OutOfMemory, Remedy};

/// The kind of a failure; the first failure of each kind is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// Out of memory.
    Memory,
    /// An invalid argument or environment variable.
    Request,
    /// A failure of the device or its driver.
    Device,
    /// A pointer that is not the start of a live block.
    Pointer,
    /// A bug in this library.
    Bug,
}

/// A failure: its kind and its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchFailure {
    pub kind: FailureKind,
    pub message: String,
}

impl TorchFailure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Makes the failure for an error of a device.
    ///
    /// A message about memory contains "CUDA out of memory", because programs search for that and then shrink their
    /// batch.
    pub fn of_device(ordinal: usize, error: &DeviceError) -> Self {
        match error {
            DeviceError::OutOfMemory(what) => Self::new(
                FailureKind::Memory,
                format!("CUDA out of memory. terrace, device {ordinal}: {}", out_of_memory(what)),
            ),
            DeviceError::BadRequest { .. } => {
                Self::new(FailureKind::Memory, format!("CUDA out of memory. terrace, device {ordinal}: {error}"))
            }
            other => Self::new(FailureKind::Device, format!("terrace, device {ordinal}: {other}")),
        }
    }
}

/// The text for out of memory: the request, the state of the pool, and what a Python program can change.
fn out_of_memory(what: &OutOfMemory) -> String {
    let set = match what.remedy {
        Some(Remedy::Pages) => "; here: TERRACE_TORCH_ORIGIN=auto",
        Some(Remedy::Capacity(_)) => {
            "; here: TERRACE_TORCH_CAPACITY, TERRACE_TORCH_FRACTION or set_per_process_memory_fraction"
        }
        _ => "; here: fewer tensors or a smaller batch",
    };
    format!("{what}{set}")
}

static LAST: Mutex<String> = Mutex::new(String::new());
/// One bit for each kind: set once a failure of that kind was printed.
static PRINTED: AtomicU32 = AtomicU32::new(0);

/// Records the message; prints it if it is the first of its kind.
pub fn report(failure: &TorchFailure) {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&failure.message);
    let bit = 1 << failure.kind as u32;
    if PRINTED.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        // Ignores a failed write: standard error may be closed, and the message is recorded anyway.
        let _ = writeln!(std::io::stderr(), "{} (said once; terrace_torch_last_error has the last)", failure.message);
    }
}

/// Runs a function; turns a panic in it into a failure, and reports every failure.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, TorchFailure>) -> Result<T, TorchFailure> {
    // A panic never interrupts a change of a shared structure, so all of them stay consistent.
    let done = catch_unwind(AssertUnwindSafe(work));
    let done = done.unwrap_or_else(|_| {
        Err(TorchFailure::new(FailureKind::Bug, "terrace: a mistake in libterrace_torch; please report it"))
    });
    done.inspect_err(report)
}

/// The last message; empty if there was no failure yet.
pub fn last() -> String {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
