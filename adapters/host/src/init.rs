//! The start, at the first call: address range, tables, settings, then what may itself allocate, such as fork handlers.

use crate::lock::Lock;
use crate::process::{self, State};
use crate::{emergency, fork, live, os, page_heap, settings, thread, track};

static STARTING: Lock<()> = Lock::new(());

/// Whether memory can be allocated; the first call starts the allocator.
#[inline]
pub fn ready() -> bool {
    process::is_ready() || start()
}

#[cold]
fn start() -> bool {
    {
        let _guard = STARTING.lock();
        if process::state() != State::New {
            return process::is_ready();
        }
        process::read_page_bytes();
        settings::read_environment();
        let done = page_heap::init();
        process::set_state(if done { State::Ready } else { State::Failed });
        if !done {
            return false;
        }
    }
    // The steps below may allocate, which works once the state is `Ready`.
    os::register_barrier();
    emergency::init();
    thread::init();
    fork::init();
    live::poll();
    track::poll();
    true
}

/// Reads the settings from the environment, once, as soon as the C library knows it.
pub fn read_environment() {
    settings::read_environment();
    live::poll();
    track::poll();
}

/// Runs when the library is unloaded or the process ends, also in Rust programs. Prints the statistics and makes the
/// check that the environment requested, and deletes the thread key, so that a thread which ends later does not call
/// unloaded code.
#[cfg(any(target_os = "linux", target_os = "android"))]
extern "C" fn end() {
    if settings::stats_at_exit() {
        crate::report::line(format_args!("{}", crate::stats()));
    }
    track::end();
    live::end();
    crate::purge::stop();
    if settings::check_at_exit() && !thread::has_interrupted_slow_path() {
        crate::check::check_or_abort();
    }
    thread::delete_key();
}

#[used]
#[cfg(any(target_os = "linux", target_os = "android"))]
// SAFETY: `.fini_array` is a list of pointers to such functions.
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
