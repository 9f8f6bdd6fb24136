//! Serves move requests: promotion, demotion, replication. At most one for each buffer, the latest.
//!
//! Allocations come first: while room is made for one, no buffer is promoted. While an allocation waits for frees of
//! other users, promotions that users requested go on, as those users may need them before they can free; prefetches
//! and promotions on second touches are dropped. A promotion may evict others, as an allocation may; a prefetch evicts
//! none that was prefetched and not used yet. A request for which there is no room and none can be made is finished and its user told; a user's
//! promotion not before all copies in progress to that tier have ended. A request that meets a lease or a failure is
//! tried again when the lease is released, or at the next tick.

use super::error::Rejected;
use super::notice::Notice;
use super::queue::QueueState;
use super::table::{Awaited, BufferRecord, MoveKind, MoveRequest};
use super::types::{Action, BufferId, LeaseStatus, Medium};
use super::{EventContext, EvictionCause, Ledger, Tier};

/// How far a move request has got.
enum MoveProgress {
    /// Room is being made for the request, or may be made once copies in progress have ended. Requests behind it wait.
    AwaitsRoom,
    /// The request is tried again when a migration or a lease of its buffer ends, or at the next tick.
    Scheduled,
    /// The request is satisfied (true) or impossible (false).
    Finished(bool),
}

