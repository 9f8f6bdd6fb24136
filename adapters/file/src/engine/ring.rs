//! Requests by the system's ring (io_uring): submitted by whoever asks, completed on one thread.
//!
//! ```text
//!   submit ──► entries ──► kernel ──► completions ──► the reaper's thread ──► sink
//!      └── under a lock, one call for many        └── sleeps in the kernel while nothing is on its way
//! ```
//!
//! Promises upward: as [`Engine`] says; no more entries are on their way than the ring has room for completions; the thread
//! takes no time while idle, and is gone when the engine is dropped.
//! Asks from below: a kernel that has the ring and lets this user have it; [`Ring::new`] fails where not.

use crate::request::{Completion, Engine, Op, Request, Sink};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::fd::{AsFd, AsRawFd};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// What the entry carries that wakes the reaper to look whether it ends.
const END: u64 = u64::MAX;

/// A ring, and the thread that looks after it.
pub struct Ring {
    shared: Arc<Shared>,
    reaper: Option<JoinHandle<()>>,
}

struct Shared {
    ring: IoUring,
    state: Mutex<State>,
    sink: Arc<dyn Sink>,
}

/// Guards the ring's submission side too.
struct State {
    /// Requests on their way, by the number that their entry carries.
    flying: Vec<Option<Request>>,
    /// Numbers that are free.
    free: Vec<u32>,
    /// Requests that found the ring full.
    queue: VecDeque<Request>,
    /// Whether the reaper ends when nothing is left.
    closing: bool,
}

impl State {
    /// Whether nothing is left.
    fn is_over(&self) -> bool {
        self.closing && self.queue.is_empty() && self.free.len() == self.flying.len()
    }
}

impl Ring {
    /// A ring for `depth` requests at once, from 1 to 4096.
    ///
    /// # Errors
    /// The system's: that it has no ring, or that this user may not have one.
    pub fn new(depth: u32, sink: Arc<dyn Sink>) -> std::io::Result<Self> {
        let depth = depth.clamp(1, 4096).next_power_of_two();
        let ring = IoUring::new(depth)?;
        let flying = std::iter::repeat_with(|| None).take(depth as usize).collect();
        let state = State { flying, free: (0..depth).rev().collect(), queue: VecDeque::new(), closing: false };
        let shared = Arc::new(Shared { ring, state: Mutex::new(state), sink });
        let of_thread = Arc::clone(&shared);
        let reaper = std::thread::Builder::new().name("terrace-ring".into()).spawn(move || of_thread.reap())?;
        Ok(Self { shared, reaper: Some(reaper) })
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts as many waiting requests on the ring as it has room for, by one call of the system.
    fn push(&self, state: &mut State) {
        let mut pushed = 0;
        while let Some(number) = (!state.queue.is_empty()).then(|| state.free.pop()).flatten() {
            let Some(request) = state.queue.pop_front() else { break };
            let entry = entry(&request).user_data(u64::from(number));
            state.flying[number as usize] = Some(request);
            self.put(&entry);
            pushed += 1;
        }
        if pushed > 0 {
            // Interrupted or short of memory: the entries stay in the ring and go with the next call, at the latest the
            // reaper's.
            let _ = self.ring.submit();
        }
    }

    /// Puts an entry on the ring, under the state's lock.
    fn put(&self, entry: &squeue::Entry) {
        // SAFETY: the submission side is used under the state's lock only.
        let mut submission = unsafe { self.ring.submission_shared() };
        // SAFETY: the entry's frame and file are kept in `flying` until its completion.
        // Not full for a request: there are as many entries as numbers.
        let _ = unsafe { submission.push(entry) };
    }

    /// Hands completions on until the engine closes and nothing is left.
    fn reap(&self) {
        let mut done = Vec::new();
        loop {
            // Refused: interrupted. What is there is looked at in any case.
            let _ = self.ring.submit_and_wait(1);
            // SAFETY: the completion side is used on this thread only.
            let completions: Vec<cqueue::Entry> = unsafe { self.ring.completion_shared() }.collect();
            let mut state = self.state();
            for completion in completions.iter().filter(|completion| completion.user_data() != END) {
                let number = completion.user_data() as u32;
                let request = state.flying.get_mut(number as usize).and_then(Option::take);
                state.free.push(number);
                done.extend(request.map(|request| over(request, completion.result())));
            }
            self.push(&mut state);
            let over = state.is_over();
            drop(state);
            done.drain(..).for_each(|completion| self.sink.completed(completion));
            if over {
                return;
            }
        }
    }
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

fn over(mut request: Request, result: i32) -> Completion {
    let call = match request.op {
        Op::Read => "read",
        Op::Write => "write",
        Op::Sync => "sync",
    };
    let fault = || request.slab.fault(call, request.offset, -result);
    let result = usize::try_from(result).map_err(|_| fault());
    Completion { token: request.token, result, frame: request.frame.take() }
}

impl Engine for Ring {
    fn submit(&self, requests: Vec<Request>) {
        let (sound, refused): (Vec<_>, Vec<_>) = requests.into_iter().partition(Request::is_sound);
        let mut state = self.shared.state();
        state.queue.extend(sound);
        self.shared.push(&mut state);
        drop(state);
        refused.into_iter().for_each(|request| self.shared.sink.completed(request.refuse()));
    }

    fn name(&self) -> &'static str {
        "ring"
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.closing = true;
        // Should the ring have no room, there are requests on their way, which wake the reaper as well.
        self.shared.put(&opcode::Nop::new().build().user_data(END));
        let _ = self.shared.ring.submit();
        drop(state);
        if let Some(reaper) = self.reaper.take() {
            let _ = reaper.join();
        }
    }
}
