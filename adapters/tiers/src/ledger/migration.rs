//! Begins copies and drops, and records how they ended.
//!
//! After a copy that failed or found no room the buffer stays where it was. Its target is suspended until the first
//! tick at least `backoff` later (twice as long after each further failure without a success, up to 64 times), and the
//! buffer is deferred until the next tick. A copy that met a lease suspends no tier: the buffer is deferred until the
//! lease is released, or the next tick.

use super::error::Rejected;
use super::notice::Notice;
use super::table::Migration;
use super::types::{Action, BufferId, CopyOutcome};
use super::{EventContext, Ledger, Tier};
use terrace_core::residence::Transition;

/// A suspension lasts at most 2^6 times as long as the one after the first failure.
const MAX_DOUBLINGS: u32 = 6;

impl Ledger {
    /// Begins a copy and reserves room in the target. With `evict_source`, the copy in `from` is dropped afterwards.
    /// The caller must have checked that the copy fits and that the bytes in `from` are valid.
    pub(super) fn begin_copy(
        &mut self,
        index: u32,
        from: Tier,
        to: Tier,
        evict_source: bool,
        context: &mut EventContext<'_>,
    ) {
        let buffer = &mut self.buffers[index];
        let (id, tenant, bytes, reserved) = (buffer.id, buffer.tenant, buffer.bytes, !buffer.residence.present(to));
        buffer.migration = Some(Migration::Copy { from, to, reserved, evict_source });
        self.tiers[usize::from(to)].incoming += 1;
        if reserved {
            self.reserve(to, tenant, bytes);
        }
        if evict_source {
            self.set_leaving(from, tenant, bytes, true);
            self.waste_prefetch(index, from);
        }
        self.update_policies(index);
        context.actions.push(Action::Copy { id, from, to });
    }

    /// Begins the drop of a redundant copy.
    pub(super) fn begin_drop(&mut self, index: u32, tier: Tier, context: &mut EventContext<'_>) {
        let buffer = &mut self.buffers[index];
        let (id, tenant, bytes) = (buffer.id, buffer.tenant, buffer.bytes);
        buffer.migration = Some(Migration::Drop { tier });
        self.set_leaving(tier, tenant, bytes, true);
        self.waste_prefetch(index, tier);
        context.actions.push(Action::Drop { id, tier });
        self.update_policies(index);
    }

    /// Records that a buffer leaves a tier, if it was prefetched and not used, and no better tier has it.
    fn waste_prefetch(&mut self, index: u32, tier: Tier) {
        if tier <= self.buffers[index].residence.best() && self.end_prefetch(index) {
            self.prefetches.wasted += 1;
        }
    }

    /// Returns the index and the migration of a buffer, even if the buffer was freed during the migration.
    fn in_progress(&self, id: BufferId) -> Result<(u32, Migration), Rejected> {
        let buffer = self.buffers.get(id.index).filter(|buffer| buffer.id == id).ok_or(Rejected::Stale)?;
        buffer.migration.map(|migration| (id.index, migration)).ok_or(Rejected::NotUnderWay)
    }

    pub(super) fn copy_ended(
        &mut self,
        id: BufferId,
        from: Tier,
        to: Tier,
        outcome: CopyOutcome,
        context: &mut EventContext<'_>,
    ) -> Result<(), Rejected> {
        let (index, migration) = self.in_progress(id)?;
        let (reserved, evict_source) = match migration {
            Migration::Copy { from: begun, to: meant, reserved, evict_source } if (begun, meant) == (from, to) => {
                (reserved, evict_source)
            }
            _ => return Err(Rejected::NotUnderWay),
        };
        let buffer = &mut self.buffers[index];
        let (tenant, bytes) = (buffer.tenant, buffer.bytes);
        if outcome == CopyOutcome::Done {
            buffer.residence.apply(Transition::Copy { from, to })?;
        }
        buffer.migration = None;
        self.tiers[usize::from(to)].incoming -= 1;
        if evict_source {
            self.set_leaving(from, tenant, bytes, false);
        }
        match outcome {
            CopyOutcome::Done => {
                self.tiers[usize::from(to)].failures = 0;
                self.arrived(index, to, context);
            }
            CopyOutcome::Leased => self.defer(index),
            CopyOutcome::SourceFailed => {
                self.defer(index);
                self.finish_move(index, false, context);
            }
            CopyOutcome::Full | CopyOutcome::Failed => {
                self.suspend(to);
                self.defer(index);
            }
        }
        if outcome != CopyOutcome::Done && reserved {
            self.release(to, tenant, bytes);
        }
        let on = evict_source && outcome == CopyOutcome::Done && self.buffers[index].is_redundant(from);
        if on && !self.buffers[index].freed {
            self.begin_drop(index, from, context);
        } else {
            self.migration_ended(index, context);
        }
        Ok(())
    }

    pub(super) fn drop_ended(
        &mut self,
        id: BufferId,
        tier: Tier,
        done: bool,
        context: &mut EventContext<'_>,
    ) -> Result<(), Rejected> {
        let (index, migration) = self.in_progress(id)?;
        if migration != (Migration::Drop { tier }) {
            return Err(Rejected::NotUnderWay);
        }
        let buffer = &mut self.buffers[index];
        let (tenant, bytes) = (buffer.tenant, buffer.bytes);
        if done {
            buffer.residence.apply(Transition::Evict(tier))?;
        }
        buffer.migration = None;
        self.set_leaving(tier, tenant, bytes, false);
        if done {
            self.release(tier, tenant, bytes);
        } else {
            self.defer(index);
        }
        self.migration_ended(index, context);
        Ok(())
    }

    /// Handles the end of a migration after which no other begins: forgets a freed buffer, or queues the pending move.
    fn migration_ended(&mut self, index: u32, context: &mut EventContext<'_>) {
        if self.buffers[index].freed {
            return self.forget(index, context);
        }
        self.update_policies(index);
        if !self.buffers[index].deferred {
            self.queue_move(index);
        }
    }

    /// Suspends a tier after a failed copy into it.
    pub(super) fn suspend(&mut self, to: Tier) {
        let state = &mut self.tiers[usize::from(to)];
        let pause = self.backoff.saturating_mul(1 << state.failures.min(MAX_DOUBLINGS));
        state.failures = state.failures.saturating_add(1);
        state.suspended_until = Some(self.now.saturating_add(pause));
        self.notices.add(Notice::Suspended { tier: to, pause });
    }

    /// Defers a buffer: it is not moved until the next tick, or until a lease that blocked it is released.
    pub(super) fn defer(&mut self, index: u32) {
        let buffer = &mut self.buffers[index];
        buffer.deferred = true;
        if !std::mem::replace(&mut buffer.in_deferred_list, true) {
            self.deferred.push(buffer.id);
        }
    }

    /// Forgets a freed buffer, which releases its room.
    pub(super) fn forget(&mut self, index: u32, context: &mut EventContext<'_>) {
        self.waste_prefetch(index, 0);
        let buffer = &self.buffers[index];
        let (id, tenant, bytes, keep) = (buffer.id, buffer.tenant, buffer.bytes, buffer.hint.keep);
        let residence = buffer.residence;
        for tier in self.all_tiers() {
            if residence.present(tier) {
                self.release(tier, tenant, bytes);
            }
            self.policies[usize::from(tier)].remove(index);
        }
        let whose = &mut self.tenants[usize::from(tenant)];
        whose.bytes -= bytes;
        whose.over_limit &= whose.exceeds_caps();
        self.keeps -= usize::from(keep);
        self.buffers.remove(index);
        context.actions.push(Action::Forget { id });
    }
}
