//! An engine over io_uring, whose thread owns the ring.
//!
//! ```text
//!   submit ──► queue ──► the ring's thread: entries ──► kernel ──► completions ──► sink, on the same thread
//!                 └── an eventfd wakes the thread, only while it sleeps
//! ```
//!
//! Promises upward: what [`Engine`] requires; the sink may submit requests at no cost of a wake-up; no more entries are
//! in flight than the ring has room for; the thread sleeps in the kernel while nothing is in flight, and has ended once
//! the engine is dropped; when the ring is closed, the kernel has no entry of it left, or the memory that such entries
//! name is leaked; when the kernel refuses calls for the ring, every request completes with that error.
//! Asks from below: a kernel that has io_uring and lets this user use it; otherwise [`UringEngine::new`] fails.
//!
//! One thread both submits and waits, because the kernel completes a request in the context of the thread that submitted it:
//! with two threads each completion would wake both (measured: half the throughput).

use crate::executor::Driver;
use crate::frame::Frame;
use crate::request::{Completion, CompletionHandler, Engine, IoRequest, Op};
use crate::thread::WorkerThread;
use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use terrace_guard::{Process, catch_panic};

/// The user data that marks the io_uring entry which reads the eventfd.
const EVENT: u64 = u64::MAX;

/// An io_uring, and the thread that owns it.
pub struct UringEngine {
    shared: Arc<RingShared>,
    sink: Arc<dyn CompletionHandler>,
    /// The thread that owns the ring; joined when this field is dropped.
    _thread: WorkerThread,
    process: Process,
}

struct RingShared {
    queue: Mutex<RingQueue>,
    /// An eventfd: a write to it wakes the ring's thread while that sleeps in the kernel.
    event: OwnedFd,
    /// Wakes the ring's thread after the kernel has refused calls for the ring. The eventfd cannot do it then: a read
    /// of it may still be in flight in the kernel and consume the event.
    failed: Condvar,
}

#[derive(Default)]
struct RingQueue {
    requests: VecDeque<IoRequest>,
    /// Whether the ring's thread sleeps or is about to; a thread that changes the queue must then wake it.
    asleep: bool,
    /// Whether the ring's thread shall call [`CompletionHandler::run_deferred`].
    run_requested: bool,
    /// Whether the ring's thread shall end once every request has completed.
    closing: bool,
}

impl RingShared {
    fn new(event: OwnedFd) -> Self {
        Self { queue: Mutex::default(), event, failed: Condvar::new() }
    }

    fn queue(&self) -> MutexGuard<'_, RingQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Turns the kernel's result of a request into a completion, appended to `done`. A request that a signal
    /// interrupted goes back to the front of the queue.
    fn complete(&self, request: IoRequest, result: i32, done: &mut Vec<Completion>) {
        if result == -rustix::io::Errno::INTR.raw_os_error() {
            self.queue().requests.push_front(request);
        } else {
            done.push(completion(request, result));
        }
    }

