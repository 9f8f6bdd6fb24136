//! Whether this process is the one that opened a device.
//!
//! Promises upward: [`generation`] costs one load, and is another number in every forked child.
//! Asks from below: `pthread_atfork`, once.

use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks between the first process and this one, since [`watch`] was called.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between the process that opened the first device and this one.
#[inline]
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Begins to count forks. Called before the first device is opened.
pub fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // Miri has no forks.
        #[cfg(all(unix, not(miri)))]
        {
            extern "C" fn child() {
                GENERATION.fetch_add(1, Ordering::Relaxed);
            }
            // SAFETY: the handler only adds to an atomic, which is allowed in a child of a process with threads. Refused
            // for want of memory, forks are not seen here, and the driver itself refuses calls in the child.
            unsafe { libc::pthread_atfork(None, None, Some(child)) };
        }
    });
}
