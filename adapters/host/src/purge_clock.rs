//! The process's one purge clock, and the state of the purge thread, which sleeps on it.
//!
//! Promises upward: [`set_deadline`] and [`set_due`] take no lock; the settings call [`allow_thread`] to wake the purge
//! thread, and so depend on no purging code.
//! Asks from below: [`Clock`], [`os::wake`].

use crate::clock::Clock;
use crate::os;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// States of the purge thread.
///
/// In order: never started; started; the system refused to start it; ended with the library (Linux only).
pub const NONE: u32 = 0;
pub const RUNS: u32 = 1;
pub const REFUSED: u32 = 2;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub const STOPPED: u32 = 3;

static CLOCK: Clock = Clock::new();
/// State of the purge thread. It is [`RUNS`] before the thread begins, and a caller reads it after incrementing the
/// bell. If the caller still reads [`NONE`], the thread begins later and reads the caller's deadline by itself.
static THREAD: AtomicU32 = AtomicU32::new(NONE);
/// Whether the settings allow the purge thread to work.
static ALLOWED: AtomicBool = AtomicBool::new(true);

/// The process's purge clock.
pub fn clock() -> &'static Clock {
    &CLOCK
}

/// The present time in milliseconds since an arbitrary moment, as deadlines count them.
pub fn now() -> usize {
    os::milliseconds() as usize
}

/// The state of the purge thread.
pub fn thread() -> &'static AtomicU32 {
    &THREAD
}

/// Whether the purge thread runs and the settings allow it to work.
#[inline]
pub fn thread_works() -> bool {
    THREAD.load(Relaxed) == RUNS && ALLOWED.load(Relaxed)
}

/// Sets the deadline, and wakes the purge thread, which may be sleeping without one.
pub fn set_deadline(deadline: usize) {
    CLOCK.set(deadline);
    wake();
}

/// Sets a deadline that has already passed. Wakes no thread.
pub fn set_due() {
    CLOCK.set(0);
}

/// Allows the purge thread to work, or makes it sleep; called when the setting changes.
pub fn allow_thread(allowed: bool) {
    ALLOWED.store(allowed, Relaxed);
    if thread_works() {
        set_due();
        wake();
    }
}

fn wake() {
    if thread_works() {
        os::wake(CLOCK.bell().0, 1);
    }
}
