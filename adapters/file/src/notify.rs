//! Futures that wait for a notification, and the wakers that they registered.
//!
//! Promises upward: a waker is cloned, replaced, dropped and woken with no lock held, so that it may use the [`Notify`] that it
//! waits for; a waker that panics keeps no other from being woken, and its panic is caught; in a forked child a future is ready
//! at once, and dropping a [`Notified`] touches no lock.
//!
//! Invariant: each waker in `wakers` was registered after the last notification.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use terrace_guard::{Process, catch_panic};

/// Notifies every listener at once.
pub struct Notify {
    waiters: Mutex<Waiters>,
    process: Process,
}

#[derive(Default)]
struct Waiters {
    /// Number of notifications so far.
    notifications: u64,
    /// The key for the next waker.
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Notify {
    /// A `Notify` without listeners.
    pub fn new() -> Self {
        Self { waiters: Mutex::default(), process: Process::current() }
    }

    /// A future that is ready once [`notify`](Self::notify) has been called after this call.
    pub fn listen(&self) -> Notified<&Self> {
        Notified::new(self)
    }

    /// Notifies all current listeners: runs the waker of each that was polled.
    pub fn notify(&self) {
        let mut waiters = self.waiters();
        waiters.notifications += 1;
        let wakers = std::mem::take(&mut waiters.wakers);
        drop(waiters);
        wakers.into_values().for_each(|waker| catch_panic(|| waker.wake()));
    }

    /// Registers `waker` and returns true; or returns false if a notification came after the first `since` ones. Also
    /// returns a waker that the caller must drop without holding the lock: the one that `waker` replaced, or `waker`
    /// itself if it was not registered.
    fn register(&self, since: u64, key: &mut Option<u64>, waker: Waker) -> (bool, Option<Waker>) {
        let mut waiters = self.waiters();
        if waiters.notifications != since {
            return (false, Some(waker));
        }
        let next = waiters.next;
        let key = *key.get_or_insert(next);
        waiters.next += u64::from(key == next);
        (true, waiters.wakers.insert(key, waker))
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Notify {
    fn default() -> Self {
        Self::new()
    }
}

impl AsRef<Notify> for Notify {
    fn as_ref(&self) -> &Notify {
        self
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notify").finish_non_exhaustive()
    }
}

/// A future that is ready after the first notification since its creation.
///
/// `R` is the reference to the [`Notify`].
#[must_use = "futures do nothing unless polled"]
pub struct Notified<R: Deref<Target: AsRef<Notify>>> {
    to: R,
    /// Number of notifications before this future was created.
    since: u64,
    /// The key of the registered waker; `None` before the first poll.
    key: Option<u64>,
}

impl<R: Deref<Target: AsRef<Notify>>> Notified<R> {
    pub(crate) fn new(to: R) -> Self {
        let since = (*to).as_ref().waiters().notifications;
        Self { to, since, key: None }
    }

    /// The reference to the notifier.
    pub(crate) fn to(&self) -> &R {
        &self.to
    }
}

impl<R: Deref<Target: AsRef<Notify>> + Unpin> Future for Notified<R> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Be ready at once in a forked child: no thread notifies there, and the lock may be held for ever by a thread
        // of the parent.
        if !(*self.to).as_ref().process.is_current() {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let Self { to, since, key } = &mut *self;
        let (waits, spare) = (**to).as_ref().register(*since, key, waker);
        catch_panic(|| drop(spare));
        if waits { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl<R: Deref<Target: AsRef<Notify>>> Drop for Notified<R> {
    fn drop(&mut self) {
        let to = (*self.to).as_ref();
        if let Some(key) = self.key.filter(|_| to.process.is_current()) {
            // `notify` may already have removed the waker; no other waker has this key, since keys are never reused.
            let waker = to.waiters().wakers.remove(&key);
            catch_panic(|| drop(waker));
        }
    }
}

impl<R: Deref<Target: AsRef<Notify>>> fmt::Debug for Notified<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notified").finish_non_exhaustive()
    }
}
