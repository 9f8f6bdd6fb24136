//! The first call: window, tables, settings, fork handlers, in an order in which each step may allocate.

use crate::lock::Lock;
use crate::process::{self, State};
use crate::{emergency, fork, os, page_heap, settings, thread};

static STARTING: Lock<()> = Lock::new(());

/// Whether memory can be handed out; makes everything at the first call.
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
    // What follows may allocate: the window is there.
    os::register_barrier();
    emergency::init();
    thread::init();
    fork::init();
    true
}

/// The library is unloaded, or the process ends: the statistics that `TERRACE_STATS=1` asked for, also of Rust programs;
/// threads that end later must not call what is gone.
#[cfg(any(target_os = "linux", target_os = "android"))]
extern "C" fn end() {
    if settings::stats_at_exit() {
        crate::report::line(format_args!("{}", crate::stats()));
    }
    crate::purge::stop();
    if settings::check_at_exit() && !thread::has_interrupted_slow_path() {
        crate::check::check_or_abort();
    }
    thread::delete_key();
}

#[used]
#[cfg(any(target_os = "linux", target_os = "android"))]
// SAFETY: the section is a list of such functions.
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
