//! An engine over a pool of threads, each in one blocking call at a time: for systems without io_uring.
//!
//! Promises upward: what [`Engine`] requires; threads sleep while no request is queued, and have ended once the engine
//! is dropped.

use crate::executor::{Driver, is_driving, while_driving};
use crate::request::{Completion, CompletionHandler, Engine, IoRequest, Op};
use crate::thread::WorkerThread;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use terrace_guard::Process;

thread_local! {
    /// A request that this thread keeps, to perform it itself before it blocks. Kept only while the thread
    /// [`is_driving`] the engine.
    static LOCAL: RefCell<Option<(Arc<PoolShared>, IoRequest)>> = const { RefCell::new(None) };
}

/// A pool of threads that perform requests.
pub struct ThreadEngine {
    shared: Arc<PoolShared>,
    /// The threads of the pool; joined when this field is dropped.
    threads: Vec<WorkerThread>,
    process: Process,
}

struct PoolShared {
    queue: Mutex<PoolQueue>,
    work: Condvar,
    sink: Arc<dyn CompletionHandler>,
}

struct PoolQueue {
    requests: VecDeque<IoRequest>,
    /// Whether a thread shall call [`CompletionHandler::run_deferred`].
    run_requested: bool,
    closing: bool,
}

impl PoolShared {
    fn queue(&self) -> MutexGuard<'_, PoolQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine's id: an address, unique while the engine lives.
    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Runs a thread of the pool: performs requests until the pool is closing and none is left.
    fn run(&self) {
        while let Some(request) = self.next() {
            // A panic of the sink is caught below: it must not end the thread.
            let performed = AssertUnwindSafe(|| {
                request.into_iter().for_each(|request| self.sink.completed(perform(request)));
                while_driving(self.id(), || self.sink.run_deferred())
            });
            if !catch_unwind(performed).unwrap_or(true) {
                // Deferred work is left: another thread runs it, while this one performs a request that it kept, if
                // any.
                self.wake();
            }
        }
    }

    /// Waits for a pool thread's next work: a request, only deferred work (`Some(None)`), or to end (`None`).
    fn next(&self) -> Option<Option<IoRequest>> {
        if let Some((_, own)) = take_local() {
            return Some(Some(own));
        }
        let mut queue = self.queue();
        loop {
            if std::mem::take(&mut queue.run_requested) {
                return Some(None);
            }
            match queue.requests.pop_front() {
                Some(request) => return Some(Some(request)),
                None if queue.closing => return None,
                None => queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn wake(&self) {
        self.queue().run_requested = true;
        self.work.notify_one();
    }
}

/// Takes the request that this thread kept for itself, if any.
fn take_local() -> Option<(Arc<PoolShared>, IoRequest)> {
    LOCAL.try_with(RefCell::take).ok().flatten()
}

/// Performs a request on this thread, and returns its completion.
pub fn perform(mut request: IoRequest) -> Completion {
    if !request.is_valid() {
        return request.reject();
    }
    // Retry interrupted calls: on network file systems and FUSE, signals interrupt reads and writes.
    let moved = rustix::io::retry_on_intr(|| match (request.op, &mut request.frame) {
        (Op::Read, Some(frame)) => rustix::io::pread(&*request.slab, &mut frame[..request.bytes], request.offset),
        (Op::Write, Some(frame)) => rustix::io::pwrite(&*request.slab, &frame[..request.bytes], request.offset),
        (Op::Sync, _) => rustix::fs::fdatasync(&*request.slab).map(|()| 0),
        // Not reached: such a request was rejected above.
        (Op::Read | Op::Write, None) => Err(rustix::io::Errno::INVAL),
    });
    let fault = |error: rustix::io::Errno| request.slab.fault(request.op.call(), request.offset, error.raw_os_error());
    let result = moved.map_err(fault);
    Completion { token: request.token, result, frame: request.frame.take() }
}

impl ThreadEngine {
    /// Creates an engine of `threads` threads, at least one.
    ///
    /// # Errors
    /// The error of the system when it cannot create a thread; the threads created before it end.
    pub fn new(threads: usize, sink: Arc<dyn CompletionHandler>) -> std::io::Result<Self> {
        let queue = Mutex::new(PoolQueue { requests: VecDeque::new(), run_requested: false, closing: false });
        let shared = Arc::new(PoolShared { queue, work: Condvar::new(), sink });
        // If the system refuses a thread, dropping `pool` ends those created before it.
        let mut pool = Self { shared, threads: Vec::new(), process: Process::current() };
        for _ in 0..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            pool.threads.push(WorkerThread::spawn("terrace-file", move || shared.run())?);
        }
        Ok(pool)
    }
}

impl Driver for ThreadEngine {
    fn engine_id(&self) -> Option<usize> {
        Some(self.shared.id())
    }

    fn perform_one(&self) -> bool {
        let others = || {
            let mut queue = self.shared.queue();
            // Skip syncs: a sync takes long, and the future that this thread blocks on may need something else. For
            // each sync, `submit` has woken a thread of the pool.
            let at = queue.requests.iter().position(|request| request.op != Op::Sync)?;
            Some((Arc::clone(&self.shared), queue.requests.remove(at)?))
        };
        let request = take_local().or_else(others);
        request.map(|(shared, request)| shared.sink.completed(perform(request))).is_some()
    }

    fn stop_helping(&self) {
        if let Some((shared, request)) = take_local() {
            shared.queue().requests.push_back(request);
            shared.work.notify_one();
        }
    }

    fn wake(&self) {
        if self.process.is_current() {
            self.shared.wake();
        }
    }
}

impl Engine for ThreadEngine {
    fn submit(&self, requests: Vec<IoRequest>) {
        if !self.process.is_current() {
            return requests.into_iter().for_each(|request| self.shared.sink.completed(request.reject_forked()));
        }
        // A thread that drives this engine keeps the first request for itself, and wakes no thread for it. It keeps no
        // sync: a sync takes long, and other threads may wait for its result.
        let short = requests.first().is_some_and(|request| request.op != Op::Sync);
        let mut requests = requests.into_iter();
        if short && is_driving(self.shared.id()) {
            // `try_with` fails if this thread is ending and its thread-locals are destroyed: then it keeps no request.
            let _ = LOCAL.try_with(|own| {
                let mut own = own.borrow_mut();
                if own.is_none() {
                    *own = requests.next().map(|request| (Arc::clone(&self.shared), request));
                }
            });
        }
        let others = requests.len();
        if others > 0 {
            self.shared.queue().requests.extend(requests);
            (0..others).for_each(|_| self.shared.work.notify_one());
        }
    }

    fn name(&self) -> &'static str {
        "threads"
    }
}

impl Drop for ThreadEngine {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.shared.queue().closing = true;
            self.shared.work.notify_all();
        }
    }
}
