//! Decides when memory freed on one stream may be reused on another, by events of the driver, as few as possible.
//!
//! Promises upward: a free costs no driver call; an event is recorded only at a poll or wait, one for all that its
//! stream freed until then; while a device has a single stream, no event is recorded at all.
//! Asks from below: a stream does its work in order; [`Backend::record`], [`query`](Backend::query),
//! [`wait`](Backend::wait), [`order`](Backend::order).
//!
//! ```text
//!   one stream      free ──► range at once: the next request is on the same stream
//!   a second one    is made to wait for the first (on the device), once: memory free now is free for both
//!   many            free ──► waits with a ticket ──► poll: event recorded, queried ──► range
//! ```
//!
//! A ticket is the number of an event on its stream: a free gets the number of the stream's next event, which the first
//! poll that needs it records. The event may cover more work than the free, never less.

mod check;
mod fence;
mod stream_events;
mod wait;

pub(crate) use wait::{may_wait, with_waiting, without_waiting};

use crate::backend::{Backend, RawEvent, RawStream};
use crate::fault::{Fault, FaultReason};
use crate::health::{DeviceHealth, insist};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stream_events::{StreamEvents, StreamState};
use terrace_core::{FenceState, Owner};

/// Value of `sole` while there is no only stream.
const NO_STREAM: u32 = u32::MAX;

/// The fences of one device's streams. Clones are handles to the same table.
pub(crate) struct Fences<B: Backend>(Arc<FencesShared<B>>);

struct FencesShared<B: Backend> {
    backend: Arc<B>,
    health: Arc<DeviceHealth>,
    /// Owner of the only stream, while one is open and no other's work is in flight; changed only with `table` locked.
    sole: Arc<AtomicU32>,
    /// Whether the only stream freed memory since the last wait for it: its work in flight may still write that memory.
    dirty: AtomicBool,
    table: Mutex<EventTable>,
}

struct EventTable {
    /// Streams that are open, or closed with work in flight. A stream that is not in here has done all its work.
    by_owner: BTreeMap<u32, StreamEvents>,
    /// Events that no ticket needs any more, to be recorded again.
    spare: Vec<RawEvent>,
    /// Events that threads wait for without the lock, one entry per waiter. Such an event must not be recorded again
    /// before the wait ends, or the thread would wait for later work too.
    awaited: Vec<RawEvent>,
    /// Owner and ticket of the event that covers memory which was free when the second stream opened: pages under that
    /// memory must not move before the event has completed.
    bridge: Option<(u32, u64)>,
    /// Number of events recorded so far.
    recorded: u64,
}

impl<B: Backend> Clone for Fences<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: Backend> Fences<B> {
    pub(crate) fn new(backend: Arc<B>, health: Arc<DeviceHealth>) -> Self {
        let table =
            EventTable { by_owner: BTreeMap::new(), spare: Vec::new(), awaited: Vec::new(), bridge: None, recorded: 0 };
        let (sole, dirty, table) = (Arc::new(AtomicU32::new(NO_STREAM)), AtomicBool::new(false), Mutex::new(table));
        Self(Arc::new(FencesShared { backend, health, sole, dirty, table }))
    }

