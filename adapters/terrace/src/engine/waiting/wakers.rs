//! Wakers that have left the queue: each is woken or dropped, once the pool's lock is released.
//!
//! Promises upward: whatever one of them does, the others are woken and dropped too; the first panic goes on to the
//! caller, unless its thread is panicking already.
//! Asks from below: that no lock is held when a [`Wakers`] is dropped.

use std::any::Any;
use std::mem::{forget, take};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

/// Wakers that have left the queue.
#[derive(Default)]
pub struct Wakers {
    /// Of waiters that were served.
    served: Vec<Waker>,
    /// Of waiters that gave up, or that wait with another waker now.
    stale: Vec<Waker>,
}

impl Wakers {
    /// Keeps a waker to wake it.
    pub fn wake(&mut self, waker: Waker) {
        self.served.push(waker);
    }

    /// Keeps a waker to drop it.
    pub fn discard(&mut self, waker: Waker) {
        self.stale.push(waker);
    }
}

/// Calls into a waker and keeps the first panic. A later one is forgotten, as dropping what it says may panic once
/// more.
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
