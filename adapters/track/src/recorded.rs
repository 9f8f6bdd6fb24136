//! Calls of recorders, and of owners whose events they take.
//!
//! Promises upward: every allocation that begins after a recorder was attached and ends before it is detached is told, and so
//! is the free of each such block before it; an owner without a recorder pays a load and a branch where it is tracked.
//! Asks from below: the tracker's mode, which must not be off: a block without a stamp is not told.

use crate::list::StackFrame;
use crate::mode::TrackMode;
use crate::origin::Origin;
use crate::records::TrackRecord;
use crate::sink::EventSink;
use crate::tracker::Tracker;
use allocator_api2::alloc::Allocator;
use std::sync::Arc;
use terrace_core::event::{Event, Kind};

impl<A: Allocator + Clone> Tracker<A> {
    /// Tells the sink, if there is one, of an event. Its `id` is the block's key.
    ///
    /// The caller must tell of an allocation after it was made, and of a free before other code can get the memory.
    #[inline(always)]
    pub fn tell_event(&self, origin: Origin, event: impl FnOnce() -> Event) {
        if self.sink.is_set() && self.is_own() {
            self.sink.pass(origin, event());
        }
    }

    /// Attaches a sink to which all events go from now on; false if there is one, or in a forked child.
    ///
    /// A tracker that is off begins to count, since only blocks that are tracked are told of.
    pub fn attach_sink(&self, sink: Arc<dyn EventSink>) -> bool {
        let is_attached = self.is_own() && self.sink.set(sink);
        if is_attached && self.mode() == TrackMode::Off {
            self.set_mode(TrackMode::Counters);
            self.sink.mode_was_off(true);
        }
        is_attached
    }

    /// Detaches the sink: once this returns, no call into it is in progress.
    ///
    /// A tracker that [`attach_sink`](Self::attach_sink) switched on is off again, unless its mode was changed meanwhile.
    pub fn detach_sink(&self, sink: &Arc<dyn EventSink>) {
        let is_detached = self.is_own() && self.sink.clear(sink);
        if is_detached && self.sink.mode_was_off(false) && self.mode() == TrackMode::Counters {
            self.set_mode(TrackMode::Off);
        }
    }

    /// The recorded blocks that are live, oldest first, as events that allocate them.
    ///
    /// Calls nothing of the owner.
    pub fn live_events(&self) -> Vec<(Origin, Event)> {
        let mut records = if self.is_own() { self.records.collect(|_| true) } else { Vec::new() };
        records.sort_unstable_by_key(|record| (record.born, record.id));
        let event = |record: &TrackRecord| {
            let event =
                Event { kind: Kind::Allocate, id: record.key, bytes: record.bytes, align: 1, ..Event::default() };
            (Origin { tag: record.tag, site: record.site }, event)
        };
        records.iter().map(event).collect()
    }

    /// The call stack of an origin, innermost call first; empty unless call sites are recorded.
    pub fn stack_of(&self, origin: Origin) -> Vec<StackFrame> {
        let files = crate::loaded::loaded_files();
        self.sites.stack(origin.site()).into_iter().map(|at| crate::loaded::frame_of(&files, at)).collect()
    }
}
