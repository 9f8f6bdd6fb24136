//! The manager's state under its one lock; performs the ledger's actions.
//!
//! Promises upward: `handle` hands an event to the ledger and performs all immediate actions before the lock is
//! released; slow actions are tasks, which report how they ended.
//! Asks from below: the ledger; lease words.
//!
//! Invariant: `busy` holds the buffers whose bytes or copies change other than by a migration: those being allocated,
//! or written in files. Their lease status is reported as leased.

use super::ManagerShared;
use super::buffer_state::{BufferState, TierCopy};
use super::durable::MAX_NAME_BYTES;
use super::error::Error;
use super::lease_word::{is_replicating, lease_status};
use super::pending_frees::PendingFrees;
use super::suspension::Suspension;
use super::tombstones::Tombstones;
use super::types::MoveStats;
use crate::ledger::{Action, BufferId, CopyOutcome, LeaseStatus, Ledger, LedgerEvent, Medium, Rejected};
use futures_channel::oneshot;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use terrace_core::pressure::Level;
use terrace_core::residence::Tier;

/// Sends the end of a move to a caller that waits for it.
pub(super) type MoveWaiter = oneshot::Sender<Result<bool, Error>>;

/// A caller that waits for the answer to its allocation request.
pub(super) struct AllocationWaiter {
    pub name: Option<(String, u64)>,
    pub chunk: usize,
    /// Bytes of the buffer's metadata.
    pub metadata_bytes: u64,
    /// Sends the buffer, or the reason why there is none, to the caller.
    pub sender: oneshot::Sender<Result<Arc<BufferState>, Error>>,
}

/// Most copies to files in progress: more than disks perform at once, and the tasks of so many take less than a MiB.
/// They wait for no other copy, so those in the queue begin.
const FILE_COPIES: usize = 256;

