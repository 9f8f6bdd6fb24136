//! The thread that maintains a pool, and the end of a pool's handles.

use super::inner::ObjectPoolState;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use terrace_guard::Process;

/// What the handles of a pool share: the last one closes the pool, and ends its thread.
pub struct Lifeline<T> {
    pub inner: Arc<ObjectPoolState<T>>,
    worker: Option<(JoinHandle<()>, Arc<AtomicBool>)>,
    /// The process that has the thread.
    process: Process,
}

impl<T: Send + 'static> Lifeline<T> {
    /// Starts the thread, if the pool is to have one.
    pub fn start(inner: Arc<ObjectPoolState<T>>, interval: Option<Duration>) -> std::io::Result<Self> {
        let worker = interval.map(|interval| maintain(Arc::clone(&inner), interval)).transpose()?;
        Ok(Self { inner, worker, process: Process::current() })
    }
}

/// Starts a thread that maintains a pool until the flag is set.
fn maintain<T: Send + 'static>(
    pool: Arc<ObjectPoolState<T>>,
    interval: Duration,
) -> std::io::Result<(JoinHandle<()>, Arc<AtomicBool>)> {
    let ended = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&ended);
    let run = move || {
        while !stop.load(Ordering::Acquire) {
            std::thread::park_timeout(interval);
            if !stop.load(Ordering::Acquire) {
                pool.maintain();
            }
        }
    };
    let thread = std::thread::Builder::new().name("terrace-pool".into()).spawn(run)?;
    Ok((thread, ended))
}

impl<T> Drop for Lifeline<T> {
    fn drop(&mut self) {
        if let Some((thread, ended)) = self.worker.take() {
            ended.store(true, Ordering::Release);
            thread.thread().unpark();
            // A forked child has no such thread to wait for. The factory that maintenance runs may itself drop the last
            // handle: the thread then ends by itself.
            if self.process.is_current() && thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
        self.inner.close();
    }
}
