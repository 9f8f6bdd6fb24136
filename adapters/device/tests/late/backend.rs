//! A device that does its work late: copies and fills are put aside, and done when somebody waits for them; while it is deaf,
//! every wait is refused, and the work is done whenever the test says so.
//!
//! Promises upward: real bytes are moved, between the very addresses that were named; memory that is taken back while work on
//! it is left is told of ([`Late::broken`]).
//! Asks from below: the global allocator.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{HashMap, HashSet, VecDeque};
use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use terrace_device::{Backend, Capabilities, Description, Fault, FaultReason, Memory, MemoryKind, RawEvent, RawStream};

/// A copy, or a fill where nothing is read.
#[derive(Clone, Copy)]
struct Work {
    number: u64,
    stream: RawStream,
    to: u64,
    from: Result<u64, u8>,
    bytes: u64,
}

#[derive(Default)]
struct State {
    left: VecDeque<Work>,
    /// The number of the last work that was there when an event was recorded, and its stream.
    events: HashMap<u64, (u64, RawStream)>,
    /// The last name and the last number that were given.
    last: u64,
    /// What waits and questions are refused with.
    deaf: Option<FaultReason>,
    /// Whether copies are refused, and done all the same.
    false_refusals: bool,
    /// Whether events cannot be recorded.
    mute: bool,
    /// Whether waits take until [`Late::open`].
    shut: bool,
    /// Waits that were begun while they take so long.
    held: usize,
    /// Streams that a capture has drawn in: waits for them are refused.
    drawn: HashSet<RawStream>,
    /// Events that were recorded in a capture: waits for them are refused until they are recorded again.
    captured: HashSet<u64>,
    registered: Vec<(u64, u64)>,
    /// Regions that are out.
    out: usize,
    broken: Vec<String>,
}

/// Clones are the same device.
#[derive(Clone)]
pub struct Late {
    description: Arc<Description>,
    state: Arc<Mutex<State>>,
    /// Waits that take until then wait here.
    opened: Arc<Condvar>,
}

impl Late {
    pub fn new() -> Self {
        let description = Description {
            backend: "late",
            ordinal: 0,
            name: "a device that is late".into(),
            driver: "none".into(),
            total: 64 << 20,
            page_bytes: 0,
            peers: Vec::new(),
            strangers: Vec::new(),
            capabilities: Capabilities::PINNED | Capabilities::MANAGED | Capabilities::REGISTRATION,
            notes: Vec::new(),
        };
        Self { description: Arc::new(description), state: Arc::default(), opened: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics in here")
    }

    /// From now on waits are refused for a reason, or no longer.
    pub fn deaf(&self, reason: Option<FaultReason>) {
        self.state().deaf = reason;
    }

    /// From now on copies are refused, and done all the same.
    pub fn refuse_falsely(&self, refuse: bool) {
        self.state().false_refusals = refuse;
    }

    /// From now on no event can be recorded, or they can again.
    pub fn mute(&self, mute: bool) {
        self.state().mute = mute;
    }

    /// From now on waits take until [`Late::open`].
    pub fn shut(&self) {
        self.state().shut = true;
    }

    /// Waits go on.
    pub fn open(&self) {
        self.state().shut = false;
        self.opened.notify_all();
    }

    /// Waits that took until [`Late::open`], or take so long now.
    pub fn held(&self) -> usize {
        self.state().held
    }

    /// A capture draws in the streams that have work left; that work is done as before.
    pub fn draw(&self) {
        let mut state = self.state();
        let State { left, events, drawn, captured, .. } = &mut *state;
        drawn.extend(left.iter().map(|work| work.stream));
        captured.extend(events.iter().filter(|(_, (_, stream))| drawn.contains(stream)).map(|(event, _)| event));
    }

    /// What is left was captured, and the capture has ended: nobody does it, and the streams are idle.
    pub fn swallow(&self) {
        self.draw();
        let mut state = self.state();
        state.left.clear();
        state.drawn.clear();
    }

    /// Does everything that is left: it was never stopped by a refusal.
    pub fn work(&self) {
        self.state().work(|_| true);
    }

    /// Pieces of work that are left.
    pub fn left(&self) -> usize {
        self.state().left.len()
    }

    /// Memory that was taken back too early.
    pub fn broken(&self) -> Vec<String> {
        self.state().broken.clone()
    }

    /// Regions that are out.
    pub fn out(&self) -> usize {
        self.state().out
    }

    fn put(&self, stream: RawStream, to: u64, from: Result<u64, u8>, bytes: u64) -> Result<(), Fault> {
        let mut state = self.state();
        state.last += 1;
        let number = state.last;
        state.left.push_back(Work { number, stream, to, from, bytes });
        if state.false_refusals { Err(Fault::of("copy", FaultReason::Other)) } else { Ok(()) }
    }

    fn wait_for(&self, which: impl Fn(&Work) -> bool, captured: impl FnOnce(&State) -> bool) -> Result<(), Fault> {
        let mut state = self.state();
        state.held += usize::from(state.shut);
        let mut state = self.opened.wait_while(state, |state| state.shut).expect("no test panics in here");
        let captured = captured(&state).then_some(FaultReason::Capturing);
        if let Some(reason) = state.deaf.or(captured) {
            return Err(Fault::of("wait", reason));
        }
        state.work(which);
        Ok(())
    }

    /// The work before an event.
    fn before(&self, event: RawEvent) -> impl Fn(&Work) -> bool + use<> {
        let (number, stream) = self.state().events[&event.0];
        move |work| work.stream == stream && work.number <= number
    }
}

impl State {
    fn name(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn work(&mut self, which: impl Fn(&Work) -> bool) {
        let (now, later) = self.left.drain(..).partition(|work| which(work));
        self.left = later;
        let now: VecDeque<Work> = now;
        for Work { to, from, bytes, .. } in now {
            let target: *mut u8 = with_exposed_provenance_mut(to as usize);
            match from {
                Ok(from) => {
                    let source: *const u8 = with_exposed_provenance(from as usize);
                    // SAFETY: whoever asked for it promised that both sides live until it is done: that is what is tested.
                    unsafe { source.copy_to(target, bytes as usize) };
                }
                Err(value) => {
                    // SAFETY: as above.
                    unsafe { target.write_bytes(value, bytes as usize) };
                }
            }
        }
    }

    /// Memory goes: no work may be left on it. Gives whether that is so.
    fn leave(&mut self, what: &str, address: u64, bytes: u64) -> bool {
        let inside = |at: u64, len: u64| at < address + bytes && address < at + len;
        let meets = |work: &Work| inside(work.to, work.bytes) || work.from.is_ok_and(|from| inside(from, work.bytes));
        let used = self.left.iter().any(meets);
        if used {
            self.broken.push(format!("{what} of {bytes} bytes that are still in use"));
        }
        !used
    }
}

fn layout(bytes: u64) -> Layout {
    Layout::from_size_align(bytes as usize, 4096).expect("a size of this machine's")
}

// SAFETY: memory is fresh from the global allocator, and back there once. `Ok` of a wait means that the work before is done;
// what is refused says nothing. `SYNCHRONOUS` is not set.
unsafe impl Backend for Late {
    fn description(&self) -> &Description {
        &self.description
    }

