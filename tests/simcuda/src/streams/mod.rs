//! Streams: queues of operations, each run in order by a thread of its own.
//!
//! Upward: [`World::submit`](crate::machine::World::submit) puts an operation on a stream; `wait.rs` waits for them;
//! `hold.rs` stops and steps them.
//! From below: the lock on the world, memory to touch, and the order of operations.

mod capture;
mod event;
pub mod hold;
pub mod kernels;
mod submit;
mod wait;
pub mod work;
mod worker;

pub use capture::{Captures, Node};
pub use event::Event;
pub use kernels::KERNELS;
pub use wait::{Target, settle, synchronise, wait_for};
pub use work::{HostFunction, Work};

use crate::machine::{Kind, Table};
use crate::order::{Clock, Lane, Touch};
use parking_lot::Condvar;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::thread::ThreadId;

/// An operation that waits for its turn.
pub struct Operation {
    /// The call or kernel.
    pub name: &'static str,
    /// Its number in its stream, from 1 on; the same number counts in clocks.
    pub sequence: u64,
    /// Operations of other streams that must be done before.
    pub waits: Vec<Target>,
    /// What it touches.
    pub touches: Vec<Touch>,
    /// What it does.
    pub work: Work,
    /// What the host knows when a host function has run.
    pub tells: Option<Clock>,
}

/// A stream. Its lane is its key and never comes again.
pub struct Stream {
    /// Its handle; 0 for default streams.
    pub handle: u64,
    /// Its context.
    pub context: u64,
    /// The context's device.
    pub device: usize,
    /// `CU_STREAM_NON_BLOCKING` is 1.
    pub flags: u32,
    /// As it was asked for.
    pub priority: i32,
    /// Number of the newest operation: `done` plus the one that runs plus the length of `queue`.
    pub enqueued: u64,
    /// All operations up to this number are done.
    pub done: u64,
    /// Operations to come.
    pub queue: VecDeque<Operation>,
    /// What the operation that runs now touches.
    pub running: Option<Vec<Touch>>,
    /// Operations that may start although streams are held.
    pub grants: u64,
    /// Wakes the stream's thread.
    pub wake: Arc<Condvar>,
    /// Whether it has a thread.
    pub started: bool,
    /// `cuStreamDestroy` was called: the stream ends when its queue is empty.
    pub destroyed: bool,
    /// The capture it takes part in.
    pub capture: Option<u64>,
}

impl Stream {
    /// Whether it keeps order with the context's legacy default stream.
    pub fn blocks(&self) -> bool {
        self.flags & 1 == 0
    }

    /// The stream, for messages.
    pub fn describe(&self, lane: Lane) -> String {
        if self.handle == 0 { format!("default stream {lane}") } else { format!("stream {lane} ({:#x})", self.handle) }
    }
}

/// All streams.
pub struct Streams {
    /// By lane: oldest first.
    pub all: BTreeMap<Lane, Stream>,
    /// Lanes by handle.
    pub handles: Table<Lane>,
    /// Lanes of the legacy default streams, by context.
    pub legacy: HashMap<u64, Lane>,
    /// Lanes of the default streams of threads.
    pub threads: HashMap<(u64, ThreadId), Lane>,
    next: Lane,
    /// Whether operations wait for a release or a step.
    pub held: bool,
}

impl Streams {
    /// No streams.
    pub fn new(generation: u64, reuse: bool) -> Streams {
        Streams {
            all: BTreeMap::new(),
            handles: Table::new(Kind::Stream, generation, reuse),
            legacy: HashMap::new(),
            threads: HashMap::new(),
            next: 0,
            held: false,
        }
    }

    /// A new stream without a handle.
    pub fn add(&mut self, context: u64, device: usize, flags: u32, priority: i32) -> Lane {
        let stream = Stream {
            handle: 0,
            context,
            device,
            flags,
            priority,
            enqueued: 0,
            done: 0,
            queue: VecDeque::new(),
            running: None,
            grants: 0,
            wake: Arc::new(Condvar::new()),
            started: false,
            destroyed: false,
            capture: None,
        };
        let lane = self.next;
        self.next += 1;
        self.all.insert(lane, stream);
        lane
    }

    /// A new stream with a handle.
    pub fn create(&mut self, context: u64, device: usize, flags: u32, priority: i32) -> u64 {
        let lane = self.add(context, device, flags, priority);
        let handle = self.handles.insert(lane);
        self.all.get_mut(&lane).into_iter().for_each(|stream| stream.handle = handle);
        handle
    }

    /// The legacy default stream of a context.
    pub fn legacy_of(&mut self, context: u64, device: usize) -> Lane {
        if let Some(lane) = self.legacy.get(&context) {
            return *lane;
        }
        let lane = self.add(context, device, 0, 0);
        self.legacy.insert(context, lane);
        lane
    }

    /// The calling thread's default stream of a context.
    pub fn of_thread(&mut self, context: u64, device: usize) -> Lane {
        let key = (context, std::thread::current().id());
        if let Some(lane) = self.threads.get(&key) {
            return *lane;
        }
        let lane = self.add(context, device, 0, 0);
        self.threads.insert(key, lane);
        lane
    }

    /// Whether an operation is done. Streams that ended have done all.
    pub fn is_done(&self, lane: Lane, sequence: u64) -> bool {
        self.all.get(&lane).is_none_or(|stream| stream.done >= sequence)
    }

    /// Whether a stream's next operation may start.
    pub fn may_start(&self, lane: Lane) -> bool {
        let Some(stream) = self.all.get(&lane).filter(|stream| stream.running.is_none()) else { return false };
        let ready =
            |operation: &Operation| operation.waits.iter().all(|(lane, sequence)| self.is_done(*lane, *sequence));
        (!self.held || stream.grants > 0) && stream.queue.front().is_some_and(ready)
    }

    /// Wakes the threads of all streams that have something to start.
    pub fn wake(&self) {
        for (_, stream) in self.all.iter().filter(|(lane, _)| self.may_start(**lane)) {
            stream.wake.notify_one();
        }
    }

    /// `cuStreamDestroy`: the handle is gone at once, the stream when its operations are done.
    pub fn destroy(&mut self, lane: Lane) {
        let Some(stream) = self.all.get_mut(&lane) else { return };
        stream.destroyed = true;
        if stream.handle != 0 {
            self.handles.remove(stream.handle);
        }
        if stream.started {
            stream.wake.notify_one();
        } else {
            self.all.remove(&lane);
        }
    }

    /// Streams of a context that keep order with its legacy default stream.
    pub fn blocking(&self, context: u64) -> impl Iterator<Item = (Lane, &Stream)> {
        let legacy = self.legacy.get(&context).copied();
        let of_context = move |(lane, stream): &(Lane, &Stream)| {
            stream.context == context && stream.blocks() && Some(*lane) != legacy
        };
        self.all.iter().map(|(lane, stream)| (*lane, stream)).filter(of_context)
    }
}