    /// Applies `change` to the queue, then wakes the ring's thread if it sleeps.
    fn put(&self, change: impl FnOnce(&mut RingQueue)) {
        let mut queue = self.queue();
        change(&mut queue);
        let wake = std::mem::take(&mut queue.asleep);
        drop(queue);
        if wake {
            self.failed.notify_one();
            // An error is impossible in practice: the eventfd's counter is full only after 2^64 wake-ups that were
            // never read.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

impl UringEngine {
    /// Creates an engine with up to `depth` requests in flight: 1 to 4096, rounded up to a power of two.
    ///
    /// # Errors
    /// The error of the system, for example if the kernel has no io_uring or denies it to this user.
    pub fn new(depth: u32, sink: Arc<dyn CompletionHandler>) -> std::io::Result<Self> {
        let depth = depth.clamp(1, 4096).next_power_of_two();
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(RingShared::new(event));
        let (started, start) = mpsc::channel();
        let (for_thread, its_sink) = (Arc::clone(&shared), Arc::clone(&sink));
        let thread = WorkerThread::spawn("terrace-ring", move || {
            // Create the ring on this thread: only the thread that creates it may submit to it (`single_issuer`).
            match RingThread::new(depth, for_thread, its_sink) {
                Ok(ring_thread) => {
                    let _ = started.send(Ok(()));
                    ring_thread.run();
                }
                Err(error) => _ = started.send(Err(error)),
            }
        })?;
        let made = start.recv().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
        let ring = Self { shared, sink, _thread: thread, process: Process::current() };
        made.map(|()| ring)
    }
}

/// State that the ring's thread owns.
struct RingThread {
    ring: IoUring,
    shared: Arc<RingShared>,
    sink: Arc<dyn CompletionHandler>,
    /// Requests in flight. The index of a request is the user data of its io_uring entry.
    in_flight: Vec<Option<IoRequest>>,
    /// Indices of `in_flight` that hold no request.
    free: Vec<u32>,
    /// Completions to deliver: a buffer that is reused, and is empty between batches.
    done: Vec<Completion>,
    /// Whether an io_uring entry that reads the eventfd is in flight.
    armed: bool,
    /// Where the kernel writes the counter that it read from the eventfd; the value is not used.
    count: Box<[u8; 8]>,
}

impl RingThread {
    fn new(depth: u32, shared: Arc<RingShared>, sink: Arc<dyn CompletionHandler>) -> std::io::Result<Self> {
        // The ring needs `depth` entries and one more, which reads the eventfd. io_uring rounds up to a power of two,
        // and `depth` is one, so ask for the double.
        let entries = depth * 2;
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            // Makes the kernel set a flag in the ring while completions wait to be posted: `submit` then fetches them
            // without waiting.
            .setup_taskrun_flag()
            .build(entries);
        // Kernels before 6.1 refuse these flags: try without them.
        let ring = ring.or_else(|_| IoUring::new(entries))?;
        let in_flight = std::iter::repeat_with(|| None).take(depth as usize).collect();
        let free = (0..depth).rev().collect();
        Ok(Self { ring, shared, sink, in_flight, free, done: Vec::new(), armed: false, count: Box::new([0; 8]) })
    }

    fn run(mut self) {
        loop {
            self.push();
            let sleeps = self.may_sleep();
            if sleeps && self.is_finished() {
                return;
            }
            // After a transient error, go on and collect the completions that are there.
            if let Err(error) = self.ring.submit_and_wait(usize::from(sleeps))
                && !is_transient(&error)
            {
                return self.fail_all(&error);
            }
            let mut queue = self.shared.queue();
            queue.asleep = false;
            let run_requested = std::mem::take(&mut queue.run_requested);
            drop(queue);
            self.reap(run_requested);
        }
    }

    /// Moves requests from the queue to the ring until the ring is full.
    fn push(&mut self) {
        if !self.armed {
            let event = types::Fd(self.shared.event.as_raw_fd());
            let entry = opcode::Read::new(event, self.count.as_mut_ptr(), 8).build().user_data(EVENT);
            self.armed = push_entry(&mut self.ring, &entry);
        }
        while let Some(number) = self.free.pop() {
            let Some(request) = self.shared.queue().requests.pop_front() else {
                self.free.push(number);
                return;
            };
            let entry = entry(&request).user_data(u64::from(number));
            self.in_flight[number as usize] = Some(request);
            // This cannot fail: the ring has room for twice as many entries as there are requests in flight.
            push_entry(&mut self.ring, &entry);
        }
    }

    /// Whether the thread may sleep: no deferred work is requested, and no queued request has room in the ring. If so,
    /// marks the thread asleep, so that the next change of the queue wakes it.
    fn may_sleep(&self) -> bool {
        let mut queue = self.shared.queue();
        queue.asleep = !queue.run_requested && (queue.requests.is_empty() || self.free.is_empty());
        queue.asleep
    }

    fn is_finished(&self) -> bool {
        let queue = self.shared.queue();
        queue.closing && !queue.run_requested && queue.requests.is_empty() && self.free.len() == self.in_flight.len()
    }

    /// Takes completions off the ring, and appends those of requests to `done`.
    fn drain_completions(&mut self, done: &mut Vec<Completion>) {
        for entry in self.ring.completion() {
            if entry.user_data() == EVENT {
                self.armed = false;
                continue;
            }
            let number = entry.user_data() as u32;
            if let Some(request) = self.in_flight.get_mut(number as usize).and_then(Option::take) {
                self.free.push(number);
                self.shared.complete(request, entry.result(), done);
            }
        }
    }

    /// Number of io_uring entries that the kernel has not completed.
    fn outstanding(&self) -> usize {
        usize::from(self.armed) + self.in_flight.iter().flatten().count()
    }

    /// Waits until the kernel has completed all entries: kernels before 6.1 keep the files that entries name, and locks
    /// on them, even after the ring is closed.
    fn drain(&mut self) {
        while self.outstanding() > 0 {
            // Write to the eventfd, which completes the entry that reads it.
            let _ = rustix::io::write(&self.shared.event, &1u64.to_ne_bytes());
            if self.ring.submit_and_wait(1).is_err_and(|error| !is_transient(&error)) {
                self.abandon();
            }
            self.drain_completions(&mut Vec::new());
        }
    }

    /// Gives up entries that the kernel may never complete: leaks the memory that they name, and returns their
    /// requests.
    fn abandon(&mut self) -> Vec<IoRequest> {
        if std::mem::take(&mut self.armed) {
            Box::leak(std::mem::take(&mut self.count));
        }
        let mut requests: Vec<_> = self.in_flight.iter_mut().filter_map(Option::take).collect();
        requests.iter_mut().filter_map(|request| request.frame.take()).for_each(Frame::leak);
        requests
    }

    /// Called when the kernel refuses calls for this ring: completes every request with `error` until the engine is
    /// closed.
    fn fail_all(mut self, error: &std::io::Error) {
        let code = error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
        let mut done = std::mem::take(&mut self.done);
        self.drain_completions(&mut done);
        let mut requests = self.abandon();
        loop {
            done.extend(requests.into_iter().map(|request| completion(request, -code)));
            let settled = self.deliver(&mut done);
            let mut queue = self.shared.queue();
            while settled && queue.requests.is_empty() && !queue.run_requested {
                if queue.closing {
                    return;
                }
                queue.asleep = true;
                queue = self.shared.failed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            (queue.asleep, queue.run_requested) = (false, false);
            requests = queue.requests.drain(..).collect();
        }
    }

    /// Takes completions off the ring, submits queued requests, then delivers the completions.
    fn reap(&mut self, run_requested: bool) {
        let mut done = std::mem::take(&mut self.done);
        self.drain_completions(&mut done);
        // Submit queued requests first, so that the device works while the sink handles the completions.
        self.push();
        let _ = self.ring.submit();
        if (run_requested || !done.is_empty()) && !self.deliver(&mut done) {
            self.shared.queue().run_requested = true;
        }
        self.done = done;
    }

    /// Delivers completions to the sink, and runs its deferred work; returns false if some is left. A panic of the sink
    /// is caught, because the thread must not end while requests are in flight.
    fn deliver(&self, done: &mut Vec<Completion>) -> bool {
        let sink = &self.sink;
        done.drain(..).for_each(|completion| catch_panic(|| sink.completed(completion)));
        catch_unwind(AssertUnwindSafe(|| sink.run_deferred())).unwrap_or(true)
    }
}

impl Drop for RingThread {
    fn drop(&mut self) {
        self.drain();
        #[cfg(test)]
        tests::LEFT.with_borrow_mut(|left| left.push(self.outstanding()));
    }
}

/// Whether the call may be repeated: it was interrupted, the system is short of memory, or completions must be taken
/// off the ring first.
fn is_transient(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::ResourceBusy)
}

/// Puts an entry into the ring's submission queue; returns false if the queue is full.
fn push_entry(ring: &mut IoUring, entry: &squeue::Entry) -> bool {
    // SAFETY: what the entry names (a frame and a file, or the eventfd and its counter) lives until the entry's completion.
    unsafe { ring.submission().push(entry) }.is_ok()
}

/// The io_uring entry for a request.
fn entry(request: &IoRequest) -> squeue::Entry {
    let file = types::Fd(request.slab.as_fd().as_raw_fd());
    let (bytes, offset) = (request.bytes as u32, request.offset);
    match (request.op, &request.frame) {
        (Op::Read, Some(frame)) => opcode::Read::new(file, frame.pointer(), bytes).offset(offset).build(),
        (Op::Write, Some(frame)) => opcode::Write::new(file, frame.pointer(), bytes).offset(offset).build(),
        (Op::Sync, _) => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
        // Not reached: `submit` rejects reads and writes without a frame.
        (Op::Read | Op::Write, None) => opcode::Nop::new().build(),
    }
}

fn completion(mut request: IoRequest, result: i32) -> Completion {
    let fault = || request.slab.fault(request.op.call(), request.offset, -result);
    let result = usize::try_from(result).map_err(|_| fault());
    Completion { token: request.token, result, frame: request.frame.take() }
}

impl Driver for UringEngine {
    fn wake(&self) {
        if self.process.is_current() {
            self.shared.put(|queue| queue.run_requested = true);
        }
    }
}

impl Engine for UringEngine {
    fn submit(&self, requests: Vec<IoRequest>) {
        if !self.process.is_current() {
            return requests.into_iter().for_each(|request| self.sink.completed(request.reject_forked()));
        }
        let (sound, refused): (Vec<_>, Vec<_>) = requests.into_iter().partition(IoRequest::is_valid);
        self.shared.put(|queue| queue.requests.extend(sound));
        if !refused.is_empty() {
            refused.into_iter().for_each(|request| self.sink.completed(request.reject()));
            // Have the ring's thread run the tasks that these completions made ready: the submitting thread may not be
            // one that runs tasks.
            self.wake();
        }
    }

    fn name(&self) -> &'static str {
        "ring"
    }
}

impl Drop for UringEngine {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.shared.put(|queue| queue.closing = true);
        }
    }
}

#[cfg(test)]
mod tests;
