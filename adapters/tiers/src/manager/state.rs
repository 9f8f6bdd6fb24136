//! The manager's state under its one lock; performs the ledger's actions.
//!
//! Promises upward: `handle` hands an event to the ledger and performs all immediate actions before the lock is
//! released; slow actions are tasks, which report how they ended.
//! Asks from below: the ledger; the phases and lease words of buffers.

use super::ManagerShared;
use super::allocation::AllocationWaiter;
use super::budget::TierBudget;
use super::buffer_state::BufferState;
use super::dormant::DormantBuffers;
use super::error::Error;
use super::lease_word::{Purpose, is_replicating, lease_status};
use super::migration::FileCopies;
use super::move_request::MoveWaiter;
use super::pending_frees::PendingFrees;
use super::phase::{BufferPhase, PhaseEvent};
use super::suspension::Suspension;
use super::tombstones::Tombstones;
use super::types::MoveStats;
use crate::ledger::{Action, BufferId, LeaseStatus, Ledger, LedgerEvent, Medium, Rejected};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use terrace_core::lease::LeaseError;
use terrace_core::pressure::Level;
use terrace_core::residence::Tier;
use terrace_file::Store;

/// The manager's state under its lock.
pub(super) struct State {
    pub ledger: Ledger,
    pub buffers: BTreeMap<BufferId, Arc<BufferState>>,
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
    /// Names of buffers and of requests for them; `None` while the buffer is being allocated and has no id.
    pub names: HashMap<Arc<str>, Option<BufferId>>,
    /// The durable buffers that no user has opened yet; their names are in use too.
    pub dormant: DormantBuffers,
    pub next_object: u64,
    pub tombstones: Tombstones,
    /// Total bytes of the buffers whose lease words are marked as counted.
    pub pinned: u64,
    /// Memory for the actions of one event: empty between calls.
    actions: Vec<Action>,
    /// Pressure levels to report once the lock is released.
    pub levels: Vec<(Tier, Level)>,
    pub pending_frees: PendingFrees,
    pub file_copies: FileCopies,
    pub moves: MoveStats,
    /// Upper limit of each tier's capacity in bytes.
    pub limits: Vec<u64>,
    /// What each tier may hold now, whatever its limit is.
    pub budgets: Vec<TierBudget>,
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
            mapped: Vec::new(),
            allocations: HashMap::new(),
            next_ticket: 0,
            ticks: 0,
            waiters: HashMap::new(),
            requested: BTreeSet::new(),
            stale: None,
            names: HashMap::new(),
            dormant: DormantBuffers::default(),
            next_object: 1,
            tombstones: Tombstones::default(),
            pinned: 0,
            actions: Vec::new(),
            levels: Vec::new(),
            pending_frees: PendingFrees::default(),
            file_copies: FileCopies::default(),
            moves: MoveStats::default(),
            budgets: vec![TierBudget::UNLIMITED; limits.len()],
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
        let mut events: SmallVec<[LedgerEvent; 4]> = SmallVec::from_iter([event]);
        let (mut first, mut handled) = (None, 0);
        let mut actions = std::mem::take(&mut self.actions);
        while let Some(&event) = events.get(handled) {
            handled += 1;
            if let LedgerEvent::CopyEnded { id, .. } = event
                && let Some(buffer) = self.buffers.get(&id)
            {
                // A copy beside readers has a brief lease. Release it first, so that the ledger does not see the buffer as
                // leased by its own copy.
                if buffer.phase.get() == BufferPhase::Replicating {
                    shared.release_shared(buffer, Purpose::Call);
                }
                buffer.phase.advance(PhaseEvent::End);
            }
            let (buffers, waiters, mut leased) = (&self.buffers, &self.waiters, Vec::new());
            let mut status_of = |id| {
                let status = lease_status(buffers, id, is_replicating(waiters, id));
                leased.extend((status == LeaseStatus::Leased).then_some(id));
                status
            };
            let result = self.ledger.handle(event, &mut status_of, &mut actions);
            first.get_or_insert(result);
            leased.into_iter().for_each(|id| self.refuse_leased_waiters(id));
            for action in actions.drain(..) {
                events.extend(self.act(shared, action));
            }
            if let LedgerEvent::CopyEnded { id, .. } | LedgerEvent::DropEnded { id, .. } = event {
                self.moves.count(&event, self.buffers.get(&id).map_or(0, |buffer| buffer.bytes));
                self.settle(shared, id);
                shared.moved.notify();
            }
            events.extend(self.metadata_resize(shared));
            events.extend(self.begin_file_copies(shared));
        }
        self.actions = actions;
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
                if let Some(buffer) = self.buffers.get(&id) {
                    buffer.phase.advance(PhaseEvent::Queue);
                }
                self.file_copies.waiting.push_back((id, from, to));
                None
            }
            Action::Copy { id, from, to } => self.begin_copy(shared, id, from, to),
            Action::Drop { id, tier } => {
                let done = self.drop_copy(id, tier);
                Some(LedgerEvent::DropEnded { id, tier, done })
            }
            Action::Forget { id } => {
                self.forget(shared, id);
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

    /// Frees a buffer; returns false if the caller must wait: for the end of a claim, or of brief leases.
    ///
    /// # Errors
    /// [`Rejected::Leased`]; [`Rejected::Stale`] if it was freed already.
    pub(super) fn free(&mut self, shared: &Arc<ManagerShared>, buffer: &BufferState) -> Result<bool, Rejected> {
        self.ledger.view(buffer.id)?;
        if buffer.phase.get().is_claimed() {
            return Ok(false);
        }
        // The lease word is closed first, so that no lease is granted from now on.
        match self.close(buffer) {
            Ok(()) => {}
            Err(LeaseError::Brief) => return Ok(false),
            Err(_) => return Err(Rejected::Leased),
        }
        let freed = self.handle(shared, LedgerEvent::Free { id: buffer.id });
        if freed.is_err() {
            self.settle(shared, buffer.id);
        }
        freed.map(|()| true)
    }

    /// Frees a buffer whose last handle was dropped, as soon as it is not claimed. A named one stays if it was opened by
    /// another handle, which uses it at this moment.
    pub(super) fn handle_dropped(&mut self, shared: &Arc<ManagerShared>, buffer: &BufferState) {
        let phase = buffer.phase.get();
        // A copy in progress ends before the buffer is forgotten. Else the word is closed first, so that no lease is granted
        // while the ledger forgets the buffer.
        if buffer.phase.advance(PhaseEvent::Abandon) || !phase.is_moving() && self.close(buffer).is_err() {
            return;
        }
        // The ledger rejects this if the buffer was freed already.
        if self.handle(shared, LedgerEvent::Free { id: buffer.id }).is_err() {
            self.settle(shared, buffer.id);
        }
    }

    /// Ends a claim: the lease word opens, and the buffer may move again. `wrote`: the tier that was written, if one was.
    ///
    /// # Errors
    /// [`Rejected::Stale`] if the buffer was freed meanwhile.
    pub(super) fn unclaim(
        &mut self,
        shared: &Arc<ManagerShared>,
        buffer: &BufferState,
        wrote: Option<Tier>,
    ) -> Result<(), Rejected> {
        let (id, abandoned) = (buffer.id, buffer.phase.get() == BufferPhase::Abandoned);
        buffer.phase.advance(PhaseEvent::Unclaim);
        if abandoned {
            self.handle_dropped(shared, buffer);
            return Ok(());
        }
        self.settle(shared, id);
        let recorded = match wrote {
            Some(tier) => self.handle(shared, LedgerEvent::Wrote { id, tier }),
            None => Ok(()),
        };
        // The ledger defers a buffer that it would move and finds claimed. After a write it has looked for room again.
        if wrote.is_none() || self.ledger.view(id).is_ok_and(|view| view.deferred) {
            let _ = self.handle(shared, LedgerEvent::Released { id });
        }
        recorded
    }

    /// Closes the lease word of a buffer, or leaves it closed, as during a copy or where only files have the bytes.
    ///
    /// # Errors
    /// [`LeaseError::Busy`] or [`LeaseError::Brief`] while a lease is held.
    pub(super) fn close(&mut self, buffer: &BufferState) -> Result<(), LeaseError> {
        match buffer.lease.close() {
            Ok(counted) => self.pinned -= if counted { buffer.weight() } else { 0 },
            Err(LeaseError::Closed) => {}
            Err(held) => return Err(held),
        }
        Ok(())
    }

    /// Opens a buffer's lease word again after a copy, a drop or a claim has ended, where its bytes can be leased.
    pub(super) fn settle(&mut self, shared: &ManagerShared, id: BufferId) {
        let Some(buffer) = self.buffers.get(&id).filter(|buffer| buffer.phase.get() == BufferPhase::Settled) else {
            return;
        };
        if let Some(start) = self.leasable(shared, buffer) {
            buffer.open(start);
        }
        buffer.notify_changed();
    }

    /// As [`BufferState::leasable`], of the tiers that have the newest bytes.
    pub(super) fn leasable(&self, shared: &ManagerShared, buffer: &BufferState) -> Option<*mut u8> {
        let residence = self.ledger.view(buffer.id).ok()?.residence;
        buffer.leasable(shared.newest(&residence, Medium::Memory), shared.newest(&residence, Medium::Device))
    }

    /// Drops a buffer's copy in a tier; returns false if the buffer is in use.
    fn drop_copy(&mut self, id: BufferId, tier: Tier) -> bool {
        let Some(buffer) = self.buffers.get(&id).cloned() else { return true };
        if buffer.phase.get() != BufferPhase::Settled || self.close(&buffer).is_err() {
            return false;
        }
        self.pending_frees.add(buffer.copies().take(tier));
        buffer.best.store(std::ptr::null_mut(), Ordering::Relaxed);
        true
    }

    fn forget(&mut self, shared: &ManagerShared, id: BufferId) {
        let Some(buffer) = self.buffers.remove(&id) else { return };
        buffer.phase.advance(PhaseEvent::Free);
        shared.tracking.freed(buffer.stamp, id, buffer.bytes);
        // The word is closed already, but after a copy that began before the buffer was freed. A caller that has opened
        // the buffer by name may hold a lease then: the memory stays until its handle is dropped.
        if self.close(&buffer).is_ok() {
            self.pending_frees.add(buffer.copies().clear());
        }
        self.metadata -= buffer.metadata_bytes;
        self.forget_name(buffer.name());
        self.settled(id, &Err(Error::Freed));
        buffer.notify_changed();
    }
}

impl ManagerShared {
    /// Checks every invariant.
    ///
    /// # Errors
    /// The first invariant that is broken.
    pub(super) fn check(&self) -> Result<(), String> {
        let state = self.state();
        state.ledger.check().map_err(|violation| violation.to_string())?;
        state.check_dormant(self)?;
        for buffer in state.buffers.values() {
            buffer.lease.check().map_err(|violation| violation.to_string())?;
            // A buffer that was freed during a migration has no view, and is skipped.
            if let Ok(view) = state.ledger.view(buffer.id) {
                let leasable = state.leasable(self, buffer).is_some();
                let sound = buffer.phase.get().check(view.moving, buffer.lease.is_closed(), leasable);
                sound.map_err(|broken| format!("{}: {broken} ({:?})", buffer.id, buffer.phase))?;
            }
        }
        self.tiers().filter_map(|tier| self.store(tier).ok()).try_for_each(Store::check)
    }
}