    fn memory(&self) -> Result<Memory, Fault> {
        Ok(Memory { free: self.description.total, total: self.description.total })
    }

    fn take(&self, _: MemoryKind, bytes: u64) -> Result<u64, Fault> {
        self.state().out += 1;
        // SAFETY: nobody takes no bytes.
        let region = unsafe { alloc_zeroed(layout(bytes)) };
        Ok(region.expose_provenance() as u64)
    }

    unsafe fn give_back(&self, _: MemoryKind, address: u64, bytes: u64) -> Result<(), Fault> {
        if self.state().leave("a region", address, bytes) {
            // SAFETY: the caller gives back what `take` gave, with the same bytes.
            unsafe { dealloc(with_exposed_provenance_mut(address as usize), layout(bytes)) };
            self.state().out -= 1;
        }
        Ok(())
    }

    fn create_stream(&self) -> Result<RawStream, Fault> {
        Ok(RawStream(self.state().name()))
    }

    unsafe fn destroy_stream(&self, _: RawStream) -> Result<(), Fault> {
        Ok(())
    }

    unsafe fn synchronize_stream(&self, stream: RawStream) -> Result<(), Fault> {
        self.wait_for(|work| work.stream == stream, |state| state.drawn.contains(&stream))
    }

    fn synchronize(&self) -> Result<(), Fault> {
        self.wait_for(|_| true, |state| !state.drawn.is_empty())
    }

    fn create_event(&self) -> Result<RawEvent, Fault> {
        Ok(RawEvent(self.state().name()))
    }

    unsafe fn destroy_event(&self, _: RawEvent) -> Result<(), Fault> {
        Ok(())
    }

    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<(), Fault> {
        let mut state = self.state();
        if state.mute {
            return Err(Fault::of("record", FaultReason::Other));
        }
        let number = state.last;
        state.events.insert(event.0, (number, stream));
        state.captured.remove(&event.0);
        Ok(())
    }

    unsafe fn query(&self, event: RawEvent) -> Result<bool, Fault> {
        let before = self.before(event);
        let state = self.state();
        state.deaf.map_or(Ok(()), |reason| Err(Fault::of("query", reason)))?;
        Ok(!state.left.iter().any(before))
    }

    unsafe fn wait(&self, event: RawEvent) -> Result<(), Fault> {
        self.wait_for(self.before(event), |state| state.captured.contains(&event.0))
    }

    /// What comes before is done first.
    unsafe fn order(&self, _: RawStream, event: RawEvent) -> Result<(), Fault> {
        let before = self.before(event);
        self.state().work(before);
        Ok(())
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: u64, stream: RawStream) -> Result<(), Fault> {
        self.put(stream, to, Ok(from), bytes)
    }

    unsafe fn fill(&self, address: u64, value: u8, bytes: u64, stream: RawStream) -> Result<(), Fault> {
        self.put(stream, address, Err(value), bytes)
    }

    unsafe fn register(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        self.state().registered.push((address, bytes));
        Ok(())
    }

    unsafe fn unregister(&self, address: u64) -> Result<(), Fault> {
        let mut state = self.state();
        let at = state.registered.iter().position(|(start, _)| *start == address);
        let (start, bytes) = state.registered.swap_remove(at.expect("it was registered"));
        state.leave("a registration", start, bytes);
        Ok(())
    }
}
