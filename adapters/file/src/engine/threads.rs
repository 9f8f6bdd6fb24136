//! Requests on threads of their own: one call of the system for each, waited for. For systems that refuse the ring.
//!
//! Promises upward: as [`Engine`] says; threads sleep while nothing is asked, and are gone when it is dropped.

use crate::request::{Completion, Engine, Op, Request, Sink};
use crate::task::{Driver, drives, driving};
use crate::thread::Thread;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use terrace_guard::Process;

thread_local! {
    /// What this thread does before it sleeps: a request of one that it [`drives`].
    static OWN: RefCell<Option<(Arc<Shared>, Request)>> = const { RefCell::new(None) };
}

/// A pool of threads.
pub struct Threads {
    shared: Arc<Shared>,
    /// Waited for when it is dropped.
    threads: Vec<Thread>,
    process: Process,
}

struct Shared {
    state: Mutex<State>,
    work: Condvar,
    sink: Arc<dyn Sink>,
}

struct State {
    queue: VecDeque<Request>,
    /// Whether somebody wants the sink to settle.
    nudged: bool,
    closing: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No other engine's while this one is there.
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Does requests until there are none and the pool closes.
    fn run(&self) {
        while let Some(request) = self.next() {
            // A sink that panics must not take the thread with it.
            let told = AssertUnwindSafe(|| {
                request.into_iter().for_each(|request| self.sink.completed(perform(request)));
                driving(self.number(), || self.sink.settle())
            });
            if !catch_unwind(told).unwrap_or(true) {
                // Another thread settles while this one does what it took for itself.
                self.nudge();
            }
        }
    }

    /// What a thread of the pool does next: a request, or (`Some(None)`) only settle. `None`: it ends.
    fn next(&self) -> Option<Option<Request>> {
        if let Some((_, own)) = take_own() {
            return Some(Some(own));
        }
        let mut state = self.state();
        loop {
            if std::mem::take(&mut state.nudged) {
                return Some(None);
            }
            match state.queue.pop_front() {
                Some(request) => return Some(Some(request)),
                None if state.closing => return None,
                None => state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    fn nudge(&self) {
        self.state().nudged = true;
        self.work.notify_one();
    }
}

/// What this thread kept for itself.
fn take_own() -> Option<(Arc<Shared>, Request)> {
    OWN.try_with(RefCell::take).ok().flatten()
}

/// Does a request on this thread.
pub fn perform(mut request: Request) -> Completion {
    if !request.is_sound() {
        return request.refuse();
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

impl Threads {
    /// A pool of `threads` threads, at least one.
    ///
    /// # Errors
    /// The system's, for threads; none is left then.
    pub fn new(threads: usize, sink: Arc<dyn Sink>) -> std::io::Result<Self> {
        let state = Mutex::new(State { queue: VecDeque::new(), nudged: false, closing: false });
        let shared = Arc::new(Shared { state, work: Condvar::new(), sink });
        // Should a thread be refused, dropping the pool ends those before.
        let mut pool = Self { shared, threads: Vec::new(), process: Process::current() };
        for _ in 0..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            pool.threads.push(Thread::begin("terrace-file", move || shared.run())?);
        }
        Ok(pool)
    }
}

impl Driver for Threads {
    fn helped(&self) -> Option<usize> {
        Some(self.shared.number())
    }

    fn help(&self) -> bool {
        let others = || {
            let mut state = self.shared.state();
            // Not a sync: it takes long, and who waits may wait for something else. A thread was woken for it.
            let at = state.queue.iter().position(|request| request.op != Op::Sync)?;
            Some((Arc::clone(&self.shared), state.queue.remove(at)?))
        };
        let request = take_own().or_else(others);
        request.map(|(shared, request)| shared.sink.completed(perform(request))).is_some()
    }

    fn leave(&self) {
        if let Some((shared, request)) = take_own() {
            shared.state().queue.push_back(request);
            shared.work.notify_one();
        }
    }

    fn nudge(&self) {
        if self.process.is_current() {
            self.shared.nudge();
        }
    }
}

impl Engine for Threads {
    fn submit(&self, requests: Vec<Request>) {
        if !self.process.is_current() {
            return requests.into_iter().for_each(|request| self.shared.sink.completed(request.refuse_child()));
        }
        // One stays here: nobody is woken for it. Not a sync, which takes long and may be another's.
        let short = requests.first().is_some_and(|request| request.op != Op::Sync);
        let mut requests = requests.into_iter();
        if short && drives(self.shared.number()) {
            // Not where this thread is about to end, and its thread-locals are gone.
            let _ = OWN.try_with(|own| {
                let mut own = own.borrow_mut();
                if own.is_none() {
                    *own = requests.next().map(|request| (Arc::clone(&self.shared), request));
                }
            });
        }
        let others = requests.len();
        if others > 0 {
            self.shared.state().queue.extend(requests);
            (0..others).for_each(|_| self.shared.work.notify_one());
        }
    }

    fn name(&self) -> &'static str {
        "threads"
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.shared.state().closing = true;
            self.shared.work.notify_all();
        }
    }
}
