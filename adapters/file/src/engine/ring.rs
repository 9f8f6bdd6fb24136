//! Requests by the system's ring (io_uring), on a thread that owns it.
//!
//! ```text
//!   submit ──► inbox ──► the ring's thread: entries ──► kernel ──► completions ──► sink, on the same thread
//!                 └── an event wakes it, only while it sleeps
//! ```
//!
//! Promises upward: as [`Engine`] says; a sink may submit more, which costs no wake-up; no more entries are on their way than
//! the ring has room for; the thread sleeps in the kernel while nothing is on its way, and is gone when the engine is dropped;
//! the kernel has no entry of it any more when the ring is closed, or may keep their memory for ever; where the kernel takes no
//! more calls for the ring, every request ends with its error.
//! Asks from below: a kernel that has the ring and lets this user have it; [`Ring::new`] fails where not.
//!
//! One thread submits and completes because the kernel completes a request in the name of the task that submitted it: were
//! that another thread than the one that waits, each completion would wake both (measured: half the bytes a second).

use crate::frame::Frame;
use crate::request::{Completion, Engine, Op, Request, Sink};
use crate::task::Driver;
use crate::thread::Thread;
use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use terrace_guard::{Process, calm};

/// What the entry carries that waits for the event.
const WOKEN: u64 = u64::MAX;

/// A ring, and the thread that owns it.
pub struct Ring {
    shared: Arc<Shared>,
    sink: Arc<dyn Sink>,
    /// Waited for when it is dropped.
    _thread: Thread,
    process: Process,
}

struct Shared {
    inbox: Mutex<Inbox>,
    /// Wakes the thread while it sleeps in the kernel.
    event: OwnedFd,
    /// Wakes it once the ring is refused: an entry that the kernel still has may swallow the event.
    refused: Condvar,
}

#[derive(Default)]
struct Inbox {
    queue: VecDeque<Request>,
    /// Whether the thread sleeps, or is about to: whoever puts something in wakes it.
    asleep: bool,
    /// Whether somebody wants the sink to settle.
    nudged: bool,
    /// Whether the thread ends when nothing is left.
    closing: bool,
}

