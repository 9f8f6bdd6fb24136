//! Locks, and what one keeps.
//!
//! Promises upward: what a lock keeps is reached by one caller at a time.
//! Asks from below: a critical section, a spin lock, or any lock that `lock_api` knows.

use core::cell::UnsafeCell;

/// Something that lets one caller in at a time.
///
/// Implemented for critical sections, for `spin::Mutex<()>`, and for `lock_api::Mutex<_, ()>`, which includes the
/// mutexes of parking_lot and of many kernels. Implement it for your operating system's own in a few lines.
///
/// # Safety
/// From the moment `run` starts until it has returned, no other `run` under the same lock starts: on no other core, in no
/// other thread, and in no interrupt handler that uses the lock. (One that is nested in the first, on the same stack, may:
/// who calls `locked` answers for that.)
pub unsafe trait Lock: Sync {
    /// Nobody inside.
    const UNLOCKED: Self;

    /// Runs something while nobody else does.
    fn locked<R>(&self, run: impl FnOnce() -> R) -> R;
}

/// Interrupts masked, in the way that the target's implementation of the `critical-section` crate does it. On a machine
/// with several cores that implementation takes a lock as well.
#[cfg(feature = "critical-section")]
#[derive(Clone, Copy, Debug)]
pub struct CriticalSection;

// SAFETY: this is what a critical section is, as `critical_section::Impl` promises.
#[cfg(feature = "critical-section")]
unsafe impl Lock for CriticalSection {
    const UNLOCKED: Self = Self;

    #[inline(always)]
    fn locked<R>(&self, run: impl FnOnce() -> R) -> R {
        critical_section::with(|_| run())
    }
}

// SAFETY: the guard of a mutex lives until `run` has returned. An interrupt handler that takes a spin lock which its own
// core holds waits for ever: nothing of it runs.
#[cfg(all(feature = "spin", target_has_atomic = "8"))]
unsafe impl Lock for spin::Mutex<()> {
    const UNLOCKED: Self = Self::new(());

    #[inline(always)]
    fn locked<R>(&self, run: impl FnOnce() -> R) -> R {
        let _inside = self.lock();
        run()
    }
}

// SAFETY: the guard of a mutex lives until `run` has returned.
unsafe impl<M: lock_api::RawMutex + Sync> Lock for lock_api::Mutex<M, ()>
where
    Self: Sync,
{
    const UNLOCKED: Self = Self::const_new(M::INIT, ());

    #[inline(always)]
    fn locked<R>(&self, run: impl FnOnce() -> R) -> R {
        let _inside = self.lock();
        run()
    }
}

/// A value that is reached through a lock only.
#[derive(Debug)]
pub struct Locked<L, T> {
    lock: L,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one caller at a time, as `Lock` promises, from whatever thread that is.
unsafe impl<L: Lock, T: Send> Sync for Locked<L, T> {}

impl<L: Lock, T> Locked<L, T> {
    /// A value, unlocked.
    pub const fn new(value: T) -> Self {
        Self { lock: L::UNLOCKED, value: UnsafeCell::new(value) }
    }

    /// Reaches the value while nobody else does.
    ///
    /// # Safety
    /// `run` does not call this again on the same value, not even through a hook: a critical section would let it in.
    #[inline(always)]
    pub unsafe fn with<R>(&self, run: impl FnOnce(&mut T) -> R) -> R {
        self.lock.locked(|| {
            // SAFETY: nobody else is inside, as `Lock` promises, nor is this caller already, as ours does.
            run(unsafe { &mut *self.value.get() })
        })
    }
}