impl Ledger {
    /// Records a user's move request, which replaces an earlier request for the same buffer.
    pub(super) fn request_move(
        &mut self,
        id: BufferId,
        request: MoveRequest,
        context: &mut EventContext<'_>,
    ) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        if self.tiers.get(usize::from(request.to)).is_none_or(|tier| tier.limit == 0) {
            return Err(Rejected::NoSuchTier);
        }
        self.consume_ticket(index);
        // Serve the request now, even if the buffer was deferred: the next tick may never come.
        self.buffers[index].deferred = false;
        let prefetches = self.buffers[index].pending_move == Some(MoveRequest { kind: MoveKind::Prefetch, ..request });
        if prefetches && request.kind == MoveKind::Promote {
            // The prefetch becomes this request; their common end is reported once.
            self.prefetches.late += 1;
        } else {
            self.report_move(index, false, context);
        }
        self.set_move(index, request);
        Ok(())
    }

    fn set_move(&mut self, index: u32, request: MoveRequest) {
        self.buffers[index].pending_move = Some(request);
        self.queue_move(index);
    }

    /// Records a use of a buffer; the second use within the window promotes the buffer.
    pub(super) fn touch(&mut self, id: BufferId) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        self.consume_ticket(index);
        self.set_used(index);
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

    pub(super) fn prefetch(&mut self, id: BufferId, context: &mut EventContext<'_>) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        // The user asks for this use: a hint for the tier where the buffer lies, or a lower one, says nothing about it.
        let target = self.target(index).or_else(|| self.best_memory(&self.buffers[index]));
        match target.filter(|to| self.tiers[usize::from(*to)].limit > 0) {
            Some(to) => self.request_move(id, MoveRequest { to, kind: MoveKind::Prefetch }, context),
            None => {
                self.consume_ticket(index);
                self.report_move(index, false, context);
                let to = self.buffers[index].residence.best();
                let satisfied = self.tiers[usize::from(to)].medium != Medium::File;
                match satisfied {
                    true => self.set_awaited(index, Awaited::Prefetch),
                    false => self.count_unmet(index),
                }
                context.actions.push(Action::MoveFinished { id, to, satisfied });
                Ok(())
            }
        }
    }

    /// Makes a buffer the first to leave each tier.
    pub(super) fn used(&mut self, id: BufferId) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        self.consume_ticket(index);
        self.set_used(index);
        let bytes = self.buffers[index].bytes;
        for policy in self.policies.iter_mut().filter(|policy| policy.contains(index)) {
            policy.remove(index);
            policy.restore(index, bytes);
        }
        Ok(())
    }

    /// Spares a buffer until it is used.
    fn set_awaited(&mut self, index: u32, awaited: Awaited) {
        self.awaited += usize::from(self.buffers[index].awaited.replace(awaited).is_none());
    }

    /// Records that a buffer was used.
    pub(super) fn set_used(&mut self, index: u32) {
        if self.end_prefetch(index) {
            self.prefetches.met += 1;
        }
    }

    /// Spares a buffer no more; returns whether it was prefetched.
    pub(super) fn end_prefetch(&mut self, index: u32) -> bool {
        let awaited = self.buffers[index].awaited.take();
        self.awaited -= usize::from(awaited.is_some());
        awaited == Some(Awaited::Prefetch)
    }

    /// Returns the tier to promote a buffer to: the hinted tier if it accepts the buffer, else the best memory tier
    /// that does. `None` unless this tier is better than every tier that has valid bytes.
    fn target(&self, index: u32) -> Option<Tier> {
        let buffer = &self.buffers[index];
        let hinted =
            buffer.hint.tier.filter(|tier| usize::from(*tier) < self.tiers.len() && self.accepts(*tier, buffer));
        hinted
            .filter(|tier| *tier < buffer.residence.best())
            .or_else(|| self.best_memory(buffer).filter(|_| hinted.is_none()))
    }

    /// Returns the best memory tier that accepts a buffer, if it is better than every tier that has valid bytes.
    fn best_memory(&self, buffer: &BufferRecord) -> Option<Tier> {
        let memory = |tier: &Tier| self.tiers[usize::from(*tier)].medium == Medium::Memory;
        let best = self.all_tiers().filter(memory).find(|tier| self.accepts(*tier, buffer));
        best.filter(|tier| *tier < buffer.residence.best())
    }

    /// Handles the release of a lease that blocked a migration: the buffer may move again.
    pub(super) fn released(&mut self, id: BufferId) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        self.buffers[index].deferred = false;
        self.queue_move(index);
        Ok(())
    }

    /// Queues a buffer's pending move, if it has one.
    pub(super) fn queue_move(&mut self, index: u32) {
        let buffer = &mut self.buffers[index];
        let Some(request) = buffer.pending_move else { return };
        let queue = usize::from(request.is_promotion());
        if !std::mem::replace(&mut buffer.queued[queue], true) {
            self.move_queues[queue].push_back(buffer.id);
        }
    }

    /// Counts a prefetch that ended without its buffer in the wanted tier.
    fn count_unmet(&mut self, index: u32) {
        self.prefetches.unmet += 1;
        self.notices.add(Notice::PrefetchUnmet { id: self.buffers[index].id });
    }

    /// Ends a buffer's pending move, if it has one, because it was satisfied or is impossible.
    pub(super) fn finish_move(&mut self, index: u32, satisfied: bool, context: &mut EventContext<'_>) {
        match (self.buffers[index].pending_move.map(|request| request.kind), satisfied) {
            (Some(MoveKind::Prefetch), true) => self.set_awaited(index, Awaited::Prefetch),
            (Some(MoveKind::Promote), true) => self.set_awaited(index, Awaited::Promotion),
            (Some(MoveKind::Prefetch), false) => self.count_unmet(index),
            _ => {}
        }
        self.report_move(index, satisfied, context);
    }

    /// Takes a buffer's pending move, if it has one, and reports its end to the user.
    pub(super) fn report_move(&mut self, index: u32, satisfied: bool, context: &mut EventContext<'_>) {
        let buffer = &mut self.buffers[index];
        let request = buffer.pending_move.take();
        if let Some(MoveRequest { to, .. }) = request.filter(|request| request.is_reported()) {
            context.actions.push(Action::MoveFinished { id: buffer.id, to, satisfied });
        }
    }

    /// Ends a request for a copy in a tier as soon as that copy has succeeded, not when the request is served next.
    /// Before that an allocation may evict the copy, and the request would copy again, without end.
    pub(super) fn arrived(&mut self, index: u32, to: Tier, context: &mut EventContext<'_>) {
        if self.buffers[index].pending_move.is_some_and(|request| request.to == to && request.kind != MoveKind::Demote)
        {
            self.finish_move(index, true, context);
        }
    }

    /// Serves the queue of demotions and replications, then that of promotions, each until a move waits for room.
    pub(super) fn serve_moves(&mut self, queue_state: QueueState, context: &mut EventContext<'_>) {
        for queue in 0..self.move_queues.len() {
            while let Some(&id) = self.move_queues[queue].front() {
                let up = queue == 1;
                if up && matches!(queue_state, QueueState::MakingRoom(_)) {
                    break;
                }
                let index = self.buffers.find(id).ok();
                let request = index
                    .and_then(|index| self.buffers[index].pending_move)
                    .filter(|request| request.is_promotion() == up);
                let asked = |request: MoveRequest| request.kind == MoveKind::Promote;
                let passes = |request: MoveRequest| !up || queue_state == QueueState::Clear || asked(request);
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

    /// Advances a pending move as far as possible now.
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
        // The buffer must not be evicted to make room for itself.
        self.buffers[index].selected = true;
        let cause = if kind == MoveKind::Prefetch { EvictionCause::Prefetch } else { EvictionCause::Promotion };
        let made = self.make_room(to, shortfall, (Some(tenant), cause), context);
        self.buffers[index].selected = false;
        // A buffer that is being copied to that tier may be evicted afterwards, which makes room.
        let later = kind == MoveKind::Promote && self.tiers[usize::from(to)].incoming > 0;
        if made || later { MoveProgress::AwaitsRoom } else { MoveProgress::Finished(false) }
    }

    /// Drops a buffer's copies in tiers better than `to`, one after the other.
    fn drop_above(&mut self, index: u32, to: Tier, context: &mut EventContext<'_>) -> MoveProgress {
        let buffer = &self.buffers[index];
        let mut above = (0..to).filter(|tier| buffer.residence.present(*tier));
        match above.clone().find(|tier| buffer.is_redundant(*tier)) {
            Some(tier) => {
                self.begin_drop(index, tier, context);
                MoveProgress::Scheduled
            }
            // No copy in a better tier can be dropped: if one is left, it is the copy that survives a power cut.
            None => MoveProgress::Finished(above.next().is_none()),
        }
    }
}
