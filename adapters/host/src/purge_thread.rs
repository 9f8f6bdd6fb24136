//! The background thread: gives memory back when so much waits that callers should not, or when no call comes.
//!
//! Promises upward: one thread at most, started when [`start`] is first called and never where settings refuse it; it sleeps while
//! they do; forks find nothing of it in the child, which may start its own; it is gone before the library is.
//! Asks from below: [`os::spawn`], the purge clock's bell.

use crate::clock::{Clock, NEVER};
use crate::settings::{self, Background};
use crate::{fork, os, purge, signal};
use core::ffi::c_void;
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicU32 as Word, AtomicUsize};
use terrace_core::sync::AtomicU32;

/// No thread yet; it runs, or is about to; the system refused one; the library ends (known on Linux only).
const NONE: u32 = 0;
const RUNS: u32 = 1;
const REFUSED: u32 = 2;
#[cfg(any(target_os = "linux", target_os = "android"))]
const STOPPED: u32 = 3;

/// Made [`RUNS`] before the bell is rung, and read after: a caller that does not see it rang before the thread began, which
/// then reads the deadline.
static STATE: Word = Word::new(NONE);
/// The thread's name in the system.
static HANDLE: AtomicUsize = AtomicUsize::new(0);
/// 1 once the thread needs nothing of ours any more.
static GONE: AtomicU32 = AtomicU32::new(0);

/// Whether it runs, and the setting lets it work.
#[inline]
pub fn runs() -> bool {
    STATE.load(Relaxed) == RUNS && settings::background() != Background::Never
}

/// Whether the system refused it.
pub fn is_refused() -> bool {
    STATE.load(Relaxed) == REFUSED
}

/// Starts it, if it does not run. `false`: it does not.
pub fn start() -> bool {
    if STATE.load(Relaxed) != NONE || signal::is_in_handler() || fork::is_forking_here() {
        return runs();
    }
    if STATE.compare_exchange(NONE, RUNS, Relaxed, Relaxed).is_err() {
        return runs();
    }
    match os::spawn(body) {
        Some(handle) => HANDLE.store(handle, Release),
        None => STATE.store(REFUSED, Relaxed),
    }
    runs()
}

/// Wakes it, after a deadline was set.
pub fn wake(clock: &Clock) {
    if runs() {
        os::wake(clock.bell().0, 1);
    }
}

/// Wakes it, after the setting changed that lets it work.
pub fn setting_changed() {
    if runs() {
        purge::ring();
        wake(purge::clock());
    }
}

/// Sleeps until something is free, then until it is time; and while the setting is [`Background::Never`].
extern "C" fn body(_: *mut c_void) -> *mut c_void {
    let clock = purge::clock();
    while STATE.load(Relaxed) == RUNS {
        // The bell first: what rings it after a deadline or the setting changed ends the sleep.
        let (bell, seen) = clock.bell();
        let deadline = if runs() { clock.deadline() } else { NEVER };
        let now = purge::now();
        if deadline == NEVER {
            os::wait(bell, seen, 0);
        } else if now >= deadline {
            purge::tick_on_thread(now);
            // A thread that forks waits for its turn.
            os::yield_now();
        } else {
            os::wait(bell, seen, (deadline - now).min(60_000) as u32);
        }
    }
    GONE.store(1, Release);
    os::wake(&GONE, 1);
    core::ptr::null_mut()
}

/// In the child of a fork it is gone.
pub fn forked() {
    _ = STATE.compare_exchange(RUNS, NONE, Relaxed, Relaxed);
}

/// Ends it, because the library is unloaded or the process ends. It may wait for a lock that a call holds which a signal
/// interrupted, whose handler ends the process: then it stays.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn stop() {
    use core::sync::atomic::Ordering::Acquire;
    const MILLISECONDS: u32 = 100;
    if STATE.swap(STOPPED, Relaxed) != RUNS || signal::has_interrupted_slow_path() {
        return;
    }
    purge::ring();
    os::wake(purge::clock().bell().0, 1);
    os::wait(&GONE, 0, MILLISECONDS);
    let handle = HANDLE.load(Acquire);
    if GONE.load(Acquire) == 1 && handle != 0 {
        os::join(handle);
    }
}
