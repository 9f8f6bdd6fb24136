//! The end of a task, as who began it sees it.
//!
//! Asks from below: somebody who runs tasks.

use crate::wait::wait;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The end of a task. Dropped, the task goes on.
#[must_use = "the task goes on, but nobody learns what came of it"]
pub struct Join<T> {
    task: Option<async_task::Task<std::thread::Result<T>>>,
    /// Whether the task does not go on.
    cancels: bool,
}

impl<T> Join<T> {
    pub(crate) fn new(task: async_task::Task<std::thread::Result<T>>) -> Self {
        Self { task: Some(task), cancels: false }
    }

    /// Waits on this thread.
    ///
    /// # Panics
    /// When the task did. On a thread that runs tasks it may wait for itself: there, `await` it.
    pub fn wait(self) -> T {
        wait(self, || false)
    }

    /// Dropped, the task is not polled again: what it holds is dropped, where tasks are run.
    pub fn cancel_on_drop(mut self) -> Self {
        self.cancels = true;
        self
    }
}

impl<T> Future for Join<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let task = self.task.as_mut().expect("a task is not polled after its end");
        let result = std::task::ready!(Pin::new(task).poll(context));
        self.task = None;
        match result {
            Ok(value) => Poll::Ready(value),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

impl<T> Drop for Join<T> {
    fn drop(&mut self) {
        match self.task.take() {
            Some(task) if self.cancels => drop(task),
            Some(task) => task.detach(),
            None => {}
        }
    }
}

impl<T> fmt::Debug for Join<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Join").finish_non_exhaustive()
    }
}
