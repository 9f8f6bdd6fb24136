//! Blocks threads on futures, and wakes them.
//!
//! Promises upward: a thread in [`block_on`] is woken after its future may have become ready; the wakes that a thread causes
//! during its [`WakeBatch`] happen when the batch is dropped.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

thread_local! {
    /// Whether this thread has a [`WakeBatch`].
    static IN_BATCH: Cell<bool> = const { Cell::new(false) };
    /// Threads to unpark at the end of the batch; empty without one.
    static DEFERRED: RefCell<Vec<Arc<Parker>>> = const { RefCell::new(Vec::new()) };
}

/// Polls a future until it is ready; between polls calls `work`, and parks the thread when `work` had nothing to do (false).
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
            // Called inside a batch: this future may depend on a thread whose wake is deferred.
            flush_wakes();
            parker.park();
        }
    }
}

/// The waker of a thread in [`block_on`]; it works after the thread's thread-locals are destroyed. Each unpark is a system call;
/// a thread that is unparked after a batch sees all its results and submits that many requests at once, which the system may
/// merge.
#[derive(Default)]
struct Parker {
    /// Set by a wake, cleared when the thread has seen it.
    woken: Mutex<bool>,
    woken_up: Condvar,
}

impl Parker {
    /// Blocks until a wake, or returns at once if one came since the last call.
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
        // The list of a thread that is ending is destroyed: such a thread unparks at once.
        if !IN_BATCH.get() || DEFERRED.try_with(later).is_err() {
            self.unpark();
        }
    }
}

/// Defers the unparking of threads while it lives. At most one on a thread.
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
