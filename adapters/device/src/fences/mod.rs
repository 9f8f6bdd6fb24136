//! When memory freed on one stream may be used on another: events of the driver, asked for as rarely as can be.
//!
//! Promises upward: a free costs no driver call; an event is recorded at a poll or wait, one for all that a
//! stream freed until then; while a device has a single stream there are no events at all.
//! Asks from below: a stream does its work in order; [`Backend::record`], [`query`](Backend::query),
//! [`wait`](Backend::wait), [`order`](Backend::order).
//!
//! ```text
//!   one stream      free ──► range at once: the next request is on the same stream
//!   a second one    is made to wait for the first (on the device), once: what is free now is free for both
//!   many            free ──► waits with a ticket ──► poll: an event, asked ──► range
//! ```
//!
//! Tickets count a stream's events: a free gets the number of the next event, which is recorded by the first poll that needs
//! it. It may cover more than the free, never less.

mod check;
mod fence;
mod stream_events;
mod wait;

use crate::backend::{Backend, RawEvent, RawStream};
use crate::fault::{Fault, FaultReason};
use crate::health::{DeviceHealth, insist};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stream_events::{StreamEvents, StreamState};
use terrace_core::{FenceState, Owner};

/// No stream is the only one.
const NO_STREAM: u32 = u32::MAX;

/// The fence of everything on one device. Clones are the same.
pub(crate) struct Fences<B: Backend>(Arc<FencesShared<B>>);

struct FencesShared<B: Backend> {
    backend: Arc<B>,
    health: Arc<DeviceHealth>,
    /// The only stream, as long as there is one and no other's work is in flight; changed with `table` locked.
    sole: Arc<AtomicU32>,
    /// Whether the only stream freed memory since it was last waited for: its work may still write to free memory.
    dirty: AtomicBool,
    table: Mutex<EventTable>,
}

struct EventTable {
    /// Streams that are open, or closed with work in flight. One that is not here has done everything.
    by_owner: BTreeMap<u32, StreamEvents>,
    /// Events that no ticket needs, to be recorded again.
    spare: Vec<RawEvent>,
    /// Events that threads wait for without the lock, once for each waiter: not recorded anew meanwhile, or the wait
    /// would be for what came after.
    awaited: Vec<RawEvent>,
    /// The event that covers what was free when the second stream came: pages under it may not move before.
    bridge: Option<(u32, u64)>,
    /// Events recorded so far.
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