    /// Locks the table. It is consistent between any two calls, so it is used even after a thread panicked with the
    /// lock.
    fn table(&self) -> MutexGuard<'_, EventTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn is_sole(&self, owner: Owner) -> bool {
        self.0.sole.load(Ordering::Relaxed) == owner.0
    }

    /// The owner of the only stream, or [`NO_STREAM`].
    pub(crate) fn sole(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.0.sole)
    }

    /// Number of events recorded so far.
    pub(crate) fn events(&self) -> u64 {
        self.table().recorded
    }

    /// Registers a stream, before it uses the device's memory.
    ///
    /// # Errors
    /// The driver's error, if the stream cannot be made to wait for the earlier ones; it is then not registered.
    pub(crate) fn open(&self, owner: Owner, raw: RawStream) -> Result<(), Fault> {
        let mut table = self.table();
        self.reap(&mut table);
        if table.by_owner.is_empty() && table.bridge.is_none() {
            self.0.sole.store(owner.0, Ordering::Relaxed);
        } else {
            self.join(&mut table, raw)?;
        }
        table.by_owner.insert(owner.0, StreamEvents::new(raw));
        Ok(())
    }

    /// Makes a new stream wait for earlier work that may still use memory which is free now.
    fn join(&self, table: &mut EventTable, raw: RawStream) -> Result<(), Fault> {
        let first = self.0.sole.load(Ordering::Relaxed);
        if first != NO_STREAM && self.0.dirty.load(Ordering::Relaxed) {
            let ticket = table.next(first);
            self.record_event(table, first)?;
            table.bridge = Some((first, ticket));
        }
        // SAFETY: the caller that opens a stream holds it.
        let captured = || unsafe { self.0.backend.is_capturing(raw) };
        if let Some((owner, ticket)) = table.bridge {
            match table.by_owner.get(&owner).and_then(|line| line.event(ticket)) {
                // A captured stream cannot wait for the event: the calling thread waits instead.
                Some(event) if captured()? => {
                    self.wait_event(event)?;
                    table.reached(owner, ticket);
                }
                // SAFETY: the caller holds the stream; the table destroys none of its events.
                Some(event) => unsafe { self.0.backend.order(raw, event) }?,
                // No event is pending for the ticket: its work is done, or this thread waits for it.
                None => self.wait_for(table, owner, ticket)?,
            }
        }
        self.0.dirty.store(false, Ordering::Relaxed);
        self.0.sole.store(NO_STREAM, Ordering::Relaxed);
        Ok(())
    }

    /// Closes a stream that is about to be destroyed: a last event covers its work.
    pub(crate) fn close(&self, owner: Owner) {
        let mut table = self.table();
        let last = table.next(owner.0);
        let covered = self.record_event(&mut table, owner.0);
        if self.is_sole(owner) {
            self.0.sole.store(NO_STREAM, Ordering::Relaxed);
            if self.0.dirty.swap(false, Ordering::Relaxed) {
                table.bridge = Some((owner.0, last));
            }
        }
        if let Some(line) = table.by_owner.get_mut(&owner.0) {
            if covered.is_err() {
                // The last event was refused. Count its ticket as recorded, so that `ask` and `event_of` wait for the
                // device.
                line.recorded += 1;
            }
            line.standing = StreamState::Closed;
        }
        self.reap(&mut table);
    }

    /// Notes that a capture begins or ends on the stream: in between, no event may be recorded on it or queried.
    pub(crate) fn capture(&self, owner: Owner, begins: bool) {
        if let Some(line) = self.table().by_owner.get_mut(&owner.0) {
            line.capturing = begins;
        }
    }

    /// Whether a stream is registered, and events can be recorded on it.
    pub(crate) fn is_open(&self, owner: Owner) -> bool {
        self.table().by_owner.get(&owner.0).is_some_and(StreamEvents::is_open)
    }

    /// For each stream, the ticket that covers all work put on it so far.
    pub(crate) fn everything(&self) -> Vec<(Owner, u64)> {
        let table = self.table();
        table.by_owner.keys().map(|&owner| (Owner(owner), table.next(owner))).collect()
    }

    /// The ticket that covers all work put on a stream so far, even while it is the only stream.
    pub(crate) fn ticket(&self, owner: Owner) -> u64 {
        self.table().next(owner.0)
    }

    /// Whether a stream has done the work up to a ticket, even while it is the only stream. With `wait`, waits for it.
    pub(crate) fn reached(&self, owner: Owner, ticket: u64, wait: bool) -> FenceState {
        if self.0.health.check().is_err() {
            return FenceState::Failed;
        }
        let mut table = self.table();
        if wait {
            // If the driver refuses twice, the ticket stays pending.
            let _ = insist(|| self.wait_for(&mut table, owner.0, ticket));
        } else {
            self.look(&mut table, owner.0, ticket);
        }
        self.reap(&mut table);
        if self.0.health.check().is_err() { FenceState::Failed } else { self.state(&table, owner, ticket) }
    }

    /// Records an event that covers a ticket if there is none; does not query it.
    pub(crate) fn cover(&self, owner: Owner, ticket: u64) {
        let mut table = self.table();
        if table.by_owner.get(&owner.0).is_some_and(|line| line.recorded < ticket) {
            // If the driver refuses, a later poll tries again.
            let _ = self.record_event(&mut table, owner.0);
        }
    }

    /// Records the next event of a stream.
    fn record_event(&self, table: &mut EventTable, owner: u32) -> Result<(), Fault> {
        let Some(&StreamEvents { raw, standing, .. }) = table.by_owner.get(&owner) else { return Ok(()) };
        match standing {
            StreamState::Open => {}
            StreamState::Denied => return self.wait_instead(table, owner),
            StreamState::Closed => return Ok(()),
        }
        if table.by_owner.get(&owner).is_some_and(|line| line.capturing) {
            return Err(Fault::of("record an event", FaultReason::Capturing));
        }
        let event = match table.unused() {
            Some(event) => event,
            None => self.0.backend.create_event().map_err(|fault| self.0.health.note(fault))?,
        };
        // SAFETY: a stream is closed here before it is destroyed, and this one is open; `EventTable` destroys no event.
        if let Err(fault) = unsafe { self.0.backend.record(event, raw) } {
            table.spare.push(event);
            return self.without_event(table, owner, raw, self.0.health.note(fault));
        }
        table.recorded += 1;
        if let Some(line) = table.by_owner.get_mut(&owner) {
            line.push(event);
        }
        Ok(())
    }

    /// Waits for an event of the table.
    fn wait_event(&self, event: RawEvent) -> Result<(), Fault> {
        // SAFETY: events of the table, spare and awaited ones too, are destroyed only with the last clone of
        // [`Fences`].
        unsafe { self.0.backend.wait(event) }.map_err(|fault| self.0.health.note(fault))
    }

    /// Whether an open stream has done all its work, so that no event is needed. False if the driver refuses: recording
    /// an event then shows why.
    fn is_idle(&self, table: &mut EventTable, owner: u32) -> bool {
        let Some(line) = table.by_owner.get_mut(&owner).filter(|line| line.is_open()) else { return false };
        // SAFETY: a stream is closed here before it is destroyed, and this one is open.
        let idle = unsafe { self.0.backend.is_idle(line.raw) }.unwrap_or(false);
        if idle {
            table.spare.extend(line.idle());
        }
        idle
    }

    /// Calls the driver once more: whether it denies again that the stream exists.
    fn is_denied(&self, raw: RawStream) -> bool {
        // SAFETY: the stream of an open entry: it is closed here before it is destroyed. If other code destroyed it
        // earlier, the driver was called with the same handle a moment ago, to record an event.
        let asked = unsafe { self.0.backend.is_idle(raw) };
        asked.is_err_and(|fault| fault.reason == FaultReason::BadHandle)
    }

    /// Queries the stream's events, oldest first, up to one that has not completed. For a closed stream whose last
    /// event was refused and which has no other, waits for the whole device.
    fn ask(&self, table: &mut EventTable, owner: u32) {
        if let Some(line) = table.by_owner.get(&owner)
            && line.is_closed()
            && line.oldest().is_none()
            && !line.is_idle()
        {
            let recorded = line.recorded;
            if self.wait_for_all(table).is_ok() {
                table.reached(owner, recorded);
            }
            return;
        }
        while let Some((ticket, event)) = table.by_owner.get(&owner).and_then(StreamEvents::oldest) {
            // SAFETY: an event of the table, which destroys none of its events.
            match unsafe { self.0.backend.query(event) } {
                Ok(true) => table.reached(owner, ticket),
                Ok(false) => return,
                Err(fault) => {
                    self.0.health.note(fault);
                    return;
                }
            }
        }
    }

    /// Removes closed streams that are done; if one open stream remains alone, it becomes the only one and needs no
    /// events.
    fn reap(&self, table: &mut EventTable) {
        let closed: Vec<u32> =
            table.by_owner.iter().filter(|(_, line)| line.is_closed()).map(|(&owner, _)| owner).collect();
        for owner in closed {
            if !table.by_owner.get(&owner).is_some_and(|line| line.capturing) {
                self.ask(table, owner);
            }
            if table.by_owner.get(&owner).is_some_and(StreamEvents::is_idle) {
                table.by_owner.remove(&owner);
            }
        }
        if table.bridge.is_some_and(|(owner, ticket)| table.is_done(owner, ticket)) {
            table.bridge = None;
        }
        let mut left = table.by_owner.iter();
        if let (Some((&owner, line)), None, None) = (left.next(), left.next(), table.bridge)
            && line.is_open()
            && self.0.sole.load(Ordering::Relaxed) == NO_STREAM
        {
            // Blocks that wait for the remaining stream's own fences become free for it at once; its work may still use
            // them.
            self.0.dirty.store(true, Ordering::Relaxed);
            self.0.sole.store(owner, Ordering::Relaxed);
        }
    }

    fn state(&self, table: &EventTable, owner: Owner, ticket: u64) -> FenceState {
        if table.is_done(owner.0, ticket) { FenceState::Ready } else { FenceState::Pending }
    }
}

