//! A named thread that is joined when its owner is dropped.
//!
//! Promises upward: an owner that is dropped on the thread itself does not join it, nor does one in a forked child, where the
//! thread does not exist. Dropping works after the thread-locals of the dropping thread are destroyed.

use std::cell::Cell;
use std::thread::{Builder, JoinHandle, ThreadId};
use terrace_guard::{Process, catch_panic};

thread_local! {
    /// The id of this thread, if [`WorkerThread::spawn`] began it.
    static OWN: Cell<Option<ThreadId>> = const { Cell::new(None) };
}

/// A thread that is joined on drop: before that, the owner must have told the thread to end.
#[derive(Debug)]
pub struct WorkerThread {
    handle: Option<JoinHandle<()>>,
    process: Process,
}

impl WorkerThread {
    /// Spawns a thread that runs `work`.
    ///
    /// # Errors
    /// The error of the system when it cannot create a thread.
    pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        let work = move || {
            OWN.set(Some(std::thread::current().id()));
            work();
        };
        let handle = Builder::new().name(name.into()).spawn(work)?;
        Ok(Self { handle: Some(handle), process: Process::current() })
    }
}

/// Whether the calling thread was started by [`WorkerThread::spawn`].
///
/// If such a thread waits for a worker thread, it may be waiting for itself.
pub fn is_worker_thread() -> bool {
    OWN.get().is_some()
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        match self.process.is_current() {
            false => std::mem::forget(handle),
            // The thread drops its own handle: it cannot join itself, and ends after this.
            true if OWN.get() == Some(handle.thread().id()) => {}
            true => catch_panic(|| _ = handle.join()),
        }
    }
}
