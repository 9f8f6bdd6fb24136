//! The manager's state under its one lock; performs the ledger's actions.
//!
//! Promises upward: `handle` hands an event to the ledger and performs all immediate actions before the lock is
//! released; slow actions are tasks, which report how they ended.
//! Asks from below: the ledger; lease words.
//!
//! Invariant: `busy` holds the buffers whose bytes or copies change other than by a migration: those being allocated,
//! or written in files. Their lease status is reported as leased.

use super::ManagerShared;
use super::allocation::AllocationWaiter;
use super::buffer_state::BufferState;
use super::error::Error;
use super::lease_word::{is_replicating, lease_status};
use super::migration::FileCopies;
use super::move_request::MoveWaiter;
use super::pending_frees::PendingFrees;
use super::suspension::Suspension;
use super::tombstones::Tombstones;
use super::types::MoveStats;
use crate::ledger::{Action, BufferId, LeaseStatus, Ledger, LedgerEvent, Medium, Rejected};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use terrace_core::pressure::Level;
use terrace_core::residence::Tier;

/// The manager's state under its lock.
pub(super) struct State {
    pub ledger: Ledger,
    pub buffers: BTreeMap<BufferId, Arc<BufferState>>,
    pub busy: BTreeSet<BufferId>,
    /// Busy buffers whose last handle was dropped: freed as soon as they are no longer busy.
    pub freed_when_idle: BTreeSet<BufferId>,
    /// The mapped files that are buffers; entries of those that were unmapped remain for a while.
    pub mapped: Vec<Weak<BufferState>>,
    pub allocations: HashMap<u64, AllocationWaiter>,
    pub next_ticket: u64,
    pub ticks: u64,
    /// The requested move of each buffer, and the callers that wait for its end.
    pub waiters: HashMap<BufferId, (LedgerEvent, Vec<MoveWaiter>)>,
    /// Buffers with a move request whose end the ledger has not reported yet.
    pub requested: BTreeSet<BufferId>,
    /// A buffer for which the ledger's next report is about an earlier move request, for which no caller waits any
    /// more.
    pub stale: Option<BufferId>,
    /// Names in use, each with its buffer; `None` while the buffer is being allocated and has no id.
    pub names: BTreeMap<String, Option<BufferId>>,
    pub next_object: u64,
    pub tombstones: Tombstones,
    /// Total bytes of the buffers whose lease words are marked as counted.
    pub pinned: u64,
    /// Pressure levels to report once the lock is released.
    pub levels: Vec<(Tier, Level)>,
    pub pending_frees: PendingFrees,
    pub file_copies: FileCopies,
    pub moves: MoveStats,
    /// Upper limit of each tier's capacity in bytes.
    pub limits: Vec<u64>,
    /// The cause of each tier's suspension.
    pub suspensions: BTreeMap<Tier, Suspension>,
    /// The time of the last tick.
    pub now: u64,
    /// Bytes of metadata of all buffers and of all requests.
    pub metadata: u64,
    /// Bytes by which the capacity of the memory tier is reduced for metadata.
    pub metadata_deducted: u64,
    /// `unused`: bytes that lie unused between buffers in memory and reduce the memory tier's capacity. `fragmented`:
    /// whether there may be such bytes.
    pub unused: u64,
    pub fragmented: bool,
}

impl State {
    pub(super) fn new(ledger: Ledger, limits: Vec<u64>) -> Self {
        Self {
            ledger,
            buffers: BTreeMap::new(),
            busy: BTreeSet::new(),
            freed_when_idle: BTreeSet::new(),
            mapped: Vec::new(),
            allocations: HashMap::new(),
            next_ticket: 0,
            ticks: 0,
            waiters: HashMap::new(),
            requested: BTreeSet::new(),
            stale: None,
            names: BTreeMap::new(),
            next_object: 1,
            tombstones: Tombstones::default(),
            pinned: 0,
            levels: Vec::new(),
            pending_frees: PendingFrees::default(),
            file_copies: FileCopies::default(),
            moves: MoveStats::default(),
            limits,
            suspensions: BTreeMap::new(),
            now: 0,
            metadata: 0,
            metadata_deducted: 0,
            unused: 0,
            fragmented: false,
        }
    }

    /// Handles an event, and the events that its actions cause.
    pub(super) fn handle(&mut self, shared: &Arc<ManagerShared>, event: LedgerEvent) -> Result<(), Rejected> {
        let mut events = VecDeque::from([event]);
        let mut first = None;
        while let Some(event) = events.pop_front() {
            let mut actions = Vec::new();
            // A copy made while others read holds a shared lease itself. Release it first, so that the ledger does not
            // see the buffer as leased by its own copy.
            if let LedgerEvent::CopyEnded { id, .. } = event
                && self.buffers.get(&id).is_some_and(|buffer| buffer.end_shared_copy())
            {
                shared.notify_released(id);
            }
            let (buffers, busy, waiters, mut leased) = (&self.buffers, &self.busy, &self.waiters, Vec::new());
            let mut status_of = |id| {
                let status = lease_status(buffers, busy, id, is_replicating(waiters, id));
                leased.extend((status == LeaseStatus::Leased).then_some(id));
                status
            };
            let result = self.ledger.handle(event, &mut status_of, &mut actions);
            first.get_or_insert(result);
            leased.into_iter().for_each(|id| self.refuse_leased_waiters(id));
            for action in actions {
                events.extend(self.act(shared, action));
            }
            if let LedgerEvent::CopyEnded { id, .. } | LedgerEvent::DropEnded { id, .. } = event {
                self.moves.count(&event, self.buffers.get(&id).map_or(0, |buffer| buffer.bytes));
                self.migration_ended(shared, id);
                shared.moved.notify();
            }
            events.extend(self.metadata_resize(shared));
            events.extend(self.begin_file_copies(shared));
        }
        first.unwrap_or(Ok(()))
    }

