//! The first call: address range, tables, settings, fork handlers, in an order in which each step may allocate.

use crate::lock::Lock;
use crate::process::{self, State};
use crate::{emergency, fork, os, page_heap, settings, thread};

static STARTING: Lock<()> = Lock::new(());

/// Whether memory can be allocated; the first call reserves the address range.
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
    // The next steps may allocate: the address range is there.
    os::register_barrier();
    emergency::init();
    thread::init();
    fork::init();
    true
}

/// Runs when the library is unloaded or the process ends, in Rust programs too: prints the statistics and makes the check that
/// the environment asked for, and deletes the key, so that threads which end later do not call what is gone.
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
