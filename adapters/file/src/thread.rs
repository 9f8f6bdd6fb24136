//! A thread of ours, waited for when its owner goes.
//!
//! Promises upward: an owner that goes on the thread itself does not wait; nor does one in a forked child, where the thread is not.
//! Also where the thread-locals of who drops it are gone.

use std::cell::Cell;
use std::thread::{Builder, JoinHandle, ThreadId};
use terrace_guard::{Process, calm};

thread_local! {
    /// Of a thread that was begun here.
    static OWN: Cell<Option<ThreadId>> = const { Cell::new(None) };
}

/// A thread. Dropped, its end is waited for: whoever drops it has told it to end.
#[derive(Debug)]
pub struct WorkerThread {
    handle: Option<JoinHandle<()>>,
    process: Process,
}

impl WorkerThread {
    /// Begins one.
    ///
    /// # Errors
    /// The system's.
    pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<Self> {
        let work = move || {
            OWN.set(Some(std::thread::current().id()));
            work();
        };
        let handle = Builder::new().name(name.into()).spawn(work)?;
        Ok(Self { handle: Some(handle), process: Process::current() })
    }
}

/// Whether the calling thread is one of ours: it may be what its caller waits for.
pub fn is_worker_thread() -> bool {
    OWN.get().is_some()
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else { return };
        match self.process.is_current() {
            false => std::mem::forget(handle),
            // It ends by itself.
            true if OWN.get() == Some(handle.thread().id()) => {}
            true => calm(|| _ = handle.join()),
        }
    }
}
