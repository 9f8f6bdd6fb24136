//! A device made of numbers: streams that go on when a test says so, memory without bytes, and a judge of every access.
//!
//! Promises upward: deterministic; whatever a stream was given is done only by [`Manual::advance`] or by a call that waits;
//! each rule that a real device punishes with wrong bytes is a line in [`Manual::broken`] here: work on memory that is not
//! there, two pieces of work on the same bytes that no order connects, memory taken away under work in flight, events
//! asked while a graph is captured. Any call can be made to fail.
//! Asks from below: nothing.

mod backend;
mod clock;
mod ground;
pub mod program;
mod work;

use clock::Clock;
use ground::Ground;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_device::{Capabilities, Description, Fault, FaultReason, RawStream};
use work::{Access, Line, Mark};

/// Bytes of a page: as on real devices.
pub const PAGE: u64 = 2 << 20;

/// What a driver does wrong when it lies: to show that programs find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// An event is said to have happened before it did.
    EventsEarly,
    /// A stream does not wait for the event it was told to.
    OrdersForgotten,
    /// A wait returns at once.
    WaitsShort,
    /// Memory is given out twice.
    RegionsTwice,
}

/// A device made of numbers. Clones are the same device: one goes to `Device::open`, one stays with the test.
#[derive(Clone)]
pub struct Manual {
    description: Arc<Description>,
    state: Arc<Mutex<State>>,
}

struct State {
    ground: Ground,
    lines: BTreeMap<u64, Line>,
    /// Events: where they were recorded, once they were.
    events: BTreeMap<u64, Option<Mark>>,
    /// Work that the host has seen done, of each stream.
    seen: Clock,
    /// Work that may still be in flight, and the bytes it uses.
    accesses: Vec<Access>,
    broken: Vec<String>,
    /// The next name of a stream, event, page.
    next: u64,
    calls: u64,
    /// The call that fails, counted from the first, and how.
    fails: Option<(u64, FaultReason)>,
    lie: Option<Lie>,
}

impl Manual {
    /// A device of `total` bytes, with pages or without.
    pub fn new(total: u64, pages: bool) -> Self {
        let (capability, page_bytes) = if pages { (Capabilities::PAGES, PAGE) } else { (Capabilities::empty(), 0) };
        let description = Description {
            backend: "manual",
            ordinal: 0,
            name: "a device made of numbers".into(),
            driver: "none".into(),
            total,
            page_bytes,
            peers: Vec::new(),
            strangers: Vec::new(),
            // No pinned memory, unless it is asked for: its bytes would have to be there.
            capabilities: Capabilities::DRIVER_POOL | capability,
            notes: Vec::new(),
        };
        let state = State {
            ground: Ground::new(total),
            lines: BTreeMap::from([(0, Line::default())]),
            events: BTreeMap::new(),
            seen: Clock::default(),
            accesses: Vec::new(),
            broken: Vec::new(),
            next: 1,
            calls: 0,
            fails: None,
            lie: None,
        };
        Self { description: Arc::new(description), state: Arc::new(Mutex::new(state)) }
    }

    /// The same with pinned memory, whose bytes are not there.
    ///
    /// # Safety
    /// The caller uses pinned memory of the device by address only: it makes no buffer of it, and no copy from or to the host.
    pub unsafe fn with_pinned(mut self) -> Self {
        Arc::make_mut(&mut self.description).capabilities |= Capabilities::PINNED;
        self
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a call, and refuses it when it is the one to fail.
    fn call(&self, name: &'static str) -> Result<MutexGuard<'_, State>, Fault> {
        let mut state = self.state();
        state.calls += 1;
        match state.fails {
            Some((at, reason)) if at == state.calls => Err(Fault { code: 999, ..Fault::of(name, reason) }),
            _ => Ok(state),
        }
    }

    /// Puts work on a stream that uses a range of bytes, as a kernel would.
    pub fn launch(&self, stream: RawStream, address: u64, bytes: u64) {
        self.state().launch(stream.0, &[(address, bytes)]);
    }

    /// Lets a stream do its next piece of work, if it has any and need not wait. Says whether it did.
    pub fn advance(&self, stream: RawStream) -> bool {
        self.state().advance(stream.0)
    }

    /// Puts work on a stream that uses no bytes; returns its number on that stream.
    pub fn occupy(&self, stream: RawStream) -> u64 {
        let mut state = self.state();
        state.launch(stream.0, &[]);
        state.lines.get(&stream.0).map_or(0, |line| line.issued)
    }

    /// Lets a stream do its work up to a piece, and what that waits for.
    pub fn finish(&self, stream: RawStream, work: u64) {
        self.state().finish(stream.0, work);
    }

    /// A graph is captured on the stream from now on, or no longer.
    pub fn set_capturing(&self, stream: RawStream, capturing: bool) {
        if let Some(line) = self.state().lines.get_mut(&stream.0) {
            line.capturing = capturing;
        }
    }

    /// Destroys a stream behind everybody's back; what was put on it is done.
    pub fn destroy_behind(&self, stream: RawStream) {
        let mut state = self.state();
        state.finish(stream.0, u64::MAX);
        state.lines.remove(&stream.0);
    }

    /// The `n`-th call from now fails for a reason (1: the next).
    pub fn fail(&self, n: u64, reason: FaultReason) {
        let mut state = self.state();
        state.fails = Some((state.calls + n, reason));
    }

    /// The driver lies from now on.
    pub fn lie(&self, lie: Lie) {
        self.state().lie = Some(lie);
    }

    /// No call fails from now on.
    pub fn heal(&self) {
        self.state().fails = None;
    }

    /// Calls made so far.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Rules that were broken so far.
    pub fn broken(&self) -> Vec<String> {
        self.state().broken.clone()
    }

    /// What was taken and not given back: regions, spaces, pages, streams, events.
    pub fn outstanding(&self) -> Vec<String> {
        let state = self.state();
        let mut left = state.ground.outstanding();
        left.extend(state.lines.keys().filter(|&&stream| stream != 0).map(|stream| format!("stream {stream}")));
        left.extend(state.events.keys().map(|event| format!("event {event}")));
        left
    }

    /// Bytes of memory taken.
    pub fn taken(&self) -> u64 {
        self.state().ground.taken
    }
}
