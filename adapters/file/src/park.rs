//! Threads that wait for futures, and what wakes them.
//!
//! Promises upward: a thread that [`block_on`]s is woken after its future may have become ready; while a thread has a [`WakeBatch`], the
//! threads that it would wake are woken at the end of the turn.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

thread_local! {
    /// Whether this thread has a turn.
    static IN_BATCH: Cell<bool> = const { Cell::new(false) };
    /// Whom it wakes at the end of it; empty where it has none.
    static DEFERRED: RefCell<Vec<Arc<Parker>>> = const { RefCell::new(Vec::new()) };
}

/// Polls a future until its end. While it is not ready, this thread does `work`, or sleeps when there is none (false).
pub(crate) fn block_on<F: Future>(future: F, mut work: impl FnMut() -> bool) -> F::Output {
    let mut future = std::pin::pin!(future);
    let parker = Arc::new(Parker::default());
    let waker = Waker::from(Arc::clone(&parker));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut context) {
            return result;
        }
        if !work() {
            // Inside a turn: what is waited for may need those.
            flush_wakes();
            parker.park();
        }
    }
}

/// A thread that waits, also one whose thread-locals are gone. To wake it is a call of the system each time; who is woken after a
/// turn sees all that came of it, and asks for as much at once, which the system may put together to larger requests.
#[derive(Default)]
struct Parker {
    /// Woken, and has not slept since.
    woken: Mutex<bool>,
    woken_up: Condvar,
}

impl Parker {
    /// Until it is woken, or was since it slept last.
    fn park(&self) {
        let woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut woken = self.woken_up.wait_while(woken, |woken| !*woken).unwrap_or_else(PoisonError::into_inner);
        *woken = false;
    }

    fn unpark(&self) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.woken_up.notify_one();
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        let later = |later: &RefCell<Vec<_>>| later.borrow_mut().push(Arc::clone(&self));
        // A thread whose list is gone wakes at once.
        if !IN_BATCH.get() || DEFERRED.try_with(later).is_err() {
            self.unpark();
        }
    }
}

/// While it is there, its thread wakes nobody that waits here. A thread has one at most.
pub(crate) struct WakeBatch(());

impl WakeBatch {
    pub(crate) fn begin() -> Self {
        IN_BATCH.set(true);
        Self(())
    }
}

impl Drop for WakeBatch {
    fn drop(&mut self) {
        IN_BATCH.set(false);
        flush_wakes();
    }
}

/// Wakes those that were to be woken later.
pub(crate) fn flush_wakes() {
    let later = DEFERRED.try_with(RefCell::take).unwrap_or_default();
    later.into_iter().for_each(|parker| parker.unpark());
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
            block_on(
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
        let turn = WakeBatch::begin();
        (0..3).for_each(|_| waker.wake_by_ref());
        assert_eq!(DEFERRED.with_borrow(Vec::len), 3, "none of them was let through");
        drop(turn);
        assert_eq!(DEFERRED.with_borrow(Vec::len), 0, "all are now");
        waiter.join().expect("no panic");
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }
}
