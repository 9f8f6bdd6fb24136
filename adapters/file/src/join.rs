//! The end of a task, as who began it sees it.
//!
//! Promises upward: wakers of who waits are kept by [`Notify`], and by nothing else: the task itself has none, as its library
//! aborts when one panics.
//! Asks from below: somebody who runs tasks.

use crate::notify::{Notified, Notify};
use crate::park::block_on;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use terrace_guard::Process;

/// The end of a task. Dropped, the task goes on.
#[must_use = "the task goes on, but nobody learns what came of it"]
pub struct JoinHandle<T> {
    task: Option<async_task::Task<()>>,
    outcome: Notified<Arc<TaskOutcome<T>>>,
    /// Whether the task does not go on.
    cancels: bool,
    process: Process,
    in_child: Option<fn() -> T>,
}

/// What came of a task: its result, or what it panicked with.
struct TaskOutcome<T> {
    outcome: Mutex<Option<std::thread::Result<T>>>,
    ended: Notify,
}

impl<T> TaskOutcome<T> {
    fn outcome(&self) -> MutexGuard<'_, Option<std::thread::Result<T>>> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> AsRef<Notify> for TaskOutcome<T> {
    fn as_ref(&self) -> &Notify {
        &self.ended
    }
}

/// Says what came of a task; dropped without a word, that the task was dropped.
pub(crate) struct OutcomeSender<T>(Arc<TaskOutcome<T>>);

impl<T> OutcomeSender<T> {
    pub(crate) fn send(self, outcome: std::thread::Result<T>) {
        *self.0.outcome() = Some(outcome);
    }
}

impl<T> Drop for OutcomeSender<T> {
    fn drop(&mut self) {
        self.0.outcome().get_or_insert_with(|| Err(Box::new("the task was dropped before its end")));
        self.0.ended.notify();
    }
}

impl<T> JoinHandle<T> {
    /// Of a task of that process, which is still to be begun: what makes its end known.
    pub(crate) fn new(process: Process) -> (OutcomeSender<T>, Self) {
        let ended = Arc::new(TaskOutcome { outcome: Mutex::new(None), ended: Notify::new() });
        let listens = Notified::new(Arc::clone(&ended));
        (OutcomeSender(ended), Self { task: None, outcome: listens, cancels: false, process, in_child: None })
    }

    /// The task has begun.
    pub(crate) fn with_task(mut self, task: async_task::Task<()>) -> Self {
        self.task = Some(task);
        self
    }

    /// Waits on this thread.
    ///
    /// # Panics
    /// When the task did; in a forked child, where the task is the parent's and [`in_child`](Self::in_child) was not called. On a thread that runs tasks it may wait for itself: there, `await` it.
    pub fn wait(self) -> T {
        block_on(self, || false)
    }

    /// What who waits is told in a forked child of the process whose task it is: no task goes on there.
    pub fn in_child(mut self, told: fn() -> T) -> Self {
        self.in_child = Some(told);
        self
    }

    /// Dropped, the task is not polled again: what it holds is dropped, where tasks are run.
    pub fn cancel_on_drop(mut self) -> Self {
        self.cancels = true;
        self
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if !self.process.is_current() {
            // Nothing of what it waits for goes on here.
            return Poll::Ready(self.in_child.expect("a task of a parent is not waited for in its forked child")());
        }
        std::task::ready!(Pin::new(&mut self.outcome).poll(context));
        let outcome = self.outcome.to().outcome().take();
        match outcome.expect("a task is not polled after its end") {
            Ok(value) => Poll::Ready(value),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        match self.task.take() {
            // Its task is the parent's.
            Some(task) if !self.process.is_current() => std::mem::forget(task),
            Some(task) if self.cancels => drop(task),
            Some(task) => task.detach(),
            None => {}
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}
