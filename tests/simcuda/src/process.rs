//! What the process is up to.
//!
//! Upward: [`check`]. A child of a fork cannot use the driver that its parent initialised, and nobody can when the
//! process ends: both get the driver's error for it, without the lock, which a thread that is gone may hold.
//! From below: `pthread_atfork` and `atexit`.

use crate::abi::Outcome;
use crate::abi::codes::{DEINITIALIZED, NOT_INITIALIZED};
use std::sync::Once;
use std::sync::atomic::{AtomicU8, Ordering};

/// The driver was never initialised.
const FRESH: u8 = 0;
/// It was.
const USED: u8 = 1;
/// It was, in a parent of this process.
const FORKED: u8 = 2;
/// The process ends.
const ENDING: u8 = 3;

static STATE: AtomicU8 = AtomicU8::new(FRESH);
static WATCH: Once = Once::new();

/// The driver is initialised: from now on forks and the end matter.
pub fn used() {
    WATCH.call_once(|| {
        // SAFETY: the handler only stores an atomic.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
        // SAFETY: as above; the library is never unloaded.
        unsafe { libc::atexit(ending) };
    });
    STATE.store(USED, Ordering::SeqCst);
}

/// Whether calls may be made.
pub fn check() -> Outcome {
    match STATE.load(Ordering::SeqCst) {
        FORKED => Err(NOT_INITIALIZED),
        ENDING => Err(DEINITIALIZED),
        _ => Ok(()),
    }
}

extern "C" fn forked() {
    STATE.store(FORKED, Ordering::SeqCst);
}

extern "C" fn ending() {
    STATE.store(ENDING, Ordering::SeqCst);
}
