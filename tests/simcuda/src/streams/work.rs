//! What operations do.
//!
//! Upward: [`Work::run`], called by a stream's thread without the lock.
//! From below: `memory::bytes`.

use crate::abi::{Code, c_void};
use crate::memory::bytes;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A function of the caller's that a stream runs, and its argument.
#[derive(Clone, Copy)]
pub struct HostFunction {
    /// The function.
    pub function: extern "C" fn(*mut c_void),
    /// Its argument, as a number.
    pub argument: usize,
}

/// What an operation does.
#[derive(Clone)]
pub enum Work {
    /// Nothing: it waits, or marks a place in the order.
    Nothing,
    /// Marks an event as reached: its handle, and which recording of it this is.
    Record(u64, u64),
    /// Copies bytes.
    Copy { to: u64, from: u64, bytes: u64 },
    /// Copies bytes between many pairs of ranges: to, from, bytes.
    Copies(Vec<(u64, u64, u64)>),
    /// Copies bytes that were taken when the call was made.
    Put { to: u64, staged: Arc<Vec<u8>> },
    /// Sets bytes.
    Fill { to: u64, value: u8, bytes: u64 },
    /// Sets words.
    FillWords { to: u64, value: u32, count: u64 },
    /// Adds floats.
    Add { a: u64, b: u64, out: u64, count: u64 },
    /// Adds a multiple of floats.
    Axpy { y: u64, x: u64, a: f32, count: u64 },
    /// Adds words up.
    Sum { from: u64, out: u64, count: u64 },
    /// Takes time.
    Spin(Duration),
    /// The context is lost with this error.
    Fault(Code),
    /// Calls a function of the caller's.
    Host(HostFunction),
}

/// From this length on waiting sleeps instead of spinning: a sleep may take 50 microseconds longer than asked.
const SLEEP: Duration = Duration::from_micros(200);

impl Work {
    /// Does it.
    ///
    /// # Safety
    /// What it touches of device memory is open, and stays so; what it touches of host memory is usable, as the driver's
    /// caller promised.
    pub unsafe fn run(&self) {
        match self {
            Work::Nothing | Work::Record(..) | Work::Fault(_) => {}
            Work::Copy { to, from, bytes } => {
                // SAFETY: the caller's promise, which covers both ranges.
                unsafe { bytes::copy(*to, *from, *bytes) }
            }
            Work::Copies(copies) => {
                for (to, from, bytes) in copies {
                    // SAFETY: the caller's promise, which covers all ranges.
                    unsafe { bytes::copy(*to, *from, *bytes) }
                }
            }
            Work::Put { to, staged } => {
                // SAFETY: the caller's promise for the target; the source is a buffer of this length.
                unsafe { bytes::copy(*to, staged.as_ptr() as u64, staged.len() as u64) }
            }
            Work::Fill { to, value, bytes } => {
                // SAFETY: the caller's promise.
                unsafe { bytes::fill(*to, *value, *bytes) }
            }
            Work::FillWords { to, value, count } => {
                // SAFETY: the caller's promise.
                unsafe { bytes::fill_words(*to, *value, *count) }
            }
            Work::Add { a, b, out, count } => {
                // SAFETY: the caller's promise, which covers all three ranges.
                unsafe { bytes::add(*a, *b, *out, *count) }
            }
            Work::Axpy { y, x, a, count } => {
                // SAFETY: the caller's promise, which covers both ranges.
                unsafe { bytes::axpy(*y, *x, *a, *count) }
            }
            Work::Sum { from, out, count } => {
                // SAFETY: the caller's promise, which covers both ranges.
                unsafe { bytes::sum(*from, *out, *count) }
            }
            Work::Spin(time) => spin(*time),
            Work::Host(host) => (host.function)(host.argument as *mut c_void),
        }
    }
}

/// Lets time pass.
pub fn spin(time: Duration) {
    if time >= SLEEP {
        return std::thread::sleep(time);
    }
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
