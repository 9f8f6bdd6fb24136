//! Requests on threads of their own: one call of the system for each, waited for. For systems that refuse the ring.
//!
//! Promises upward: as [`Engine`] says; threads sleep while nothing is asked, and are gone when it is dropped.

use crate::executor::{Driver, is_driving, while_driving};
use crate::request::{Completion, CompletionHandler, Engine, IoRequest, Op};
use crate::thread::WorkerThread;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use terrace_guard::Process;

thread_local! {
    /// What this thread does before it sleeps: a request of one that it [`is_driving`].
    static LOCAL: RefCell<Option<(Arc<PoolShared>, IoRequest)>> = const { RefCell::new(None) };
}

/// A pool of threads.
pub struct ThreadEngine {
    shared: Arc<PoolShared>,
    /// Waited for when it is dropped.
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
    /// Whether somebody wants the sink to settle.
    run_requested: bool,
    closing: bool,
}

impl PoolShared {
    fn queue(&self) -> MutexGuard<'_, PoolQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No other engine's while this one is there.
    fn id(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Does requests until there are none and the pool closes.
    fn run(&self) {
        while let Some(request) = self.next() {
            // A sink that panics must not take the thread with it.
            let told = AssertUnwindSafe(|| {
                request.into_iter().for_each(|request| self.sink.completed(perform(request)));
                while_driving(self.id(), || self.sink.run_deferred())
            });
            if !catch_unwind(told).unwrap_or(true) {
                // Another thread settles while this one does what it took for itself.
                self.wake();
            }
        }
    }

    /// What a thread of the pool does next: a request, or (`Some(None)`) only settle. `None`: it ends.
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

/// What this thread kept for itself.
fn take_local() -> Option<(Arc<PoolShared>, IoRequest)> {
    LOCAL.try_with(RefCell::take).ok().flatten()
}

/// Does a request on this thread.
pub fn perform(mut request: IoRequest) -> Completion {
    if !request.is_valid() {
        return request.reject();
    }
    // Network file systems and FUSE let signals in.
    let moved = rustix::io::retry_on_intr(|| match (request.op, &mut request.frame) {
        (Op::Read, Some(frame)) => rustix::io::pread(&*request.slab, &mut frame[..request.bytes], request.offset),
        (Op::Write, Some(frame)) => rustix::io::pwrite(&*request.slab, &frame[..request.bytes], request.offset),
        (Op::Sync, _) => rustix::fs::fdatasync(&*request.slab).map(|()| 0),
        // Refused above.
        (Op::Read | Op::Write, None) => Err(rustix::io::Errno::INVAL),
    });
    let fault = |error: rustix::io::Errno| request.slab.fault(request.op.call(), request.offset, error.raw_os_error());
    let result = moved.map_err(fault);
    Completion { token: request.token, result, frame: request.frame.take() }
}

impl ThreadEngine {
    /// A pool of `threads` threads, at least one.
    ///
    /// # Errors
    /// The system's, for threads; none is left then.
    pub fn new(threads: usize, sink: Arc<dyn CompletionHandler>) -> std::io::Result<Self> {
        let queue = Mutex::new(PoolQueue { requests: VecDeque::new(), run_requested: false, closing: false });
        let shared = Arc::new(PoolShared { queue, work: Condvar::new(), sink });
        // Should a thread be refused, dropping the pool ends those before.
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
            // Not a sync: it takes long, and who waits may wait for something else. A thread was woken for it.
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
        // One stays here: nobody is woken for it. Not a sync, which takes long and may be another's.
        let short = requests.first().is_some_and(|request| request.op != Op::Sync);
        let mut requests = requests.into_iter();
        if short && is_driving(self.shared.id()) {
            // Not where this thread is about to end, and its thread-locals are gone.
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
