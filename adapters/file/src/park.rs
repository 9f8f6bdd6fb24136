//! Blocks threads on futures, and wakes them.
//!
//! Promises upward: a thread in [`block_on`] is woken after its future may have become ready; the wakes that a thread
//! causes during its [`WakeBatch`] take effect when the batch is dropped.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

thread_local! {
    /// Whether this thread has a [`WakeBatch`].
    static IN_BATCH: Cell<bool> = const { Cell::new(false) };
    /// Parked threads that this thread shall unpark at the end of its batch; empty if it has none.
    static DEFERRED: RefCell<Vec<Arc<Parker>>> = const { RefCell::new(Vec::new()) };
}

/// Polls a future until it is ready. Between polls it calls `work`, and parks the thread if `work` returns false: there
/// was nothing to do.
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
            // If this thread is inside a batch, unpark the threads in it: this future may depend on one of them.
            flush_wakes();
            parker.park();
        }
    }
}

/// The waker of a thread in [`block_on`]; it works even after the thread's thread-locals are destroyed. Each unpark is
/// a system call. A thread that is unparked after a whole batch sees all its results and submits its next requests
/// together, and the system may merge those.
#[derive(Default)]
struct Parker {
    /// Set by a wake, cleared when the parked thread continues.
    woken: Mutex<bool>,
    woken_up: Condvar,
}

impl Parker {
    /// Blocks until the next wake; returns at once if a wake came since the last call.
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
        // A thread that is ending has no list of deferred wakes any more: it unparks at once.
        if !IN_BATCH.get() || DEFERRED.try_with(later).is_err() {
            self.unpark();
        }
    }
}

/// While it lives, defers the unparks that this thread causes. A thread must have at most one.
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

/// Unparks the threads whose wakes were deferred.
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
    fn a_waiter_is_woken_after_the_batch() {
        let (told, polls) = (mpsc::channel(), Arc::new(AtomicUsize::new(0)));
        let (tell, count) = (told.0, Arc::clone(&polls));
        let waiter = std::thread::spawn(move || {
            block_on(
                std::future::poll_fn(|context| {
                    // The first poll hands the waker to the test.
                    match count.fetch_add(1, Ordering::Relaxed) {
                        0 => tell.send(context.waker().clone()).map_or(Poll::Ready(()), |()| Poll::Pending),
                        _ => Poll::Ready(()),
                    }
                }),
                || false,
            );
        });
        let waker = told.1.recv().expect("it was polled");
        let batch = WakeBatch::begin();
        (0..3).for_each(|_| waker.wake_by_ref());
        assert_eq!(DEFERRED.with_borrow(Vec::len), 3, "none of them was let through");
        drop(batch);
        assert_eq!(DEFERRED.with_borrow(Vec::len), 0, "all are now");
        waiter.join().expect("no panic");
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }
}
