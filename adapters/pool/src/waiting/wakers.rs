//! Wakers that have left the queue: each is woken or dropped once the pool's lock is released.
//!
//! Promises upward: if one waker panics, the others are woken and dropped nevertheless; the first panic continues in
//! the caller, unless its thread is panicking already.
//! Asks from below: that the caller holds no lock when a [`Wakers`] is dropped.

use std::any::Any;
use std::mem::{forget, take};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

/// Wakers that have left the queue.
#[derive(Default)]
pub struct Wakers {
    /// Wakers of waiters that were served, to be woken.
    served: Vec<Waker>,
    /// Wakers to be dropped: their waiters left the queue, or wait with another waker now.
    stale: Vec<Waker>,
}

impl Wakers {
    /// Adds a waker to be woken.
    pub fn wake(&mut self, waker: Waker) {
        self.served.push(waker);
    }

    /// Adds a waker to be dropped.
    pub fn discard(&mut self, waker: Waker) {
        self.stale.push(waker);
    }
}

/// Runs a function of a waker and keeps the first panic. The payload of a later panic leaks, as dropping it may panic
/// again.
fn call(panic: &mut Option<Box<dyn Any + Send>>, waker: impl FnOnce()) {
    if let Err(caught) = catch_unwind(AssertUnwindSafe(waker)) {
        match panic {
            None => *panic = Some(caught),
            Some(_) => forget(caught),
        }
    }
}

impl Drop for Wakers {
    fn drop(&mut self) {
        let mut panic = None;
        take(&mut self.served).into_iter().for_each(|waker| call(&mut panic, || waker.wake()));
        take(&mut self.stale).into_iter().for_each(|waker| call(&mut panic, || drop(waker)));
        match panic {
            // A second panic in a thread that unwinds would end the process.
            Some(panic) if std::thread::panicking() => forget(panic),
            Some(panic) => resume_unwind(panic),
            None => {}
        }
    }
}
