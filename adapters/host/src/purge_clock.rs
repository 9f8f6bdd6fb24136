//! The purge clock of the process, and whether a thread sleeps on it.
//!
//! Promises upward: [`set_deadline`] and [`set_due`] touch no lock; the settings, which know nothing of purging, wake the purge
//! thread through [`allow_thread`].
//! Asks from below: [`Clock`], [`os::wake`].

use crate::clock::Clock;
use crate::os;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// States of the purge thread.
///
/// Never started; started; refused by the system; ended with the library (known on Linux only).
pub const NONE: u32 = 0;
pub const RUNS: u32 = 1;
pub const REFUSED: u32 = 2;
#[cfg(any(target_os = "linux", target_os = "android"))]
pub const STOPPED: u32 = 3;

static CLOCK: Clock = Clock::new();
/// Set to [`RUNS`] before the bell is rung, and read after: a caller that does not see it rang before the thread began, which
/// then reads the deadline.
static THREAD: AtomicU32 = AtomicU32::new(NONE);
/// Whether the settings let the thread work.
static ALLOWED: AtomicBool = AtomicBool::new(true);

/// The clock.
pub fn clock() -> &'static Clock {
    &CLOCK
}

/// Milliseconds, as the clock counts them, since some moment.
pub fn now() -> usize {
    os::milliseconds() as usize
}

/// The state of the purge thread.
pub fn thread() -> &'static AtomicU32 {
    &THREAD
}

/// Whether the purge thread runs and the settings let it work.
#[inline]
pub fn thread_works() -> bool {
    THREAD.load(Relaxed) == RUNS && ALLOWED.load(Relaxed)
}

/// Sets the deadline and wakes the purge thread, which may sleep without one.
pub fn set_deadline(deadline: usize) {
    CLOCK.set(deadline);
    wake();
}

/// Sets a deadline that is due. Wakes no thread.
pub fn set_due() {
    CLOCK.set(0);
}

/// Lets the purge thread work, or makes it sleep: the setting changed.
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