impl EventTable {
    /// The ticket of a stream's next event.
    fn next(&self, owner: u32) -> u64 {
        self.by_owner.get(&owner).map_or(0, StreamEvents::next)
    }

    /// Whether all work up to a ticket is done. For a stream that is not in the table, it is.
    fn is_done(&self, owner: u32, ticket: u64) -> bool {
        self.by_owner.get(&owner).is_none_or(|line| line.done >= ticket)
    }

    /// Takes a spare event that no thread waits for.
    fn unused(&mut self) -> Option<RawEvent> {
        let at = self.spare.iter().rposition(|event| !self.awaited.contains(event))?;
        Some(self.spare.swap_remove(at))
    }

    /// Removes one of an event's waiters from `awaited`.
    fn let_go(&mut self, event: RawEvent) {
        if let Some(at) = self.awaited.iter().position(|awaited| *awaited == event) {
            self.awaited.swap_remove(at);
        }
    }

    /// Marks all work of a stream up to a ticket as done; its events become spare.
    fn reached(&mut self, owner: u32, ticket: u64) {
        if let Some(line) = self.by_owner.get_mut(&owner) {
            self.spare.extend(line.reached(ticket));
        }
    }
}

impl<B: Backend> Drop for FencesShared<B> {
    fn drop(&mut self) {
        if self.health.forked() {
            return;
        }
        let table = self.table.get_mut().unwrap_or_else(PoisonError::into_inner);
        let waiting = table.by_owner.values_mut().flat_map(|line| line.reached(u64::MAX));
        for event in waiting.chain(table.spare.drain(..)) {
            // SAFETY: `by_owner` and `spare` hold each event once; the last clone is dropped. A refused call destroyed
            // nothing.
            let _ = insist(|| unsafe { self.backend.destroy_event(event) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EventTable, RawEvent};
    use std::collections::BTreeMap;

    #[test]
    fn an_event_that_a_thread_waits_for_is_not_recorded_again() {
        let [free, waited] = [RawEvent(1), RawEvent(2)];
        let (spare, awaited) = (vec![free, waited], vec![waited, waited]);
        let mut table = EventTable { by_owner: BTreeMap::new(), spare, awaited, bridge: None, recorded: 0 };
        assert_eq!((table.unused(), table.unused()), (Some(free), None));
        table.let_go(waited);
        assert_eq!(table.unused(), None, "of two waits one is left");
        table.let_go(waited);
        assert_eq!(table.unused(), Some(waited));
    }
}