    /// Performs an action; returns the event that follows if it completed at once.
    fn act(&mut self, shared: &Arc<ManagerShared>, action: Action) -> Option<LedgerEvent> {
        match action {
            Action::Grant { ticket, id, tier, .. } => self.grant(shared, ticket, id, tier),
            Action::Refuse { ticket, error } => {
                let waiter = self.dismiss(ticket)?;
                let _ = waiter.sender.send(Err(self.none_has_room(shared, error)));
                None
            }
            Action::Copy { id, from, to } if shared.medium(to) == Medium::File => {
                self.file_copies.waiting.push_back((id, from, to));
                None
            }
            Action::Copy { id, from, to } => self.begin_copy(shared, id, from, to),
            Action::Drop { id, tier } => {
                let done = self.drop_copy(id, tier);
                Some(LedgerEvent::DropEnded { id, tier, done })
            }
            Action::Forget { id } => {
                self.forget(id);
                None
            }
            Action::MoveFinished { id, satisfied, .. } => {
                if self.stale.take_if(|stale| *stale == id).is_none() {
                    self.requested.remove(&id);
                    self.settled(id, &self.ledger.view(id).map(|_| satisfied).map_err(Into::into));
                }
                None
            }
            Action::Pressure { tier, level } => {
                self.levels.push((tier, level));
                None
            }
        }
    }

    /// Frees a buffer.
    ///
    /// # Errors
    /// [`Rejected::Leased`]; [`Rejected::Stale`] if it was freed already.
    pub(super) fn free(&mut self, shared: &Arc<ManagerShared>, buffer: &BufferState) -> Result<(), Rejected> {
        self.ledger.view(buffer.id)?;
        // The lease word is closed first, so that no lease is granted from now on. A copy made while others read, or one
        // to files that has not begun, has not closed it: while a lease is held, the buffer cannot be freed yet.
        if buffer.has_shared_copy() || !self.close(buffer) {
            return Err(Rejected::Leased);
        }
        let freed = self.handle(shared, LedgerEvent::Free { id: buffer.id });
        if freed.is_err() {
            self.migration_ended(shared, buffer.id);
        }
        freed
    }

    /// Frees a buffer whose last handle was dropped, as soon as it is not busy.
    pub(super) fn handle_dropped(&mut self, shared: &Arc<ManagerShared>, id: BufferId) {
        if self.busy.contains(&id) {
            self.freed_when_idle.insert(id);
        } else {
            // The ledger rejects this if the buffer was freed already. No user holds a lease, as a lease borrows a
            // handle. A copy in progress ends before the buffer is forgotten.
            let _ = self.handle(shared, LedgerEvent::Free { id });
        }
    }

    /// Ends the time in which a buffer is busy: its lease word opens, and it may move again.
    pub(super) fn unclaim(&mut self, shared: &Arc<ManagerShared>, buffer: &BufferState) {
        self.busy.remove(&buffer.id);
        self.migration_ended(shared, buffer.id);
        let event = match self.freed_when_idle.remove(&buffer.id) {
            true => LedgerEvent::Free { id: buffer.id },
            false => LedgerEvent::Released { id: buffer.id },
        };
        let _ = self.handle(shared, event);
    }

    /// Closes the lease word of a buffer; returns false if a lease is held. Returns true also if the word is closed
    /// already, as during a migration or when only files have the bytes.
    pub(super) fn close(&mut self, buffer: &BufferState) -> bool {
        match buffer.lease.close() {
            Ok(counted) => {
                self.pinned -= if counted { buffer.weight() } else { 0 };
                true
            }
            Err(terrace_core::lease::LeaseError::Closed) => true,
            Err(_) => false,
        }
    }

    /// Opens a buffer's lease word again after a migration has ended, unless another migration has begun.
    pub(super) fn migration_ended(&mut self, shared: &ManagerShared, id: BufferId) {
        let (Some(buffer), Ok(view)) = (self.buffers.get(&id), self.ledger.view(id)) else { return };
        if view.moving {
            return;
        }
        let newest = |kind| shared.newest(&view.residence, kind);
        buffer.open(newest(Medium::Memory), newest(Medium::Device));
        buffer.notify_changed();
    }

    /// Drops a buffer's copy in a tier; returns false if the buffer is in use.
    fn drop_copy(&mut self, id: BufferId, tier: Tier) -> bool {
        let Some(buffer) = self.buffers.get(&id).cloned() else { return true };
        if self.busy.contains(&id) || !self.close(&buffer) {
            return false;
        }
        self.pending_frees.add(buffer.copies().take(tier));
        buffer.best.store(std::ptr::null_mut(), Ordering::Relaxed);
        true
    }

    fn forget(&mut self, id: BufferId) {
        let Some(buffer) = self.buffers.remove(&id) else { return };
        // No lease is held, as the last handle is gone or `free` has closed the word; it grants none from now on.
        let closed = self.close(&buffer);
        debug_assert!(closed, "{}: forgotten while it is leased", buffer.id);
        buffer.freed.store(true, Ordering::Release);
        self.pending_frees.add(buffer.copies().clear());
        self.busy.remove(&id);
        self.metadata -= buffer.metadata_bytes;
        self.forget_name(buffer.name());
        self.settled(id, &Err(Error::Freed));
        buffer.notify_changed();
    }
}
