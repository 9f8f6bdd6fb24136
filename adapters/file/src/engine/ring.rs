//! Requests by the system's ring (io_uring), on a thread that owns it.
//!
//! ```text
//!   submit ──► queue ──► the ring's thread: entries ──► kernel ──► completions ──► sink, on the same thread
//!                 └── an event wakes it, only while it sleeps
//! ```
//!
//! Promises upward: as [`Engine`] says; a sink may submit more, which costs no wake-up; no more entries are on their way than
//! the ring has room for; the thread sleeps in the kernel while nothing is on its way, and is gone when the engine is dropped;
//! the kernel has no entry of it any more when the ring is closed, or may keep their memory for ever; where the kernel takes no
//! more calls for the ring, every request ends with its error.
//! Asks from below: a kernel that has the ring and lets this user have it; [`UringEngine::new`] fails where not.
//!
//! One thread submits and completes because the kernel completes a request in the name of the task that submitted it: were
//! that another thread than the one that waits, each completion would wake both (measured: half the bytes a second).

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
use terrace_guard::{Process, calm};

/// What the entry carries that waits for the event.
const EVENT: u64 = u64::MAX;

/// A ring, and the thread that owns it.
pub struct UringEngine {
    shared: Arc<RingShared>,
    sink: Arc<dyn CompletionHandler>,
    /// Waited for when it is dropped.
    _thread: WorkerThread,
    process: Process,
}

struct RingShared {
    queue: Mutex<RingQueue>,
    /// Wakes the thread while it sleeps in the kernel.
    event: OwnedFd,
    /// Wakes it once the ring is refused: an entry that the kernel still has may swallow the event.
    failed: Condvar,
}

#[derive(Default)]
struct RingQueue {
    requests: VecDeque<IoRequest>,
    /// Whether the thread sleeps, or is about to: whoever puts something in wakes it.
    asleep: bool,
    /// Whether somebody wants the sink to settle.
    run_requested: bool,
    /// Whether the thread ends when nothing is left.
    closing: bool,
}

impl RingShared {
    fn new(event: OwnedFd) -> Self {
        Self { queue: Mutex::default(), event, failed: Condvar::new() }
    }

    fn queue(&self) -> MutexGuard<'_, RingQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel is done with a request. One that a signal interrupted is put on the ring again, first of all.
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
            // Full only after 2^64 wake-ups that nobody saw.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

impl UringEngine {
    /// A ring for `depth` requests at once, from 1 to 4096, rounded up to a power of two.
    ///
    /// # Errors
    /// The system's: that it has no ring, or that this user may not have one.
    pub fn new(depth: u32, sink: Arc<dyn CompletionHandler>) -> std::io::Result<Self> {
        let depth = depth.clamp(1, 4096).next_power_of_two();
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(RingShared::new(event));
        let (told, tell) = mpsc::channel();
        let (for_thread, its_sink) = (Arc::clone(&shared), Arc::clone(&sink));
        let thread = WorkerThread::spawn("terrace-ring", move || {
            // The ring belongs to the thread that makes it.
            match RingThread::new(depth, for_thread, its_sink) {
                Ok(ring_thread) => {
                    let _ = told.send(Ok(()));
                    ring_thread.run();
                }
                Err(error) => _ = told.send(Err(error)),
            }
        })?;
        let made = tell.recv().unwrap_or_else(|_| Err(std::io::ErrorKind::Other.into()));
        let ring = Self { shared, sink, _thread: thread, process: Process::current() };
        made.map(|()| ring)
    }
}

/// What the thread has for itself.
struct RingThread {
    ring: IoUring,
    shared: Arc<RingShared>,
    sink: Arc<dyn CompletionHandler>,
    /// Requests on their way, by the number that their entry carries.
    in_flight: Vec<Option<IoRequest>>,
    /// Numbers that are free.
    free: Vec<u32>,
    /// Completions that the sink has not seen; empty but while it is told.
    done: Vec<Completion>,
    /// Whether an entry waits for the event.
    armed: bool,
    /// Where the event's count goes; read by nobody.
    count: Box<[u8; 8]>,
}

impl RingThread {
    fn new(depth: u32, shared: Arc<RingShared>, sink: Arc<dyn CompletionHandler>) -> std::io::Result<Self> {
        // One entry more than requests: for the event.
        let entries = depth * 2;
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            // Else completions would come only to who waits for them.
            .setup_taskrun_flag()
            .build(entries);
        // Kernels before 6.1 do not know them.
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
            // Where the call may be made again, what is there is looked at in any case.
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

    /// Puts as many requests on the ring as it has room for.
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
            // There are twice as many entries as numbers.
            push_entry(&mut self.ring, &entry);
        }
    }

