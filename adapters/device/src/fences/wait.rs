//! Waiting for streams.
//!
//! Promises upward: what was waited for is known to be done. A caller that moves or unmaps memory keeps the lock while it waits
//! (`wait_for`); one that only needs memory to come free waits without the lock (`wait_outside`).
//! Asks from below: `Fences::wait_event`, [`Backend::synchronize`].

use super::stream_events::StreamState;
use super::{EventTable, Fences, NO_STREAM};
use crate::backend::{Backend, RawEvent, RawStream};
use crate::fault::{Fault, FaultReason};
use crate::health::insist;
use std::sync::atomic::Ordering;
use terrace_core::Owner;

impl<B: Backend> Fences<B> {
    /// Waits until nothing is in flight on memory that is free: before pages under it move or go.
    ///
    /// # Errors
    /// The driver's; a fault for [`FaultReason::Capturing`] while the stream to wait for is captured.
    pub(crate) fn quiesce(&self) -> Result<(), Fault> {
        let mut table = self.table();
        if let Some((owner, ticket)) = table.bridge {
            self.wait_for(&mut table, owner, ticket)?;
            table.bridge = None;
        }
        let sole = self.0.sole.load(Ordering::Relaxed);
        if sole != NO_STREAM && self.0.dirty.load(Ordering::Relaxed) {
            let ticket = table.next(sole);
            self.wait_for(&mut table, sole, ticket)?;
            self.0.dirty.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Waits for everything that any stream was given: before the device itself goes.
    ///
    /// # Errors
    /// The driver's, twice for one stream: something may be in flight.
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

    /// Waits for a stream with the lock held: excludes all other calls of the fence.
    pub(super) fn wait_for(&self, table: &mut EventTable, owner: u32, ticket: u64) -> Result<(), Fault> {
        let Some(event) = self.event_of(table, owner, ticket)? else { return Ok(()) };
        self.wait_event(event)?;
        table.reached(owner, ticket);
        Ok(())
    }

    /// Waits for a stream's ticket without the lock: other threads free, allocate and poll meanwhile. If the driver refuses
    /// twice, the ticket stays pending.
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

    /// The event that covers a ticket, recorded if need be; `None` once everything up to the ticket is done. A closed stream whose
    /// last event was refused has none that covers its end: then the device is waited for.
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

    /// Handles a refused record. A stream that the driver does not know was destroyed by other code, if a second call agrees:
    /// one wrong answer must not free the memory of a live stream.
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

    /// Waits for the device, since no event can be recorded on the stream.
    pub(super) fn wait_instead(&self, table: &mut EventTable, owner: u32) -> Result<(), Fault> {
        self.wait_for_all(table)?;
        if let Some(line) = table.by_owner.get_mut(&owner) {
            table.spare.extend(line.idle());
        }
        Ok(())
    }

    /// Waits for the whole device; not while a graph is captured on any stream.
    pub(super) fn wait_for_all(&self, table: &EventTable) -> Result<(), Fault> {
        if table.by_owner.values().any(|line| line.capturing) {
            return Err(Fault::of("wait for the device", FaultReason::Capturing));
        }
        self.0.backend.synchronize().map_err(|fault| self.0.health.note(fault))
    }
}
