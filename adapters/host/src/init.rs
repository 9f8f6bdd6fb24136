//! The first call: window, tables, settings, fork handlers, in an order in which each step may allocate.

use crate::lock::Lock;
use crate::{emergency, fork, page_heap, os, settings, thread};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Nothing done yet; memory can be handed out; the system refused.
const NEW: u32 = 0;
const READY: u32 = 1;
const FAILED: u32 = 2;

static STATE: AtomicU32 = AtomicU32::new(NEW);
static STARTING: Lock<()> = Lock::new(());
/// Bytes of the system's page.
static PAGE_BYTES: AtomicU32 = AtomicU32::new(4096);
/// Whether the environment was read.
static READ: AtomicBool = AtomicBool::new(false);

/// Whether memory can be handed out; makes everything at the first call.
#[inline]
pub fn ready() -> bool {
    STATE.load(Acquire) == READY || start()
}

#[cold]
fn start() -> bool {
    {
        let _guard = STARTING.lock();
        if STATE.load(Acquire) != NEW {
            return STATE.load(Acquire) == READY;
        }
        PAGE_BYTES.store(os::page_bytes() as u32, Relaxed);
        read_environment();
        let done = page_heap::init();
        STATE.store(if done { READY } else { FAILED }, Release);
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

/// Reads the settings, once, as soon as the C library knows the environment.
pub fn read_environment() {
    if os::environ().is_some() && !READ.swap(true, Relaxed) {
        settings::read_environment();
    }
}

/// Bytes of the system's page.
pub fn page_bytes() -> usize {
    PAGE_BYTES.load(Relaxed) as usize
}

/// The library is unloaded, or the process ends: the statistics that `TERRACE_STATS=1` asked for, also of Rust programs;
/// threads that end later must not call what is gone.
#[cfg(any(target_os = "linux", target_os = "android"))]
extern "C" fn end() {
    if settings::stats_at_exit() {
        crate::report::line(format_args!("{}", crate::stats()));
    }
    crate::purge_thread::stop();
    thread::delete_key();
}

#[used]
#[cfg(any(target_os = "linux", target_os = "android"))]
// SAFETY: the section is a list of such functions.
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