    /// The table is consistent between any two calls, so what a panicking thread left is.
    fn table(&self) -> MutexGuard<'_, EventTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn is_sole(&self, owner: Owner) -> bool {
        self.0.sole.load(Ordering::Relaxed) == owner.0
    }

    /// The owner of the only stream, as long as there is one.
    pub(crate) fn sole(&self) -> Arc<AtomicU32> {
        Arc::clone(&self.0.sole)
    }

    /// Events recorded so far.
    pub(crate) fn events(&self) -> u64 {
        self.table().recorded
    }

    /// A stream begins to use the device's memory.
    ///
    /// # Errors
    /// The driver's, when the stream cannot be made to wait for the others; it is not known here then.
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

    /// Makes a new stream wait for the work that may still use memory that is free now.
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
                // A captured stream cannot wait for it: the host does.
                Some(event) if captured()? => {
                    self.wait_event(event)?;
                    table.reached(owner, ticket);
                }
                // SAFETY: as above; the table destroys none of its events.
                Some(event) => unsafe { self.0.backend.order(raw, event) }?,
                // No event stands for it: it is done, or the host waits.
                None => self.wait_for(table, owner, ticket)?,
            }
        }
        self.0.dirty.store(false, Ordering::Relaxed);
        self.0.sole.store(NO_STREAM, Ordering::Relaxed);
        Ok(())
    }

    /// Closes a stream that is about to be destroyed: one last event covers its work.
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
                // No event covers its end: `ask` and `event_of` wait for the device instead.
                line.recorded += 1;
            }
            line.standing = StreamState::Closed;
        }
        self.reap(&mut table);
    }

    /// Records that a capture begins or ends on the stream: no event may be recorded or queried meanwhile.
    pub(crate) fn capture(&self, owner: Owner, begins: bool) {
        if let Some(line) = self.table().by_owner.get_mut(&owner.0) {
            line.capturing = begins;
        }
    }

    /// Whether a stream is known and work can be put on it.
    pub(crate) fn is_open(&self, owner: Owner) -> bool {
        self.table().by_owner.get(&owner.0).is_some_and(StreamEvents::is_open)
    }

    /// Tickets that cover everything on the device so far.
    pub(crate) fn everything(&self) -> Vec<(Owner, u64)> {
        let table = self.table();
        table.by_owner.keys().map(|&owner| (Owner(owner), table.next(owner))).collect()
    }

    /// The ticket that covers everything a stream did so far, also while it is the only one.
    pub(crate) fn ticket(&self, owner: Owner) -> u64 {
        self.table().next(owner.0)
    }

    /// Whether the driver has reached a stream's ticket, also while the stream is the only one. With `wait`, waits for it.
    pub(crate) fn reached(&self, owner: Owner, ticket: u64, wait: bool) -> FenceState {
        if self.0.health.check().is_err() {
            return FenceState::Failed;
        }
        let mut table = self.table();
        if wait {
            // Refused twice: the block waits on.
            let _ = insist(|| self.wait_for(&mut table, owner.0, ticket));
        } else if table.by_owner.get(&owner.0).is_some_and(|line| !line.capturing && line.done < ticket) {
            if table.by_owner.get(&owner.0).is_some_and(|line| line.recorded < ticket)
                && !self.is_idle(&mut table, owner.0)
            {
                // Refused: it is asked for again at the next poll.
                let _ = self.record_event(&mut table, owner.0);
            }
            self.ask(&mut table, owner.0);
        }
        self.reap(&mut table);
        if self.0.health.check().is_err() { FenceState::Failed } else { self.state(&table, owner, ticket) }
    }

    /// Records an event that covers a ticket if there is none; does not query it.
    pub(crate) fn cover(&self, owner: Owner, ticket: u64) {
        let mut table = self.table();
        if table.by_owner.get(&owner.0).is_some_and(|line| line.recorded < ticket) {
            // Refused: as in `reached`.
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
        // SAFETY: events of the table, spare and awaited ones among them, are destroyed with the last clone of the fence.
        unsafe { self.0.backend.wait(event) }.map_err(|fault| self.0.health.note(fault))
    }

    /// Whether an open stream has done everything: then no event is needed. Refused: an event is asked, which says more.
    fn is_idle(&self, table: &mut EventTable, owner: u32) -> bool {
        let Some(line) = table.by_owner.get_mut(&owner).filter(|line| line.is_open()) else { return false };
        // SAFETY: a stream is closed here before it is destroyed, and this one is open.
        let idle = unsafe { self.0.backend.is_idle(line.raw) }.unwrap_or(false);
        if idle {
            table.spare.extend(line.idle());
        }
        idle
    }

    /// Whether the driver denies, asked once more, that there is such a stream.
    fn is_denied(&self, raw: RawStream) -> bool {
        // SAFETY: the stream of an open line: closed here before it is destroyed. If its maker destroyed it all the same, the
        // driver was asked for an event on it a moment ago.
        let asked = unsafe { self.0.backend.is_idle(raw) };
        asked.is_err_and(|fault| fault.reason == FaultReason::BadHandle)
    }

    /// Queries the stream's events, the oldest first, up to one that is not done. For a closed stream without events that is
    /// not done (its last event was refused), waits for the device.
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
            // SAFETY: an event of the table, which destroys none.
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

    /// Removes closed streams that are done; an open stream that is left alone becomes the only one and needs no events.
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
            // What waits for its own fences is free for it now, and may be in flight.
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

    /// Whether everything up to a ticket has happened, as it has on a stream that is forgotten.
    fn is_done(&self, owner: u32, ticket: u64) -> bool {
        self.by_owner.get(&owner).is_none_or(|line| line.done >= ticket)
    }

    /// Takes a spare event that no thread waits for.
    fn unused(&mut self) -> Option<RawEvent> {
        let at = self.spare.iter().rposition(|event| !self.awaited.contains(event))?;
        Some(self.spare.swap_remove(at))
    }

    /// Removes one waiter of an event.
    fn let_go(&mut self, event: RawEvent) {
        if let Some(at) = self.awaited.iter().position(|awaited| *awaited == event) {
            self.awaited.swap_remove(at);
        }
    }

    /// Marks a stream's events up to a ticket as done; they become spare.
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
            // SAFETY: `by_owner` and `spare` hold each event once; this was the last clone. A refused call destroyed nothing.
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
