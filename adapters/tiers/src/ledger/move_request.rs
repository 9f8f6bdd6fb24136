//! What is wanted of buffers: promotion, demotion, a copy below. At most one wish for each buffer, the latest.
//!
//! Allocations come first: while room is being made for a request, nothing is promoted. Where only others can help the
//! request, users' promotions go on: those others may need them to get there. A promotion may evict others, as an
//! allocation may; a prefetch only takes room that is there, and it and what a second touch wants is given up while
//! only others can help. A wish that finds no room and none to be made is over, and its user is told; a user's
//! promotion not before all copies have ended that come to that tier. One that meets a lease or a failure is looked at
//! again when the lease is given back, or at the next tick.

use super::error::Rejected;
use super::queue::QueueState;
use super::table::{MoveKind, MoveRequest};
use super::types::{Action, BufferId, LeaseStatus, Medium};
use super::{EventContext, Ledger, Tier};

/// What became of a wish that was looked at.
enum MoveProgress {
    /// Room is being made for it, or may be when others have come; those behind it wait.
    AwaitsRoom,
    /// It is looked at again when something ends: a motion, a lease, or the time until the next tick.
    Scheduled,
    /// It is so, or will not be.
    Finished(bool),
}

impl Ledger {
    /// Takes a user's wish.
    pub(super) fn request_move(
        &mut self,
        id: BufferId,
        request: MoveRequest,
        context: &mut EventContext<'_>,
    ) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        if self.tiers.get(usize::from(request.to)).is_none_or(|tier| tier.capacity == 0) {
            return Err(Rejected::NoSuchTier);
        }
        self.consume_ticket(index);
        self.finish_move(index, false, context);
        // Whoever asks learns at once what comes of it, not at the next tick, which may never be.
        self.buffers[index].deferred = false;
        self.set_move(index, request);
        Ok(())
    }

    fn set_move(&mut self, index: u32, request: MoveRequest) {
        self.buffers[index].pending_move = Some(request);
        self.queue_move(index);
    }

    /// A buffer was used: the second time within the window it is promoted.
    pub(super) fn touch(&mut self, id: BufferId) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        self.consume_ticket(index);
        self.policies.iter_mut().for_each(|policy| policy.touch(index));
        let (now, target) = (self.now, self.target(index));
        let buffer = &mut self.buffers[index];
        let again = buffer.last_touch.is_some_and(|before| now - before <= self.touch_window);
        buffer.last_touch = Some(now).filter(|_| !again);
        match target {
            Some(to) if again && buffer.pending_move.is_none() => {
                self.set_move(index, MoveRequest { to, kind: MoveKind::SecondTouch })
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn prefetch(&mut self, id: BufferId) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        self.consume_ticket(index);
        match self.target(index) {
            Some(to) if self.buffers[index].pending_move.is_none() => {
                self.set_move(index, MoveRequest { to, kind: MoveKind::Prefetch })
            }
            _ => {}
        }
        Ok(())
    }

    /// A better tier than the best it is valid in: that of its hint, or the best memory that could hold it.
    fn target(&self, index: u32) -> Option<Tier> {
        let buffer = &self.buffers[index];
        let hinted =
            buffer.hint.tier.filter(|tier| usize::from(*tier) < self.tiers.len() && self.accepts(*tier, buffer));
        let memory = |tier: &Tier| self.tiers[usize::from(*tier)].medium == Medium::Memory;
        let best = hinted.or_else(|| self.all_tiers().filter(memory).find(|tier| self.accepts(*tier, buffer)));
        best.filter(|tier| *tier < buffer.residence.best())
    }

    /// A lease is given back that stood in the way.
    pub(super) fn released(&mut self, id: BufferId) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        self.buffers[index].deferred = false;
        self.queue_move(index);
        Ok(())
    }

    /// Puts a buffer's wish, if it has one, where it will be looked at.
    pub(super) fn queue_move(&mut self, index: u32) {
        let buffer = &mut self.buffers[index];
        let Some(request) = buffer.pending_move else { return };
        let queue = usize::from(request.is_promotion());
        if !std::mem::replace(&mut buffer.queued[queue], true) {
            self.move_queues[queue].push_back(buffer.id);
        }
    }

    /// Ends a buffer's wish, if it has one.
    pub(super) fn finish_move(&mut self, index: u32, satisfied: bool, context: &mut EventContext<'_>) {
        let buffer = &mut self.buffers[index];
        let request = buffer.pending_move.take();
        if let Some(MoveRequest { to, .. }) = request.filter(|request| request.is_reported()) {
            context.actions.push(Action::MoveFinished { id: buffer.id, to, satisfied });
        }
    }

    /// A buffer has its bytes in a tier now. A wish for that is met here and now, not when it is looked at next: a
    /// request may have them copied away again before, and the wish back, without end.
    pub(super) fn arrived(&mut self, index: u32, to: Tier, context: &mut EventContext<'_>) {
        if self.buffers[index].pending_move.is_some_and(|request| request.to == to && request.kind != MoveKind::Demote)
        {
            self.finish_move(index, true, context);
        }
    }

    /// Looks at wishes until one waits for room: those that lead down, then those that lead up.
    pub(super) fn serve_moves(&mut self, queue_state: QueueState, context: &mut EventContext<'_>) {
        for queue in 0..self.move_queues.len() {
            while let Some(&id) = self.move_queues[queue].front() {
                let up = queue == 1;
                if up && queue_state == QueueState::MakingRoom {
                    break;
                }
                let index = self.buffers.find(id).ok();
                let request = index
                    .and_then(|index| self.buffers[index].pending_move)
                    .filter(|request| request.is_promotion() == up);
                let passes = |request: MoveRequest| !up || queue_state == QueueState::Clear || request.is_reported();
                let progress = index.zip(request).map(|(index, request)| match passes(request) {
                    true => self.advance_move(index, request, context),
                    false => MoveProgress::Finished(false),
                });
                if matches!(progress, Some(MoveProgress::AwaitsRoom)) {
                    break;
                }
                self.move_queues[queue].pop_front();
                let Some(index) = index else { continue };
                self.buffers[index].queued[queue] = false;
                if let Some(MoveProgress::Finished(satisfied)) = progress {
                    self.finish_move(index, satisfied, context);
                }
            }
        }
    }

    /// Does what can be done for a wish now.
    fn advance_move(&mut self, index: u32, request: MoveRequest, context: &mut EventContext<'_>) -> MoveProgress {
        let MoveRequest { to, kind } = request;
        let buffer = &self.buffers[index];
        if buffer.migration.is_some() || buffer.deferred {
            return MoveProgress::Scheduled;
        }
        if buffer.residence.valid(to) && kind != MoveKind::Demote {
            return MoveProgress::Finished(true);
        }
        if (context.lease_status)(buffer.id) == LeaseStatus::Leased {
            self.defer(index);
            return MoveProgress::Scheduled;
        }
        let demoted = kind == MoveKind::Demote;
        if demoted && (to..self.all_tiers().end).any(|tier| buffer.residence.valid(tier)) {
            return self.drop_above(index, to, context);
        }
        if !self.accepts(to, buffer) {
            return MoveProgress::Finished(false);
        }
        if self.fits(buffer, to, 0) {
            self.begin_copy(index, buffer.residence.best(), to, demoted, context);
            return MoveProgress::Scheduled;
        }
        let (shortfall, tenant) =
            (self.tiers[usize::from(to)].shortfall(self.footprint(to, buffer.bytes)), buffer.tenant);
        // It is no victim of its own.
        self.buffers[index].selected = true;
        let made = kind != MoveKind::Prefetch && self.make_room(to, shortfall, Some(tenant), context);
        self.buffers[index].selected = false;
        // Who comes now may leave when it is there.
        let later = kind == MoveKind::Promote && self.tiers[usize::from(to)].incoming > 0;
        if made || later { MoveProgress::AwaitsRoom } else { MoveProgress::Finished(false) }
    }

    /// Drops the copies in better tiers, one after the other.
    fn drop_above(&mut self, index: u32, to: Tier, context: &mut EventContext<'_>) -> MoveProgress {
        let buffer = &self.buffers[index];
        let mut above = (0..to).filter(|tier| buffer.residence.present(*tier));
        match above.clone().find(|tier| buffer.is_redundant(*tier)) {
            Some(tier) => {
                self.begin_drop(index, tier, context);
                MoveProgress::Scheduled
            }
            // What survives a power cut stays.
            None => MoveProgress::Finished(above.next().is_none()),
        }
    }
}
