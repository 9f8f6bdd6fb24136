//! Waiting for streams.
//!
//! Promises upward: when a wait succeeds, the work is done. A caller that moves or unmaps memory keeps the lock while
//! it waits (`wait_for`); one that only needs memory to become free waits without the lock (`wait_outside`).
//! A call inside [`without_waiting`] waits for nothing: what it would have to wait for counts as pending, or is refused.
//! Asks from below: `Fences::wait_event`, [`Backend::synchronize`].

use super::stream_events::StreamState;
use super::{EventTable, Fences, NO_STREAM};
use crate::backend::{Backend, RawEvent, RawStream};
use crate::fault::{Fault, FaultReason};
use crate::health::insist;
use std::cell::Cell;
use std::sync::atomic::Ordering;
use terrace_core::Owner;

thread_local! {
    static MAY_WAIT: Cell<bool> = const { Cell::new(true) };
}

/// Restores on drop, also by a panic, whether this thread may wait.
struct WaitGuard(bool);

impl Drop for WaitGuard {
    fn drop(&mut self) {
        MAY_WAIT.set(self.0);
    }
}

/// Makes a call during which this thread waits for no stream.
pub(crate) fn without_waiting<R>(call: impl FnOnce() -> R) -> R {
    let _before = WaitGuard(MAY_WAIT.replace(false));
    call()
}

/// Calls something that may wait whatever the caller may: the user's code.
pub(crate) fn with_waiting<R>(call: impl FnOnce() -> R) -> R {
    let _before = WaitGuard(MAY_WAIT.replace(true));
    call()
}

/// Whether this thread may wait for streams.
pub(crate) fn may_wait() -> bool {
    MAY_WAIT.get()
}

