//! Forks and panics, as everything meets them that belongs to a process and calls what users brought.
//!
//! A forked child has its parent's memory, but neither its threads nor, for ever, the locks that those held. What belongs to
//! threads, to files or to a driver is refused in the child, without looking at any lock, and is not dropped there:
//! [`Process`], [`ProcessOwned`]. A waker, a callback or a destructor of a user's may panic: [`catch_panic`].
//!
//! Promises upward: a check costs one load, and is right in every child of a [`fork`](https://man7.org/linux/man-pages/man2/fork.2.html)
//! by the C library.
//! Asks from below: `pthread_atfork`, once.

mod catch;

pub use catch::catch_panic;

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// Forks between the first process and this one, since [`watch`] was called.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between the process that called [`watch`] first and this one.
#[inline]
fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Begins to count forks. Called before anything is made that a child must not use.
fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // Miri has no forks.
        #[cfg(all(unix, not(miri)))]
        {
            extern "C" fn child() {
                GENERATION.fetch_add(1, Ordering::Relaxed);
            }
            // SAFETY: the handler only adds to an atomic, which is allowed in a child of a process with threads. Refused
            // for want of memory, forks are not seen here.
            unsafe { libc::pthread_atfork(None, None, Some(child)) };
        }
    });
}

/// The process that made something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// This one.
    pub fn current() -> Self {
        watch();
        Self(generation())
    }

    /// Whether this is still the same process. One load.
    #[inline]
    pub fn is_current(self) -> bool {
        self.0 == generation()
    }
}

/// A value that only the process which made it drops: a forked child forgets it.
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
    /// A value of this process.
    pub fn new(value: T) -> Self {
        Self { value: ManuallyDrop::new(value), process: Process::current() }
    }

    /// Which process made it.
    pub fn process(&self) -> Process {
        self.process
    }

    /// Whether this process made it.
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

impl<T: Default> Default for ProcessOwned<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Of the same process as this one is.
impl<T: Clone> Clone for ProcessOwned<T> {
    fn clone(&self) -> Self {
        Self { value: self.value.clone(), process: self.process }
    }
}

impl<T> Drop for ProcessOwned<T> {
    fn drop(&mut self) {
        if self.process.is_current() {
            // SAFETY: it is used by nothing after this.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for ProcessOwned<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
