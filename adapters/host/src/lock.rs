//! The lock of everything that is not lock-free: one word, a system call only when somebody must sleep.
//!
//! Promises upward: `lock_api::RawMutex`; no allocation, no thread-local variable; the thread that forks may take locks that
//! it holds for the fork again, so that handlers of the program which run between ours may allocate.
//! Asks from below: [`os::wait`], [`os::wake`].
//!
//! The word is Drepper's ("Futexes Are Tricky", mutex 2): FREE, HELD, or CONTENDED: held, and somebody may sleep.

use crate::{fork, os};
use core::sync::atomic::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// Looks before a thread sleeps: what the lock guards takes about a microsecond, a look about ten nanoseconds.
const LOOKS: u32 = 100;

/// The raw lock; see [`Lock`].
#[derive(Debug)]
pub struct RawLock(AtomicU32);

/// A value behind the lock.
pub type Lock<T> = lock_api::Mutex<RawLock, T>;

// SAFETY: `lock` returns only after FREE was made HELD or CONTENDED by this thread, with acquire ordering, and `unlock` makes
// it FREE with release ordering: one holder at a time, who sees what the last one did. The one exception is a thread that
// forks, which holds every lock and is the only one that runs while it does (see `fork`).
unsafe impl lock_api::RawMutex for RawLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "the initial value of a lock, as lock_api asks for it")]
    const INIT: Self = Self(AtomicU32::new(FREE));

    type GuardMarker = lock_api::GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        if fork::is_forking_here() {
            return;
        }
        if self.0.swap(FREE, Ordering::Release) == CONTENDED {
            os::wake(&self.0, 1);
        }
    }
}

impl RawLock {
    #[cold]
    fn wait(&self) {
        if fork::is_forking_here() {
            return;
        }
        for _ in 0..LOOKS {
            core::hint::spin_loop();
            if self.0.load(Ordering::Relaxed) == FREE && lock_api::RawMutex::try_lock(self) {
                return;
            }
        }
        while self.0.swap(CONTENDED, Ordering::Acquire) != FREE {
            os::wait(&self.0, CONTENDED, 0);
        }
    }
}