impl Shared {
    fn new(event: OwnedFd) -> Self {
        Self { inbox: Mutex::default(), event, refused: Condvar::new() }
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel is done with a request. One that a signal interrupted is put on the ring again, first of all.
    fn ended(&self, request: Request, result: i32, over: &mut Vec<Completion>) {
        if result == -rustix::io::Errno::INTR.raw_os_error() {
            self.inbox().queue.push_front(request);
        } else {
            over.push(completed(request, result));
        }
    }

    /// Changes the inbox, and wakes the thread if it sleeps.
    fn put(&self, change: impl FnOnce(&mut Inbox)) {
        let mut inbox = self.inbox();
        change(&mut inbox);
        let wake = std::mem::take(&mut inbox.asleep);
        drop(inbox);
        if wake {
            self.refused.notify_one();
            // Full only after 2^64 wake-ups that nobody saw.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
    }
}

impl Ring {
    /// A ring for `depth` requests at once, from 1 to 4096, rounded up to a power of two.
    ///
    /// # Errors
    /// The system's: that it has no ring, or that this user may not have one.
    pub fn new(depth: u32, sink: Arc<dyn Sink>) -> std::io::Result<Self> {
        let depth = depth.clamp(1, 4096).next_power_of_two();
        let event = eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared::new(event));
        let (told, tell) = mpsc::channel();
        let (of_thread, its_sink) = (Arc::clone(&shared), Arc::clone(&sink));
        let thread = Thread::begin("terrace-ring", move || {
            // The ring belongs to the thread that makes it.
            match Owned::new(depth, of_thread, its_sink) {
                Ok(owned) => {
                    let _ = told.send(Ok(()));
                    owned.run();
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
struct Owned {
    ring: IoUring,
    shared: Arc<Shared>,
    sink: Arc<dyn Sink>,
    /// Requests on their way, by the number that their entry carries.
    flying: Vec<Option<Request>>,
    /// Numbers that are free.
    free: Vec<u32>,
    /// Completions that the sink has not seen; empty but while it is told.
    over: Vec<Completion>,
    /// Whether an entry waits for the event.
    armed: bool,
    /// Where the event's count goes; read by nobody.
    count: Box<[u8; 8]>,
}

impl Owned {
    fn new(depth: u32, shared: Arc<Shared>, sink: Arc<dyn Sink>) -> std::io::Result<Self> {
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
        let flying = std::iter::repeat_with(|| None).take(depth as usize).collect();
        let free = (0..depth).rev().collect();
        Ok(Self { ring, shared, sink, flying, free, over: Vec::new(), armed: false, count: Box::new([0; 8]) })
    }

    fn run(mut self) {
        loop {
            self.push();
            let sleeps = self.may_sleep();
            if sleeps && self.is_over() {
                return;
            }
            // Where the call may be made again, what is there is looked at in any case.
            if let Err(error) = self.ring.submit_and_wait(usize::from(sleeps))
                && !is_passing(&error)
            {
                return self.refuse(&error);
            }
            let mut inbox = self.shared.inbox();
            inbox.asleep = false;
            let nudged = std::mem::take(&mut inbox.nudged);
            drop(inbox);
            self.reap(nudged);
        }
    }

    /// Puts as many requests on the ring as it has room for.
    fn push(&mut self) {
        if !self.armed {
            let event = types::Fd(self.shared.event.as_raw_fd());
            let entry = opcode::Read::new(event, self.count.as_mut_ptr(), 8).build().user_data(WOKEN);
            self.armed = put(&mut self.ring, &entry);
        }
        while let Some(number) = self.free.pop() {
            let Some(request) = self.shared.inbox().queue.pop_front() else {
                self.free.push(number);
                return;
            };
            let entry = entry(&request).user_data(u64::from(number));
            self.flying[number as usize] = Some(request);
            // There are twice as many entries as numbers.
            put(&mut self.ring, &entry);
        }
    }

    /// Whether there is nothing to put on the ring; then whoever changes that wakes this thread.
    fn may_sleep(&self) -> bool {
        let mut inbox = self.shared.inbox();
        inbox.asleep = !inbox.nudged && (inbox.queue.is_empty() || self.free.is_empty());
        inbox.asleep
    }

    fn is_over(&self) -> bool {
        let inbox = self.shared.inbox();
        inbox.closing && !inbox.nudged && inbox.queue.is_empty() && self.free.len() == self.flying.len()
    }

    /// Takes what has completed off the ring.
    fn take(&mut self, over: &mut Vec<Completion>) {
        for completion in self.ring.completion() {
            if completion.user_data() == WOKEN {
                self.armed = false;
                continue;
            }
            let number = completion.user_data() as u32;
            if let Some(request) = self.flying.get_mut(number as usize).and_then(Option::take) {
                self.free.push(number);
                self.shared.ended(request, completion.result(), over);
            }
        }
    }

    /// Entries that the kernel has not completed.
    fn left(&self) -> usize {
        usize::from(self.armed) + self.flying.iter().flatten().count()
    }

    /// Has all entries completed: kernels before 6.1 keep what they name, the file and its lock, after the ring is closed.
    fn close(&mut self) {
        while self.left() > 0 {
            // Then the entry for the event completes.
            let _ = rustix::io::write(&self.shared.event, &1u64.to_ne_bytes());
            if self.ring.submit_and_wait(1).is_err_and(|error| !is_passing(&error)) {
                self.forsake();
            }
            self.take(&mut Vec::new());
        }
    }

    /// Gives up entries that the kernel may work on for ever: what they name is never used again. Their requests.
    fn forsake(&mut self) -> Vec<Request> {
        if std::mem::take(&mut self.armed) {
            Box::leak(std::mem::take(&mut self.count));
        }
        let mut requests: Vec<_> = self.flying.iter_mut().filter_map(Option::take).collect();
        requests.iter_mut().filter_map(|request| request.frame.take()).for_each(Frame::forsake);
        requests
    }

    /// Ends every request with the error, until the engine is closed: the kernel takes no more calls for the ring.
    fn refuse(mut self, error: &std::io::Error) {
        let code = error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error());
        let mut over = std::mem::take(&mut self.over);
        self.take(&mut over);
        let mut requests = self.forsake();
        loop {
            over.extend(requests.into_iter().map(|request| completed(request, -code)));
            let settled = self.tell(&mut over);
            let mut inbox = self.shared.inbox();
            while settled && inbox.queue.is_empty() && !inbox.nudged {
                if inbox.closing {
                    return;
                }
                inbox.asleep = true;
                inbox = self.shared.refused.wait(inbox).unwrap_or_else(PoisonError::into_inner);
            }
            (inbox.asleep, inbox.nudged) = (false, false);
            requests = inbox.queue.drain(..).collect();
        }
    }

    /// Hands on what has completed.
    fn reap(&mut self, nudged: bool) {
        let mut over = std::mem::take(&mut self.over);
        self.take(&mut over);
        // Those that wait for room go first: the disk works while the sink does.
        self.push();
        let _ = self.ring.submit();
        if (nudged || !over.is_empty()) && !self.tell(&mut over) {
            self.shared.inbox().nudged = true;
        }
        self.over = over;
    }

    /// Tells the sink what is over, and lets it settle; whether it has. Should it panic, the ring stays, whose requests are on
    /// their way.
    fn tell(&self, over: &mut Vec<Completion>) -> bool {
        let sink = &self.sink;
        over.drain(..).for_each(|completion| calm(|| sink.completed(completion)));
        catch_unwind(AssertUnwindSafe(|| sink.settle())).unwrap_or(true)
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.close();
        #[cfg(test)]
        tests::LEFT.with_borrow_mut(|left| left.push(self.left()));
    }
}

/// Whether the call may be made again: it was interrupted, the system is short of memory, or completions must be taken first.
fn is_passing(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::ResourceBusy)
}

/// Puts an entry on the ring. False when it is full.
fn put(ring: &mut IoUring, entry: &squeue::Entry) -> bool {
    // SAFETY: what the entry names (a frame and a file, or the event and its count) is kept until its completion.
    unsafe { ring.submission().push(entry) }.is_ok()
}

/// A request as the ring takes it.
fn entry(request: &Request) -> squeue::Entry {
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

fn completed(mut request: Request, result: i32) -> Completion {
    let fault = || request.slab.fault(request.op.call(), request.offset, -result);
    let result = usize::try_from(result).map_err(|_| fault());
    Completion { token: request.token, result, frame: request.frame.take() }
}

impl Driver for Ring {
    fn nudge(&self) {
        if self.process.is_current() {
            self.shared.put(|inbox| inbox.nudged = true);
        }
    }
}

impl Engine for Ring {
    fn submit(&self, requests: Vec<Request>) {
        if !self.process.is_current() {
            return requests.into_iter().for_each(|request| self.sink.completed(request.refuse_child()));
        }
        let (sound, refused): (Vec<_>, Vec<_>) = requests.into_iter().partition(Request::is_sound);
        self.shared.put(|inbox| inbox.queue.extend(sound));
        if !refused.is_empty() {
            refused.into_iter().for_each(|request| self.sink.completed(request.refuse()));
            // Told on a thread that may run no tasks.
            self.nudge();
        }
    }

    fn name(&self) -> &'static str {
        "ring"
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.shared.put(|inbox| inbox.closing = true);
        }
    }
}

#[cfg(test)]
mod tests;
