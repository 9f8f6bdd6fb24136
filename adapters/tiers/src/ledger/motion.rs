//! Copies and drops: how they begin, and what their end means.
//!
//! A copy that failed, or found no room, leaves the buffer where it was. The tier it went to takes nothing until the
//! first tick at least `rest` later (twice as long after each further failure without a success, up to 64 times), and
//! the buffer itself is left alone until the next tick. One that met a lease blames nobody: the buffer is left alone
//! until the lease is given back, or the next tick.

use super::error::Rejected;
use super::table::Motion;
use super::words::{Action, Id, Outcome};
use super::{Ledger, Tier, Turn};
use terrace_core::residence::Transition;

/// A tier rests at most 2^6 times as long as after its first failure.
const MOST_DOUBLINGS: u32 = 6;

impl Ledger {
    /// Begins to copy; room in the target is taken. With `leave`, the copy in `from` is dropped afterwards. The caller
    /// knows that it fits, and that the bytes in `from` are valid.
    pub(super) fn begin_copy(&mut self, index: u32, from: Tier, to: Tier, leave: bool, turn: &mut Turn<'_>) {
        let buffer = &mut self.buffers[index];
        let (id, tenant, bytes, fresh) = (buffer.id, buffer.tenant, buffer.bytes, !buffer.residence.present(to));
        buffer.motion = Some(Motion::Copy { from, to, fresh, leave });
        self.tiers[usize::from(to)].coming += 1;
        if fresh {
            self.reserve(to, tenant, bytes);
        }
        if leave {
            self.leave(from, tenant, bytes, true);
        }
        self.relist(index);
        turn.out.push(Action::Copy { id, from, to });
    }

    /// Begins to drop a redundant copy.
    pub(super) fn begin_drop(&mut self, index: u32, tier: Tier, turn: &mut Turn<'_>) {
        let buffer = &mut self.buffers[index];
        let (id, tenant, bytes) = (buffer.id, buffer.tenant, buffer.bytes);
        buffer.motion = Some(Motion::Drop { tier });
        self.leave(tier, tenant, bytes, true);
        turn.out.push(Action::Drop { id, tier });
        self.relist(index);
    }

    /// The number of a buffer that something is under way with, doomed or not.
    fn moving(&self, id: Id) -> Result<(u32, Motion), Rejected> {
        let buffer = self.buffers.get(id.index).filter(|buffer| buffer.id == id).ok_or(Rejected::Stale)?;
        buffer.motion.map(|motion| (id.index, motion)).ok_or(Rejected::NotUnderWay)
    }

    pub(super) fn moved(
        &mut self,
        id: Id,
        from: Tier,
        to: Tier,
        outcome: Outcome,
        turn: &mut Turn<'_>,
    ) -> Result<(), Rejected> {
        let (index, motion) = self.moving(id)?;
        let (fresh, leave) = match motion {
            Motion::Copy { from: begun, to: meant, fresh, leave } if (begun, meant) == (from, to) => (fresh, leave),
            _ => return Err(Rejected::NotUnderWay),
        };
        let buffer = &mut self.buffers[index];
        let (tenant, bytes) = (buffer.tenant, buffer.bytes);
        if outcome == Outcome::Done {
            buffer.residence.apply(Transition::Copy { from, to })?;
        }
        buffer.motion = None;
        self.tiers[usize::from(to)].coming -= 1;
        if leave {
            self.leave(from, tenant, bytes, false);
        }
        match outcome {
            Outcome::Done => {
                self.tiers[usize::from(to)].failures = 0;
                self.arrived(index, to, turn);
            }
            Outcome::Busy => self.rest(index),
            Outcome::Unread => {
                self.rest(index);
                self.settle(index, false, turn);
            }
            Outcome::Full | Outcome::Failed => {
                self.failed(to);
                self.rest(index);
            }
        }
        if outcome != Outcome::Done && fresh {
            self.release(to, tenant, bytes);
        }
        let on = leave && outcome == Outcome::Done && self.buffers[index].is_redundant(from);
        if on && !self.buffers[index].doomed {
            self.begin_drop(index, from, turn);
        } else {
            self.ended(index, turn);
        }
        Ok(())
    }

    pub(super) fn dropped(&mut self, id: Id, tier: Tier, done: bool, turn: &mut Turn<'_>) -> Result<(), Rejected> {
        let (index, motion) = self.moving(id)?;
        if motion != (Motion::Drop { tier }) {
            return Err(Rejected::NotUnderWay);
        }
        let buffer = &mut self.buffers[index];
        let (tenant, bytes) = (buffer.tenant, buffer.bytes);
        if done {
            buffer.residence.apply(Transition::Evict(tier))?;
        }
        buffer.motion = None;
        self.leave(tier, tenant, bytes, false);
        if done {
            self.release(tier, tenant, bytes);
        } else {
            self.rest(index);
        }
        self.ended(index, turn);
        Ok(())
    }

    /// Nothing is under way with a buffer any more.
    fn ended(&mut self, index: u32, turn: &mut Turn<'_>) {
        if self.buffers[index].doomed {
            return self.forget(index, turn);
        }
        self.relist(index);
        if !self.buffers[index].resting {
            self.queue_wish(index);
        }
    }

    /// A copy into a tier failed.
    pub(super) fn failed(&mut self, to: Tier) {
        let state = &mut self.tiers[usize::from(to)];
        let pause = self.rest.saturating_mul(1 << state.failures.min(MOST_DOUBLINGS));
        state.failures = state.failures.saturating_add(1);
        state.rests_until = Some(self.now.saturating_add(pause));
    }

    /// Leaves a buffer alone until the next tick.
    pub(super) fn rest(&mut self, index: u32) {
        let buffer = &mut self.buffers[index];
        buffer.resting = true;
        if !std::mem::replace(&mut buffer.rests_listed, true) {
            self.resting.push(buffer.id);
        }
    }

    /// All is over with a freed buffer.
    pub(super) fn forget(&mut self, index: u32, turn: &mut Turn<'_>) {
        let buffer = &self.buffers[index];
        let (id, tenant, bytes, keep) = (buffer.id, buffer.tenant, buffer.bytes, buffer.hint.keep);
        let residence = buffer.residence;
        for tier in self.all() {
            if residence.present(tier) {
                self.release(tier, tenant, bytes);
            }
            self.policies[usize::from(tier)].remove(index);
        }
        let whose = &mut self.tenants[usize::from(tenant)];
        whose.bytes -= bytes;
        whose.over &= whose.is_above();
        self.keeps -= usize::from(keep);
        self.buffers.remove(index);
        turn.out.push(Action::Forget { id });
    }
}
