//! Futures that wait until they are told, and what wakes them.
//!
//! Promises upward: a waker is cloned, replaced, dropped and run with no lock held, so that it may do whatever it likes with what
//! it waits for; a waker that panics keeps no other from being woken, and its panic goes no further; in a forked child a future ends
//! at once, and a listener is dropped without a word.
//!
//! Invariant: `wakers` are of listeners that began to wait since the last notification.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use terrace_guard::{Process, calm};

/// Tells all that listen.
pub struct Notify {
    waiters: Mutex<Waiters>,
    process: Process,
}

#[derive(Default)]
struct Waiters {
    /// Notifications so far.
    notifications: u64,
    /// The next listener's key.
    next: u64,
    wakers: BTreeMap<u64, Waker>,
}

impl Notify {
    /// Nobody listens yet.
    pub fn new() -> Self {
        Self { waiters: Mutex::default(), process: Process::current() }
    }

    /// Listens, to this or a later reference to it: the future ends with the first notification from now on.
    pub fn listen(&self) -> Notified<&Self> {
        Notified::new(self)
    }

    /// Tells all that listen now, and wakes those of them that were polled.
    pub fn notify(&self) {
        let mut waiters = self.waiters();
        waiters.notifications += 1;
        let wakers = std::mem::take(&mut waiters.wakers);
        drop(waiters);
        wakers.into_values().for_each(|waker| calm(|| waker.wake()));
    }

    /// Leaves a waker. What is not kept goes back, to be dropped by the caller: the one before it, or this one when the
    /// notification has come (false).
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

/// Ends with the first notification since it was made. `R` leads to what notifies.
#[must_use = "futures do nothing unless polled"]
pub struct Notified<R: Deref<Target: AsRef<Notify>>> {
    to: R,
    /// Notifications before it.
    since: u64,
    /// Where its waker is, once it was polled.
    key: Option<u64>,
}

impl<R: Deref<Target: AsRef<Notify>>> Notified<R> {
    pub(crate) fn new(to: R) -> Self {
        let since = (*to).as_ref().waiters().notifications;
        Self { to, since, key: None }
    }

    /// What it listens to.
    pub(crate) fn to(&self) -> &R {
        &self.to
    }
}

impl<R: Deref<Target: AsRef<Notify>> + Unpin> Future for Notified<R> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // The lock may be a thread's that is not in this child; nobody tells here.
        if !(*self.to).as_ref().process.is_current() {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let Self { to, since, key } = &mut *self;
        let (waits, spare) = (**to).as_ref().register(*since, key, waker);
        calm(|| drop(spare));
        if waits { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl<R: Deref<Target: AsRef<Notify>>> Drop for Notified<R> {
    fn drop(&mut self) {
        let to = (*self.to).as_ref();
        if let Some(key) = self.key.filter(|_| to.process.is_current()) {
            // Gone already after a notification: keys are never given twice.
            let waker = to.waiters().wakers.remove(&key);
            calm(|| drop(waker));
        }
    }
}

impl<R: Deref<Target: AsRef<Notify>>> fmt::Debug for Notified<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notified").finish_non_exhaustive()
    }
}