    /// Whether there is nothing to put on the ring; then whoever changes that wakes this thread.
    fn may_sleep(&self) -> bool {
        let mut queue = self.shared.queue();
        queue.asleep = !queue.run_requested && (queue.requests.is_empty() || self.free.is_empty());
        queue.asleep
    }

    fn is_finished(&self) -> bool {
        let queue = self.shared.queue();
        queue.closing && !queue.run_requested && queue.requests.is_empty() && self.free.len() == self.in_flight.len()
    }

    /// Takes what has completed off the ring.
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

    /// Has all entries completed: kernels before 6.1 keep what they name, the file and its lock, after the ring is closed.
    fn drain(&mut self) {
        while self.outstanding() > 0 {
            // Then the entry for the event completes.
            let _ = rustix::io::write(&self.shared.event, &1u64.to_ne_bytes());
            if self.ring.submit_and_wait(1).is_err_and(|error| !is_transient(&error)) {
                self.abandon();
            }
            self.drain_completions(&mut Vec::new());
        }
    }

    /// Gives up entries that the kernel may work on for ever: what they name is never used again. Their requests.
    fn abandon(&mut self) -> Vec<IoRequest> {
        if std::mem::take(&mut self.armed) {
            Box::leak(std::mem::take(&mut self.count));
        }
        let mut requests: Vec<_> = self.in_flight.iter_mut().filter_map(Option::take).collect();
        requests.iter_mut().filter_map(|request| request.frame.take()).for_each(Frame::leak);
        requests
    }

    /// Ends every request with the error, until the engine is closed: the kernel takes no more calls for the ring.
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

    /// Hands on what has completed.
    fn reap(&mut self, run_requested: bool) {
        let mut done = std::mem::take(&mut self.done);
        self.drain_completions(&mut done);
        // Those that wait for room go first: the disk works while the sink does.
        self.push();
        let _ = self.ring.submit();
        if (run_requested || !done.is_empty()) && !self.deliver(&mut done) {
            self.shared.queue().run_requested = true;
        }
        self.done = done;
    }

    /// Tells the sink what is done, and lets it settle; whether it has. Should it panic, the ring stays, whose requests are on
    /// their way.
    fn deliver(&self, done: &mut Vec<Completion>) -> bool {
        let sink = &self.sink;
        done.drain(..).for_each(|completion| calm(|| sink.completed(completion)));
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

/// Whether the call may be made again: it was interrupted, the system is short of memory, or completions must be taken first.
fn is_transient(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::ResourceBusy)
}

/// Puts an entry on the ring. False when it is full.
fn push_entry(ring: &mut IoUring, entry: &squeue::Entry) -> bool {
    // SAFETY: what the entry names (a frame and a file, or the event and its count) is kept until its completion.
    unsafe { ring.submission().push(entry) }.is_ok()
}

/// A request as the ring takes it.
fn entry(request: &IoRequest) -> squeue::Entry {
    let file = types::Fd(request.slab.as_fd().as_raw_fd());
    let (bytes, offset) = (request.bytes as u32, request.offset);
    match (request.op, &request.frame) {
        (Op::Read, Some(frame)) => opcode::Read::new(file, frame.pointer(), bytes).offset(offset).build(),
        (Op::Write, Some(frame)) => opcode::Write::new(file, frame.pointer(), bytes).offset(offset).build(),
        (Op::Sync, _) => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
        // Refused before it comes here.
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
            // Told on a thread that may run no tasks.
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
