//! Threads that wait for futures, and what wakes them.
//!
//! Promises upward: a thread that [`wait`]s is woken after its future may have become ready; while a thread has a [`Turn`], the
//! threads that it would wake are woken at the end of the turn.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

thread_local! {
    /// Whether this thread has a turn.
    static IN_TURN: Cell<bool> = const { Cell::new(false) };
    /// Whom it wakes at the end of it; empty where it has none.
    static LATER: RefCell<Vec<Arc<Sleeper>>> = const { RefCell::new(Vec::new()) };
}

/// Polls a future until its end. While it is not ready, this thread does `work`, or sleeps when there is none (false).
pub(crate) fn wait<F: Future>(future: F, mut work: impl FnMut() -> bool) -> F::Output {
    let mut future = std::pin::pin!(future);
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(Arc::clone(&sleeper));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        if !work() {
            // Inside a turn: what is waited for may need those.
            wake();
            sleeper.sleep();
        }
    }
}

/// A thread that waits, also one whose thread-locals are gone. To wake it is a call of the system each time; who is woken after a
/// turn sees all that came of it, and asks for as much at once, which the system may put together to larger requests.
#[derive(Default)]
struct Sleeper {
    /// Woken, and has not slept since.
    woken: Mutex<bool>,
    told: Condvar,
}

impl Sleeper {
    /// Until it is woken, or was since it slept last.
    fn sleep(&self) {
        let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut woken = self.told.wait_while(woken, |woken| !*woken).unwrap_or_else(PoisonError::into_inner);
        *woken = false;
    }

    fn rouse(&self) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_one();
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        let later = |later: &RefCell<Vec<_>>| later.borrow_mut().push(Arc::clone(&self));
        // A thread whose list is gone wakes at once.
        if !IN_TURN.get() || LATER.try_with(later).is_err() {
            self.rouse();
        }
    }
}

/// While it is there, its thread wakes nobody that waits here. A thread has one at most.
pub(crate) struct Turn(());

impl Turn {
    pub(crate) fn begin() -> Self {
        IN_TURN.set(true);
        Self(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        IN_TURN.set(false);
        wake();
    }
}

/// Wakes those that were to be woken later.
pub(crate) fn wake() {
    let later = LATER.try_with(RefCell::take).unwrap_or_default();
    later.into_iter().for_each(|sleeper| sleeper.rouse());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    #[test]
    fn who_waits_is_woken_after_the_turn() {
        let (told, polls) = (mpsc::channel(), Arc::new(AtomicUsize::new(0)));
        let (tell, count) = (told.0, Arc::clone(&polls));
        let waiter = std::thread::spawn(move || {
            wait(
                std::future::poll_fn(|context| {
                    // The first poll tells how to wake it.
                    match count.fetch_add(1, Ordering::Relaxed) {
                        0 => tell.send(context.waker().clone()).map_or(Poll::Ready(()), |()| Poll::Pending),
                        _ => Poll::Ready(()),
                    }
                }),
                || false,
            );
        });
        let waker = told.1.recv().expect("it was polled");
        let turn = Turn::begin();
        (0..3).for_each(|_| waker.wake_by_ref());
        assert_eq!(LATER.with_borrow(Vec::len), 3, "none of them was let through");
        drop(turn);
        assert_eq!(LATER.with_borrow(Vec::len), 0, "all are now");
        waiter.join().expect("no panic");
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }
}
