//! The purge thread: purges when calls of the program should not purge so much themselves, or when no call comes.
//!
//! Promises upward: at most one thread, which the first [`start`] that the settings allow starts, and which sleeps
//! while they forbid it to work. A forked child has none and may start its own. The thread has ended before the library
//! is unloaded.
//! Asks from below: [`os::spawn`], the purge clock's bell.

use super::tick_on_thread;
use crate::clock::NEVER;
use crate::purge_clock::{self, NONE, REFUSED, RUNS};
use crate::{os, process, thread};
use core::ffi::c_void;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Relaxed, Release};
use terrace_core::sync::AtomicU32;

/// The purge thread's handle, for [`os::join`]; 0: none yet.
static HANDLE: AtomicUsize = AtomicUsize::new(0);
/// 1 once the purge thread no longer uses the library, but for the wake-up of [`stop`].
static GONE: AtomicU32 = AtomicU32::new(0);

/// Whether the system refused to start the purge thread.
pub fn is_refused() -> bool {
    purge_clock::thread().load(Relaxed) == REFUSED
}

/// Starts the purge thread unless it runs. `false`: it does not run, or is forbidden to work.
pub fn start() -> bool {
    if purge_clock::thread().load(Relaxed) != NONE || thread::is_in_handler() || process::is_forking_here() {
        return purge_clock::thread_works();
    }
    if purge_clock::thread().compare_exchange(NONE, RUNS, Relaxed, Relaxed).is_err() {
        return purge_clock::thread_works();
    }
    match os::spawn(body) {
        Some(handle) => HANDLE.store(handle, Release),
        None => purge_clock::thread().store(REFUSED, Relaxed),
    }
    purge_clock::thread_works()
}

/// The purge thread's loop: sleeps until a deadline is set, then until it passes, and ticks. While the settings forbid
/// it to work, only sleeps.
extern "C" fn body(_: *mut c_void) -> *mut c_void {
    let clock = purge_clock::clock();
    while purge_clock::thread().load(Relaxed) == RUNS {
        // Reads the bell before the deadline and the setting: a change of either after this read ends the sleep.
        let (bell, seen) = clock.bell();
        let deadline = if purge_clock::thread_works() { clock.deadline() } else { NEVER };
        let now = purge_clock::now();
        if deadline == NEVER {
            os::wait(bell, seen, 0);
        } else if now >= deadline {
            tick_on_thread(now);
            // A thread that forks spins until the tick has ended: lets it run.
            os::yield_now();
        } else {
            os::wait(bell, seen, (deadline - now).min(60_000) as u32);
        }
    }
    GONE.store(1, Release);
    os::wake(&GONE, 1);
    core::ptr::null_mut()
}

/// Records, in the child of a fork, that there is no purge thread.
pub fn forked() {
    _ = purge_clock::thread().compare_exchange(RUNS, NONE, Relaxed, Relaxed);
}

/// Stops the thread, because the library is unloaded or the process ends.
///
/// If a signal handler ends the process, the call that the signal interrupted may hold a lock for which the purge
/// thread waits: then the thread is not joined, since it could not end.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn stop() {
    use core::sync::atomic::Ordering::Acquire;
    const MILLISECONDS: u32 = 100;
    if purge_clock::thread().swap(purge_clock::STOPPED, Relaxed) != RUNS || thread::has_interrupted_slow_path() {
        return;
    }
    purge_clock::set_due();
    os::wake(purge_clock::clock().bell().0, 1);
    os::wait(&GONE, 0, MILLISECONDS);
    let handle = HANDLE.load(Acquire);
    if GONE.load(Acquire) == 1 && handle != 0 {
        os::join(handle);
    }
}
