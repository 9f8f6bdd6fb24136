//! An engine over io_uring, whose thread owns the ring.
//!
//! ```text
//!   submit ──► queue ──► the ring's thread: entries ──► kernel ──► completions ──► sink, on the same thread
//!                 └── an eventfd wakes the thread, only while it sleeps
//! ```
//!
//! Promises upward: as [`Engine`]; a sink may submit, which costs no wake-up; no more entries are in flight than the ring has
//! room for; the thread sleeps in the kernel while nothing is in flight, and has ended once the engine is dropped; when the ring
//! is closed, the kernel has no entry of it left, or the memory that entries name is leaked; when the kernel refuses calls for
//! the ring, every request completes with that error.
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

/// The user data of the entry that reads the eventfd.
const EVENT: u64 = u64::MAX;

/// An io_uring, and the thread that owns it.
pub struct UringEngine {
    shared: Arc<RingShared>,
    sink: Arc<dyn CompletionHandler>,
    /// Joined when it is dropped.
    _thread: WorkerThread,
    process: Process,
}

struct RingShared {
    queue: Mutex<RingQueue>,
    /// Wakes the thread while it sleeps in the kernel.
    event: OwnedFd,
    /// Wakes the thread after the kernel has refused the ring: an entry that the kernel still has may consume the event.
    failed: Condvar,
}

#[derive(Default)]
struct RingQueue {
    requests: VecDeque<IoRequest>,
    /// Whether the thread sleeps or is about to: a thread that adds to the queue wakes it.
    asleep: bool,
    /// Whether the sink's deferred work shall run.
    run_requested: bool,
    /// Whether the thread shall end once no request is left.
    closing: bool,
}

impl RingShared {
    fn new(event: OwnedFd) -> Self {
        Self { queue: Mutex::default(), event, failed: Condvar::new() }
    }

    fn queue(&self) -> MutexGuard<'_, RingQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the kernel's result of a request. A request that a signal interrupted goes to the front of the queue.
    fn complete(&self, request: IoRequest, result: i32, done: &mut Vec<Completion>) {
        if result == -rustix::io::Errno::INTR.raw_os_error() {
            self.queue().requests.push_front(request);
        } else {
            done.push(completion(request, result));
        }
    }