impl<B: Backend> Fences<B> {
    /// Waits until no work in flight uses free memory: must precede moving or unmapping pages under it.
    ///
    /// # Errors
    /// The driver's error; [`FaultReason::Capturing`] while a graph is captured on the stream to wait for;
    /// [`FaultReason::Transient`] where this thread may not wait.
    pub(crate) fn quiesce(&self) -> Result<(), Fault> {
        let mut table = self.table();
        if let Some((owner, ticket)) = table.bridge {
            self.wait_if_allowed(&mut table, owner, ticket)?;
            table.bridge = None;
        }
        let sole = self.0.sole.load(Ordering::Relaxed);
        if sole != NO_STREAM && self.0.dirty.load(Ordering::Relaxed) {
            let ticket = table.next(sole);
            if let Err(fault) = self.wait_if_allowed(&mut table, sole, ticket) {
                // Where this thread may not wait, the next call looks for this event, not for a newer one; later frees count anew.
                let recorded = table.by_owner.get(&sole).is_some_and(|line| line.event(ticket).is_some());
                if !may_wait() && recorded {
                    table.bridge = Some((sole, ticket));
                    self.0.dirty.store(false, Ordering::Relaxed);
                }
                return Err(fault);
            }
            self.0.dirty.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Waits for all work of all streams, before the pool is dropped.
    ///
    /// # Errors
    /// The driver's error, if it refused twice for one stream: work may still be in flight.
    pub(crate) fn finish(&self) -> Result<(), Fault> {
        let mut table = self.table();
        let owners: Vec<u32> = table.by_owner.keys().copied().collect();
        for owner in owners {
            let ticket = table.next(owner);
            insist(|| self.wait_for(&mut table, owner, ticket))?;
        }
        self.0.dirty.store(false, Ordering::Relaxed);
        table.bridge = None;
        Ok(())
    }

    /// Whether [`Self::quiesce`] has nothing to wait for.
    pub(crate) fn is_quiet(&self) -> bool {
        let dirty = self.0.sole.load(Ordering::Relaxed) != NO_STREAM && self.0.dirty.load(Ordering::Relaxed);
        !dirty && self.table().bridge.is_none()
    }

    /// Queries how far a stream is, if it is not known to have reached a ticket.
    pub(super) fn look(&self, table: &mut EventTable, owner: u32, ticket: u64) {
        if table.by_owner.get(&owner).is_none_or(|line| line.capturing || line.done >= ticket) {
            return;
        }
        if table.by_owner.get(&owner).is_some_and(|line| line.recorded < ticket) && !self.is_idle(table, owner) {
            // If the driver refuses, the next poll tries again.
            let _ = self.record_event(table, owner);
        }
        self.ask(table, owner);
    }

    /// As [`Self::wait_for`]; where this thread may not wait, fails if the ticket is not reached yet.
    fn wait_if_allowed(&self, table: &mut EventTable, owner: u32, ticket: u64) -> Result<(), Fault> {
        if may_wait() {
            return self.wait_for(table, owner, ticket);
        }
        self.look(table, owner, ticket);
        let pending = || Fault::of("wait for a stream", FaultReason::Transient);
        if table.is_done(owner, ticket) { Ok(()) } else { Err(pending()) }
    }

    /// Waits for a stream's ticket with the lock held, which excludes all other calls of the fences.
    pub(super) fn wait_for(&self, table: &mut EventTable, owner: u32, ticket: u64) -> Result<(), Fault> {
        let Some(event) = self.event_of(table, owner, ticket)? else { return Ok(()) };
        self.wait_event(event)?;
        table.reached(owner, ticket);
        Ok(())
    }

    /// Waits for a stream's ticket without the lock: other threads may free, allocate and poll during the wait. If the
    /// driver refuses twice, the ticket stays pending.
    pub(crate) fn wait_outside(&self, owner: Owner, ticket: u64) {
        if self.0.health.check().is_ok() {
            let _ = insist(|| self.wait_unlocked(owner.0, ticket));
        }
    }

    fn wait_unlocked(&self, owner: u32, ticket: u64) -> Result<(), Fault> {
        let mut table = self.table();
        let Some(event) = self.event_of(&mut table, owner, ticket)? else { return Ok(()) };
        table.awaited.push(event);
        drop(table);
        let waited = self.wait_event(event);
        let mut table = self.table();
        table.let_go(event);
        waited?;
        table.reached(owner, ticket);
        Ok(())
    }

    /// The event that covers a ticket, recorded now if need be; `None` once all work up to the ticket is done. If no
    /// event can cover it (the last event of a closed stream was refused), waits for the whole device.
    fn event_of(&self, table: &mut EventTable, owner: u32, ticket: u64) -> Result<Option<RawEvent>, Fault> {
        let Some(line) = table.by_owner.get(&owner) else { return Ok(None) };
        if line.done >= ticket {
            return Ok(None);
        }
        if line.capturing {
            return Err(Fault::of("wait for a stream", FaultReason::Capturing));
        }
        if line.recorded < ticket {
            self.record_event(table, owner)?;
        }
        let event = table.by_owner.get(&owner).and_then(|line| line.event(ticket));
        if event.is_none() && !table.is_done(owner, ticket) {
            self.wait_for_all(table)?;
            table.reached(owner, ticket);
        }
        Ok(event)
    }

    /// Handles the driver's refusal to record an event. If a second call also denies that the stream exists, other code
    /// has destroyed it; a single wrong answer must not free memory that a live stream uses.
    pub(super) fn without_event(
        &self,
        table: &mut EventTable,
        owner: u32,
        raw: RawStream,
        fault: Fault,
    ) -> Result<(), Fault> {
        if fault.reason != FaultReason::BadHandle || !self.is_denied(raw) {
            return Err(fault);
        }
        if let Some(line) = table.by_owner.get_mut(&owner) {
            line.standing = StreamState::Denied;
        }
        self.wait_instead(table, owner)
    }

    /// Waits for the whole device, since no event can be recorded on the stream.
    pub(super) fn wait_instead(&self, table: &mut EventTable, owner: u32) -> Result<(), Fault> {
        self.wait_for_all(table)?;
        if let Some(line) = table.by_owner.get_mut(&owner) {
            table.spare.extend(line.idle());
        }
        Ok(())
    }

    /// Waits for the whole device; fails while a graph is captured on any stream.
    pub(super) fn wait_for_all(&self, table: &EventTable) -> Result<(), Fault> {
        if table.by_owner.values().any(|line| line.capturing) {
            return Err(Fault::of("wait for the device", FaultReason::Capturing));
        }
        self.0.backend.synchronize().map_err(|fault| self.0.health.note(fault))
    }
}
