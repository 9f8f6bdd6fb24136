//! Move requests of users and of leases: submitted one at a time for each buffer, and awaited.
//!
//! Promises upward: each waiter gets the end of the move that it waits for; equal requests share one move; a caller whose
//! own lease stands in the way is refused.
//! Asks from below: the ledger, which reports the end of each requested move once.

use super::ManagerShared;
use super::buffer_state::BufferState;
use super::error::Error;
use super::lease_word::{is_replicating, lease_status};
use super::state::State;
use crate::ledger::{BufferId, LeaseStatus, LedgerEvent};
use futures_channel::oneshot;
use std::sync::Arc;
use terrace_core::residence::Tier;

/// Sends the end of a move to a caller that waits for it.
pub(super) type MoveWaiter = oneshot::Sender<Result<bool, Error>>;

/// Receives the end of a move.
type MoveReceiver = oneshot::Receiver<Result<bool, Error>>;

impl State {
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
        // A call's lease, or a claim, ends without the caller: the ledger waits for it.
        let status_of = lease_status(&self.buffers, buffer.id, is_replicating(&self.waiters, buffer.id));
        if status_of == LeaseStatus::Leased && buffer.is_kept() {
            self.waiters.remove(&buffer.id);
            return Err(Error::Leased);
        }
        // The ledger may still have an earlier request, whose callers were already told that its copy failed. It
        // reports the end of that one first.
        let before = !self.requested.insert(buffer.id);
        // A promotion takes a prefetch to its tier over: then the ledger reports their common end only.
        let takes_over =
            matches!(event, LedgerEvent::Promote { to, .. } if self.ledger.prefetching(buffer.id) == Some(to));
        self.stale = (before && !takes_over).then_some(buffer.id);
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

    /// Fails the callers that wait for a buffer's move with [`Error::Leased`], since the lease may be their own. If only
    /// brief leases are held, they keep waiting.
    pub(super) fn refuse_leased_waiters(&mut self, id: BufferId) {
        if self.buffers.get(&id).is_some_and(|buffer| buffer.is_kept()) {
            self.settled(id, &Err(Error::Leased));
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
}

impl ManagerShared {
    /// Requests a move and waits for its end. Different requests take turns; equal ones share one move.
    ///
    /// # Errors
    /// [`Error::NoRoom`]; [`Error::Leased`]; the error of a failed copy.
    pub(super) async fn request_move(
        self: &Arc<Self>,
        buffer: &BufferState,
        event: LedgerEvent,
        tier: Tier,
    ) -> Result<(), Error> {
        buffer.check_unmapped()?;
        loop {
            let (outcome, mine) = self.submit_move(buffer, event)?;
            match outcome.await.map_err(|_| Error::Closed)? {
                // The call had joined a different move, which has ended: now it submits its own.
                _ if !mine => {}
                Ok(true) => return Ok(()),
                Ok(false) if buffer.is_freed() => return Err(Error::Freed),
                Ok(false) => return Err(self.state().no_room(tier)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Submits a move, or joins the pending one; returns its receiver, and whether it is the requested move.
    fn submit_move(self: &Arc<Self>, buffer: &BufferState, event: LedgerEvent) -> Result<(MoveReceiver, bool), Error> {
        let mut state = self.state();
        if let LedgerEvent::Promote { to, .. } = event {
            state.hasten(self, buffer, to);
        }
        let (outcome, first) = state.wait_for(buffer.id, event);
        let requested = if first { state.request_move(self, buffer, event) } else { Ok(()) };
        let mine = first || state.waits_for(buffer.id, event);
        self.unlock(state);
        requested.map(|()| (outcome, mine))
    }
}
