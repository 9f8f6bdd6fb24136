//! Protection against forks, panics in user code and libraries that crash, for crates that own threads, files or drivers.
//!
//! A forked child has a copy of its parent's memory, but none of the parent's other threads; locks that those threads held
//! stay locked for ever. Calls that need threads, files or a driver are refused in the child before they touch a lock, and
//! values that own such things are leaked there: [`Process`], [`ProcessOwned`]. A waker, a callback or a destructor that a
//! user supplies may panic: [`catch_panic`]. A library may end the process that loads it: [`try_loading`].
//!
//! Promises upward: a check costs one load, and detects every child made by the C library's
//! [`fork`](https://man7.org/linux/man-pages/man2/fork.2.html).
//! Asks from below: `pthread_atfork`, called once.

mod catch;
mod loads;

pub use catch::catch_panic;
pub use loads::{CrashingLibrary, try_loading};

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of forks between the process that first called [`watch`] and this one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

#[inline]
fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Registers the fork handler. Caller must call this before it makes anything that a child must not use.
fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // Miri does not support `pthread_atfork`.
        #[cfg(all(unix, not(miri)))]
        {
            extern "C" fn child() {
                GENERATION.fetch_add(1, Ordering::Relaxed);
            }
            // SAFETY: the handler only adds to an atomic, which is async-signal-safe. If `pthread_atfork` fails for lack of
            // memory, forks stay undetected.
            unsafe { libc::pthread_atfork(None, None, Some(child)) };
        }
    });
}

/// The process in which a value was made, for comparison with the current process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// The current process.
    pub fn current() -> Self {
        watch();
        Self(generation())
    }

    /// Whether the calling process is the recorded one, not a forked child of it. One load.
    #[inline]
    pub fn is_current(self) -> bool {
        self.0 == generation()
    }
}

/// A value that is dropped only in the process that made it; a forked child leaks it.
///
/// # Example
/// ```
/// let kept = terrace_guard::ProcessOwned::new(vec![1, 2, 3]);
/// assert!(kept.is_own() && kept.len() == 3);
/// ```
pub struct ProcessOwned<T> {
    value: ManuallyDrop<T>,
    process: Process,
}

impl<T> ProcessOwned<T> {
    /// Wraps a value and records the current process as its owner.
    pub fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), process: Process::current() }
    }

    /// The process that made the value.
    pub fn process(&self) -> Process {
        self.process
    }

    /// Whether the current process made the value; false in a child forked since then.
    #[inline]
    pub fn is_own(&self) -> bool {
        self.process.is_current()
    }
}

impl<T> Deref for ProcessOwned<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for ProcessOwned<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

impl<T: Default> Default for ProcessOwned<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Clones the value; the clone has the same owner as the original.
impl<T: Clone> Clone for ProcessOwned<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), process: self.process }
    }
}

impl<T> Drop for ProcessOwned<T> {
    fn drop(&mut self) {
        if self.process.is_current() {
            // SAFETY: `self` is being dropped, so the value is not used again.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for ProcessOwned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