/// Copies to files.
#[derive(Debug, Default)]
pub(super) struct FileCopies {
    pub in_progress: usize,
    /// Those that have not begun: leases of their buffers are still granted.
    waiting: VecDeque<(BufferId, Tier, Tier)>,
}

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
    requested: BTreeSet<BufferId>,
    /// A buffer for which the ledger's next report is about an earlier move request, for which no caller waits any
    /// more.
    stale: Option<BufferId>,
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

    fn grant(&mut self, shared: &Arc<ManagerShared>, ticket: u64, id: BufferId, tier: Tier) -> Option<LedgerEvent> {
        let bytes = self.ledger.view(id).map_or(0, |view| view.bytes);
        let Some(waiter) = self.allocations.remove(&ticket) else { return Some(LedgerEvent::Free { id }) };
        let mut buffer = BufferState::new(id, bytes, waiter.chunk, waiter.name);
        buffer.metadata_bytes = waiter.metadata_bytes;
        let buffer = Arc::new(buffer);
        if let Some(name) = buffer.name() {
            self.names.insert(name.into(), Some(id));
        }
        self.buffers.insert(id, Arc::clone(&buffer));
        match shared.medium(tier) {
            Medium::File => {
                buffer.copies().put(tier, TierCopy::Pieces(vec![None; buffer.chunks(0, bytes).len()]));
                // If no caller waits any more, the buffer is freed.
                waiter.sender.send(Ok(buffer)).err().map(|_| LedgerEvent::Free { id })
            }
            Medium::Memory | Medium::Device => match shared.blank_copy(tier, bytes) {
                Some(copy) => {
                    buffer.copies().put(tier, copy);
                    waiter.sender.send(Ok(buffer)).err().map(|_| LedgerEvent::Free { id })
                }
                None => {
                    self.busy.insert(id);
                    shared.allocate_memory(buffer, tier, waiter.sender);
                    None
                }
            },
        }
    }

    /// Begins copies to files that wait, as many as may be in progress; returns the ends of those that cannot begin.
    fn begin_file_copies(&mut self, shared: &Arc<ManagerShared>) -> Vec<LedgerEvent> {
        let mut ends = Vec::new();
        while self.file_copies.in_progress < FILE_COPIES
            && let Some((id, from, to)) = self.file_copies.waiting.pop_front()
        {
            match self.begin_copy(shared, id, from, to) {
                Some(end) => ends.push(end),
                None => self.file_copies.in_progress += 1,
            }
        }
        ends
    }

    fn begin_copy(&mut self, shared: &Arc<ManagerShared>, id: BufferId, from: Tier, to: Tier) -> Option<LedgerEvent> {
        let busy = LedgerEvent::CopyEnded { id, from, to, outcome: CopyOutcome::Leased };
        let Some(buffer) = self.buffers.get(&id).cloned() else { return Some(busy) };
        if self.busy.contains(&id) {
            return Some(busy);
        }
        // If the lease word cannot be closed, as others read, a replication can still be made under a shared lease: it
        // only reads.
        if !(self.close(&buffer) || is_replicating(&self.waiters, id) && buffer.begin_shared_copy()) {
            return Some(busy);
        }
        shared.copy(buffer, from, to);
        None
    }

    /// Passes a move request to the ledger.
    ///
    /// # Errors
    /// [`Error::Leased`] while a lease is held that the request would wait for; [`Error::Freed`].
    pub(super) fn request_move(
        &mut self,
        shared: &Arc<ManagerShared>,
        buffer: &BufferState,
        event: LedgerEvent,
    ) -> Result<(), Error> {
        if buffer.is_freed() {
            self.waiters.remove(&buffer.id);
            return Err(Error::Freed);
        }
        let status_of = lease_status(&self.buffers, &self.busy, buffer.id, is_replicating(&self.waiters, buffer.id));
        if status_of == LeaseStatus::Leased && !self.busy.contains(&buffer.id) {
            self.waiters.remove(&buffer.id);
            return Err(Error::Leased);
        }
        // The ledger may still have an earlier request, whose callers were already told that its copy failed. It
        // reports the end of that one first.
        let before = !self.requested.insert(buffer.id);
        self.stale = before.then_some(buffer.id);
        let requested = self.handle(shared, event);
        self.stale = None;
        requested.map_err(|rejected| {
            // The ledger has changed nothing: an earlier request is still pending.
            if !before {
                self.requested.remove(&buffer.id);
            }
            self.waiters.remove(&buffer.id);
            rejected.into()
        })
    }

    /// Fails the callers that wait for a buffer's move with [`Error::Leased`], since the lease may be their own. If the
    /// lease may be a call's, they keep waiting: it ends soon.
    fn refuse_leased_waiters(&mut self, id: BufferId) {
        let leased = |buffer: &Arc<BufferState>| !buffer.had_call_since(buffer.ended_calls()) && buffer.lease.is_held();
        if !self.busy.contains(&id) && self.buffers.get(&id).is_some_and(leased) {
            self.settled(id, &Err(Error::Leased));
        }
    }

    /// Frees a buffer.
    ///
    /// # Errors
    /// [`Rejected::Leased`]; [`Rejected::Stale`] if it was freed already.
    pub(super) fn free(&mut self, shared: &Arc<ManagerShared>, buffer: &BufferState) -> Result<(), Rejected> {
        let moving = self.ledger.view(buffer.id)?.moving;
        // The lease word is closed first, so that no lease is granted from now on; a migration in progress has closed
        // it already. A copy made while others read has not closed it: then the buffer cannot be freed yet.
        if buffer.has_shared_copy() || (!moving && !self.close(buffer)) {
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
    fn close(&mut self, buffer: &BufferState) -> bool {
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
        // The ledger has checked that no lease is held; the closed word grants none from now on.
        self.close(&buffer);
        buffer.freed.store(true, Ordering::Release);
        self.pending_frees.add(buffer.copies().clear());
        self.busy.remove(&id);
        self.metadata -= buffer.metadata_bytes;
        self.forget_name(buffer.name());
        self.settled(id, &Err(Error::Freed));
        buffer.notify_changed();
    }

    /// Reserves a name and an object number in the store.
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::BadName`].
    pub(super) fn claim_name(&mut self, name: String) -> Result<(String, u64), Error> {
        if name.is_empty() || name.len() > MAX_NAME_BYTES {
            return Err(Error::BadName { bytes: name.len(), most: MAX_NAME_BYTES });
        }
        if self.names.contains_key(&name) {
            return Err(Error::NameTaken(name));
        }
        self.names.insert(name.clone(), None);
        self.next_object += 1;
        Ok((name, self.next_object - 1))
    }

    fn forget_name(&mut self, name: Option<&str>) {
        if let Some(name) = name {
            self.names.remove(name);
        }
    }

    /// Reports the end of a buffer's move to all its waiters.
    pub(super) fn settled(&mut self, id: BufferId, outcome: &Result<bool, Error>) {
        let (_, waiters) = self.waiters.remove(&id).unwrap_or((LedgerEvent::Prefetch { id }, Vec::new()));
        for waiter in waiters {
            let _ = waiter.send(outcome.clone());
        }
    }

    /// Registers a waiter for the end of a buffer's move; the flag is true if no move of the buffer was requested
    /// before.
    pub(super) fn wait_for(
        &mut self,
        id: BufferId,
        event: LedgerEvent,
    ) -> (oneshot::Receiver<Result<bool, Error>>, bool) {
        let (sender, outcome) = oneshot::channel();
        let first = !self.waiters.contains_key(&id);
        self.waiters.entry(id).or_insert((event, Vec::new())).1.push(sender);
        (outcome, first)
    }

    /// Whether callers wait for exactly this move of a buffer.
    pub(super) fn waits_for(&self, id: BufferId, event: LedgerEvent) -> bool {
        self.waiters.get(&id).is_some_and(|(wanted, _)| *wanted == event)
    }

    /// Registers an allocation request; returns its ticket.
    pub(super) fn ticket(&mut self, waiter: AllocationWaiter) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.metadata += waiter.metadata_bytes;
        self.allocations.insert(ticket, waiter);
        ticket
    }

    /// Removes an allocation request that gets no buffer; its name can be used again.
    pub(super) fn dismiss(&mut self, ticket: u64) -> Option<AllocationWaiter> {
        let waiter = self.allocations.remove(&ticket)?;
        self.metadata -= waiter.metadata_bytes;
        self.forget_name(waiter.name.as_ref().map(|(name, _)| name.as_str()));
        Some(waiter)
    }
}
