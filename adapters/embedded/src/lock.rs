//! Locks, and a value behind a lock.
//!
//! Promises upward: one caller at a time reaches the value behind a lock.
//! Asks from below: a critical section, a spin lock, or any mutex that implements `lock_api::RawMutex`.

use core::cell::UnsafeCell;

/// A lock that admits one caller at a time.
///
/// Implemented for critical sections, for `spin::Mutex<()>`, and for `lock_api::Mutex<_, ()>`, which includes the
/// mutexes of parking_lot and of many kernels. For the lock of another operating system, implement this trait in a few
/// lines.
///
/// # Safety
/// While one `run` runs, no other `run` of the same lock may start: on no other core, in no other thread, and in no interrupt
/// handler that uses the lock. A call of `locked` from inside `run`, on the same stack, is the caller's fault: the lock need
/// not stop it.
pub unsafe trait Lock: Sync {
    /// The lock, in the state in which no caller holds it.
    const UNLOCKED: Self;

    /// Runs `run` while holding the lock.
    fn locked<R>(&self, run: impl FnOnce() -> R) -> R;
}

/// A critical section, as the target's implementation of the `critical-section` crate provides it.
///
/// On one core it masks interrupts; on a machine with several cores the implementation takes a lock as well.
#[cfg(feature = "critical-section")]
#[derive(Clone, Copy, Debug)]
pub struct CriticalSection;

// SAFETY: `critical_section::Impl` promises exactly what `Lock` asks for.
#[cfg(feature = "critical-section")]
unsafe impl Lock for CriticalSection {
    const UNLOCKED: Self = Self;

    #[inline(always)]
    fn locked<R>(&self, run: impl FnOnce() -> R) -> R {
        critical_section::with(|_| run())
    }
}

// SAFETY: the guard of the mutex lives until `run` has returned. An interrupt handler that takes a spin lock which its own
// core holds spins for ever, so its `run` never starts.
#[cfg(all(feature = "spin", target_has_atomic = "8"))]
unsafe impl Lock for spin::Mutex<()> {
    const UNLOCKED: Self = Self::new(());

    #[inline(always)]
    fn locked<R>(&self, run: impl FnOnce() -> R) -> R {
        let _guard = self.lock();
        run()
    }
}

// SAFETY: the guard of the mutex lives until `run` has returned.
unsafe impl<M: lock_api::RawMutex + Sync> Lock for lock_api::Mutex<M, ()>
where
    Self: Sync,
{
    const UNLOCKED: Self = Self::const_new(M::INIT, ());

    #[inline(always)]
    fn locked<R>(&self, run: impl FnOnce() -> R) -> R {
        let _guard = self.lock();
        run()
    }
}

/// A value that callers reach through a lock only.
///
/// ```
/// # #[cfg(feature = "critical-section")] {
/// use terrace_embedded::{CriticalSection, Locked};
/// static COUNT: Locked<CriticalSection, u32> = Locked::new(0);
/// // SAFETY: the closure does not reach `COUNT`.
/// let count = unsafe { COUNT.with(|count| { *count += 1; *count }) };
/// assert_eq!(count, 1);
/// # }
/// ```
#[derive(Debug)]
pub struct Locked<L, T> {
    lock: L,
    value: UnsafeCell<T>,
}

// SAFETY: `Lock` admits one caller at a time to the value, and `T: Send` lets that caller be on any thread.
unsafe impl<L: Lock, T: Send> Sync for Locked<L, T> {}

impl<L: Lock, T> Locked<L, T> {
    /// A value behind a lock that is not held.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")]
    /// static COUNT: terrace_embedded::Locked<terrace_embedded::CriticalSection, u32> = terrace_embedded::Locked::new(0);
    /// ```
    pub const fn new(value: T) -> Self {
        Self { lock: L::UNLOCKED, value: UnsafeCell::new(value) }
    }

    /// Runs `run` on the value while holding the lock.
    ///
    /// # Safety
    /// `run` must not call `with` on the same value, not even through a hook: critical sections nest, so the lock would
    /// not stop it.
    ///
    /// ```
    /// # #[cfg(feature = "critical-section")] {
    /// # use terrace_embedded::{CriticalSection, Locked};
    /// static NAMES: Locked<CriticalSection, [u8; 4]> = Locked::new(*b"heap");
    /// // SAFETY: the closure does not reach `NAMES`.
    /// assert_eq!(unsafe { NAMES.with(|names| names[0]) }, b'h');
    /// # }
    /// ```
    #[inline(always)]
    pub unsafe fn with<R>(&self, run: impl FnOnce(&mut T) -> R) -> R {
        self.lock.locked(|| {
            // SAFETY: `Lock` keeps every other caller out, and this caller promised not to enter a second time from
            // `run`.
            run(unsafe { &mut *self.value.get() })
        })
    }
}
