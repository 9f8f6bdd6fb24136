//! What went wrong: kept for whoever asks, printed once.
//!
//! Promises upward: the last message can be asked for; the first of each kind is printed to standard error, so that a
//! program that never asks says something, and one that retries does not flood its log.
//! Asks from below: nothing.

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use terrace_device::{DeviceError, OutOfMemory};

/// Kinds of failures: each is printed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No memory.
    Memory,
    /// An argument or a variable that cannot be.
    Request,
    /// The device or its driver.
    Device,
    /// A pointer that is no live block.
    Pointer,
    /// A mistake in this library.
    Bug,
}

/// A failure with its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchFailure {
    pub kind: FailureKind,
    pub message: String,
}

impl TorchFailure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What a device said. Programs look for "CUDA out of memory" in messages, and shrink their batch.
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

/// What was asked and what there was, and what somebody who writes Python can do about it.
fn out_of_memory(what: &OutOfMemory) -> String {
    let OutOfMemory { asked, largest_free, reserved, in_use, capacity, fault, .. } = what;
    let said = fault.map_or(String::new(), |fault| format!("; the driver said: {fault}"));
    let limit = if *capacity == 0 { String::new() } else { format!(" of at most {capacity}") };
    format!(
        "asked for {asked} bytes; {in_use} bytes are in use, {reserved} taken from the driver{limit}, the largest free block \
         has {largest_free}{said}. Free tensors, use a smaller batch, or raise a limit that you set \
         (TERRACE_TORCH_CAPACITY, TERRACE_TORCH_FRACTION, set_per_process_memory_fraction)"
    )
}

static LAST: Mutex<String> = Mutex::new(String::new());
/// One bit for each kind that was printed.
static PRINTED: AtomicU32 = AtomicU32::new(0);

/// Keeps the message, and prints it if it is the first of its kind.
pub fn report(failure: &TorchFailure) {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&failure.message);
    let bit = 1 << failure.kind as u32;
    if PRINTED.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
        // Standard error may be closed: the message is kept all the same.
        let _ = writeln!(std::io::stderr(), "{} (said once; terrace_torch_last_error has the last)", failure.message);
    }
}

/// The last message; empty when nothing went wrong yet.
pub fn last() -> String {
    LAST.lock().unwrap_or_else(PoisonError::into_inner).clone()
}
