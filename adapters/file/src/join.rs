//! The handle of a task, through which its spawner waits for the result.
//!
//! Promises upward: [`Notify`] alone stores the wakers of waiters. The task of `async_task` stores none, because that library
//! aborts the process when a waker panics.
//! Asks from below: an executor that polls the task.

use crate::notify::{Notified, Notify};
use crate::park::block_on;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use terrace_guard::Process;

/// A future that resolves to the result of a task.
///
/// Dropping the handle detaches the task, which then runs to its end, unless [`Self::cancel_on_drop`] was called.
#[must_use = "the task goes on, but its result is dropped"]
pub struct JoinHandle<T> {
    task: Option<async_task::Task<()>>,
    outcome: ResultSource<T>,
    on_drop: OnDrop,
    process: Process,
    in_child: Option<fn() -> T>,
    /// Called with the result before it is returned.
    on_delivery: Option<fn(&T)>,
}

/// What dropping a handle does to its task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnDrop {
    Detaches,
    Cancels,
    /// Detaches it, whatever the holder asks for.
    NeverCancels,
}

/// Where a handle gets its result from.
enum ResultSource<T> {
    /// The task reports it.
    Task(Notified<Arc<TaskOutcome<T>>>),
    /// It was there when the handle was made; `None` once it was taken.
    Ready(Option<std::thread::Result<T>>),
}

// No field is pinned: a result is only moved.
impl<T> Unpin for JoinHandle<T> {}

/// The result of a task, or the payload of its panic.
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

/// Reports the outcome of a task to its handle. When dropped, it notifies the waiter; if no outcome was sent, the
/// outcome is a panic which says that the task was dropped.
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
    /// Creates a handle, and the sender that must report the task's outcome to it. `process`: the process that spawned
    /// the task.
    pub(crate) fn new(process: Process) -> (OutcomeSender<T>, Self) {
        let ended = Arc::new(TaskOutcome { outcome: Mutex::new(None), ended: Notify::new() });
        let outcome = ResultSource::Task(Notified::new(Arc::clone(&ended)));
        (OutcomeSender(ended), Self::of(outcome, process))
    }

    /// A handle with an outcome that is there already: no task was needed.
    pub(crate) fn ready(outcome: std::thread::Result<T>) -> Self {
        Self::of(ResultSource::Ready(Some(outcome)), Process::current())
    }

    fn of(outcome: ResultSource<T>, process: Process) -> Self {
        Self { task: None, outcome, on_drop: OnDrop::Detaches, process, in_child: None, on_delivery: None }
    }

    /// Attaches the spawned task to the handle.
    pub(crate) fn with_task(mut self, task: async_task::Task<()>) -> Self {
        self.task = Some(task);
        self
    }

    /// Blocks this thread until the task has ended.
    ///
    /// Must not be called on a thread that polls tasks, since the thread might wait for itself: `await` the handle
    /// there.
    ///
    /// # Panics
    /// When the task panicked; in a forked child of the task's process, unless [`in_child`](Self::in_child) was called.
    pub fn wait(self) -> T {
        block_on(self, || false)
    }

    /// Sets the result that a forked child of the task's process gets: no task runs there.
    pub fn in_child(mut self, value: fn() -> T) -> Self {
        self.in_child = Some(value);
        self
    }

    /// Calls `tell` with the result when it is delivered: not if the handle is dropped before.
    pub fn on_delivery(mut self, tell: fn(&T)) -> Self {
        self.on_delivery = Some(tell);
        self
    }

    /// Makes [`cancel_on_drop`](Self::cancel_on_drop) do nothing, for a task that must end.
    pub fn runs_to_end(mut self) -> Self {
        self.on_drop = OnDrop::NeverCancels;
        self
    }

    /// Cancels the task when the handle is dropped: the executor drops the future without another poll.
    ///
    /// A task that [`runs_to_end`](Self::runs_to_end) goes on.
    pub fn cancel_on_drop(mut self) -> Self {
        if self.on_drop == OnDrop::Detaches {
            self.on_drop = OnDrop::Cancels;
        }
        self
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        if !self.process.is_current() {
            // The task belongs to the parent process, and makes no progress in the child.
            return Poll::Ready(self.in_child.expect("a task of a parent is not waited for in its forked child")());
        }
        let outcome = match &mut self.outcome {
            ResultSource::Ready(outcome) => outcome.take(),
            ResultSource::Task(outcome) => {
                std::task::ready!(Pin::new(&mut *outcome).poll(context));
                outcome.to().outcome().take()
            }
        };
        match outcome.expect("a handle is not polled after its end") {
            Ok(value) => {
                if let Some(tell) = self.on_delivery {
                    tell(&value);
                }
                Poll::Ready(value)
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        match self.task.take() {
            // In a forked child, leave the task untouched: it belongs to the parent process.
            Some(task) if !self.process.is_current() => std::mem::forget(task),
            Some(task) if self.on_drop == OnDrop::Cancels => drop(task),
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