    /// Changes the queue, and wakes the thread if it sleeps.
    fn put(&self, change: impl FnOnce(&mut RingQueue)) {
        let mut queue = self.queue();
        change(&mut queue);
        let wake = std::mem::take(&mut queue.asleep);
        drop(queue);
        if wake {
            self.failed.notify_one();
            // Fails only when the counter is full, after 2^64 wake-ups that the thread did not see.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

impl UringEngine {
    /// An engine with up to `depth` requests in flight: 1 to 4096, rounded up to a power of two.
    ///
    /// # Errors
    /// The system's: the kernel has no io_uring, or denies it to this user.
    pub fn new(depth: u32, sink: Arc<dyn CompletionHandler>) -> std::io::Result<Self> {
        let depth = depth.clamp(1, 4096).next_power_of_two();
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(RingShared::new(event));
        let (started, start) = mpsc::channel();
        let (for_thread, its_sink) = (Arc::clone(&shared), Arc::clone(&sink));
        let thread = WorkerThread::spawn("terrace-ring", move || {
            // The ring belongs to the thread that makes it.
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

/// What the ring's thread owns.
struct RingThread {
    ring: IoUring,
    shared: Arc<RingShared>,
    sink: Arc<dyn CompletionHandler>,
    /// Requests in flight, by the number in their entry's user data.
    in_flight: Vec<Option<IoRequest>>,
    /// Numbers without a request.
    free: Vec<u32>,
    /// Completions to deliver; a buffer that is empty between batches.
    done: Vec<Completion>,
    /// Whether an entry that reads the eventfd is in flight.
    armed: bool,
    /// Where that entry writes the counter; no code reads it.
    count: Box<[u8; 8]>,
}

impl RingThread {
    fn new(depth: u32, shared: Arc<RingShared>, sink: Arc<dyn CompletionHandler>) -> std::io::Result<Self> {
        // One extra entry reads the eventfd. `depth` is a power of two and the ring rounds up to one, so double it.
        let entries = depth * 2;
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            // Without this flag, completions are posted only to a thread that waits for them.
            .setup_taskrun_flag()
            .build(entries);
        // Kernels before 6.1 do not know these flags.
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
            // After a transient error, reap what has completed all the same.
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
            // The ring has twice as many entries as there are numbers.
            push_entry(&mut self.ring, &entry);
        }
    }

    /// Whether no request can go to the ring. If so, marks the thread asleep: the next change of the queue wakes it.
    fn may_sleep(&self) -> bool {
        let mut queue = self.shared.queue();
        queue.asleep = !queue.run_requested && (queue.requests.is_empty() || self.free.is_empty());
        queue.asleep
    }

    fn is_finished(&self) -> bool {
        let queue = self.shared.queue();
        queue.closing && !queue.run_requested && queue.requests.is_empty() && self.free.len() == self.in_flight.len()
    }

    /// Takes completions off the ring.
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

    /// Entries that the kernel has not completed.
    fn outstanding(&self) -> usize {
        usize::from(self.armed) + self.in_flight.iter().flatten().count()
    }

    /// Waits until the kernel has completed all entries: before 6.1 it keeps what entries name (the file and its lock) after the
    /// ring is closed.
    fn drain(&mut self) {
        while self.outstanding() > 0 {
            // Completes the entry that reads the eventfd.
            let _ = rustix::io::write(&self.shared.event, &1u64.to_ne_bytes());
            if self.ring.submit_and_wait(1).is_err_and(|error| !is_transient(&error)) {
                self.abandon();
            }
            self.drain_completions(&mut Vec::new());
        }
    }

    /// Gives up entries that the kernel may never complete: leaks the memory that they name, and returns their requests.
    fn abandon(&mut self) -> Vec<IoRequest> {
        if std::mem::take(&mut self.armed) {
            Box::leak(std::mem::take(&mut self.count));
        }
        let mut requests: Vec<_> = self.in_flight.iter_mut().filter_map(Option::take).collect();
        requests.iter_mut().filter_map(|request| request.frame.take()).for_each(Frame::leak);
        requests
    }

    /// Completes every request with the error until the engine is closed: the kernel refuses calls for this ring.
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

    /// Delivers what has completed.
    fn reap(&mut self, run_requested: bool) {
        let mut done = std::mem::take(&mut self.done);
        self.drain_completions(&mut done);
        // Queued requests first: the device works while the sink does.
        self.push();
        let _ = self.ring.submit();
        if (run_requested || !done.is_empty()) && !self.deliver(&mut done) {
            self.shared.queue().run_requested = true;
        }
        self.done = done;
    }

    /// Delivers completions to the sink, and runs its deferred work; false if work is left. A sink that panics does not end the
    /// thread, whose requests are in flight.
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

/// Whether to repeat the call: it was interrupted, the system is short of memory, or completions must be reaped first.
fn is_transient(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::ResourceBusy)
}

/// Puts an entry on the ring; false if the ring is full.
fn push_entry(ring: &mut IoUring, entry: &squeue::Entry) -> bool {
    // SAFETY: what the entry names (a frame and a file, or the eventfd and its counter) lives until the entry's completion.
    unsafe { ring.submission().push(entry) }.is_ok()
}

/// The ring's entry for a request.
fn entry(request: &IoRequest) -> squeue::Entry {
    let file = types::Fd(request.slab.as_fd().as_raw_fd());
    let (bytes, offset) = (request.bytes as u32, request.offset);
    match (request.op, &request.frame) {
        (Op::Read, Some(frame)) => opcode::Read::new(file, frame.pointer(), bytes).offset(offset).build(),
        (Op::Write, Some(frame)) => opcode::Write::new(file, frame.pointer(), bytes).offset(offset).build(),
        (Op::Sync, _) => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
        // `submit` rejects such requests.
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
            // The submitting thread may not be one that runs tasks.
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
