//! The allocator's lock: one word, and a system call only when a thread must sleep.
//!
//! Promises upward: `lock_api::RawMutex`; no allocation, no thread-local variable. While a thread forks it holds every
//! lock, and may take them again, so that the program's fork handlers which run meanwhile may allocate.

use crate::futex::Futex;
use crate::{os, process};

/// Reads of the word before a thread sleeps: a lock is held for about a microsecond, a read takes about ten
/// nanoseconds.
const LOOKS: u32 = 100;

/// The raw lock behind [`Lock`].
#[derive(Debug)]
pub struct RawLock(Futex);

/// A mutex: a value that a [`RawLock`] guards.
pub type Lock<T> = lock_api::Mutex<RawLock, T>;

// SAFETY: `lock` returns only after this thread took the word, and `unlock` releases it: one holder at a time, which
// sees the writes of the last holder (see `futex`). The one exception is a thread that forks: it holds every lock, and
// is the only thread that runs code under them (see `fork`).
unsafe impl lock_api::RawMutex for RawLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the initial value of a lock, as lock_api asks for it")]
    const INIT: Self = Self(Futex::new());

    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.try_lock()
    }

    #[inline]
    unsafe fn unlock(&self) {
        if process::is_forking_here() {
            return;
        }
        if let Some(word) = self.0.unlock() {
            os::wake(word, 1);
        }
    }
}

impl RawLock {
    #[cold]
    fn wait(&self) {
        if process::is_forking_here() {
            return;
        }
        for _ in 0..LOOKS {
            core::hint::spin_loop();
            if self.0.is_free() && self.0.try_lock() {
                return;
            }
        }
        self.0.lock(|word, seen| os::wait(word, seen, 0));
    }
}
