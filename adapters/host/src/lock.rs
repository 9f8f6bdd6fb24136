//! The lock of everything that is not lock-free: one word, a system call only when somebody must sleep.
//!
//! Promises upward: `lock_api::RawMutex`; no allocation, no thread-local variable; the thread that forks may take locks that
//! it holds for the fork again, so that handlers of the program which run between ours may allocate.
//! Asks from below: [`word`](crate::futex), [`os::wait`], [`os::wake`].

use crate::futex::Futex;
use crate::{os, process};

/// Looks before a thread sleeps: what the lock guards takes about a microsecond, a look about ten nanoseconds.
const LOOKS: u32 = 100;

/// The raw lock; see [`Lock`].
#[derive(Debug)]
pub struct RawLock(Futex);

/// A value behind the lock.
pub type Lock<T> = lock_api::Mutex<RawLock, T>;

// SAFETY: `lock` returns only after this thread took the word, and `unlock` lets it go: one holder at a time, who sees what the
// last one did (see `word`). The one exception is a thread that forks, which holds every lock and is the only one that runs
// while it does (see `fork`).
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
