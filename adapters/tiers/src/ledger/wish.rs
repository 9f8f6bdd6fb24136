//! What is wanted of buffers: promotion, demotion, a copy below. At most one wish for each buffer, the latest.
//!
//! Allocations come first: while room is being made for a request, nothing is promoted. Where only others can help the
//! request, users' promotions go on: those others may need them to get there. A promotion may evict others, as an
//! allocation may; a prefetch only takes room that is there, and it and what a second touch wants is given up while
//! only others can help. A wish that finds no room and none to be made is over, and its user is told; a user's
//! promotion not before all copies have ended that come to that tier. One that meets a lease or a failure is looked at
//! again when the lease is given back, or at the next tick.

use super::error::Rejected;
use super::queue::Waits;
use super::table::{What, Wish};
use super::words::{Action, Id, Look, TierKind};
use super::{Ledger, Tier, Turn};

/// What became of a wish that was looked at.
enum Step {
    /// Room is being made for it, or may be when others have come; those behind it wait.
    Coming,
    /// It is looked at again when something ends: a motion, a lease, or the time until the next tick.
    Set,
    /// It is so, or will not be.
    Over(bool),
}

impl Ledger {
    /// Takes a user's wish.
    pub(super) fn wish(&mut self, id: Id, wish: Wish, turn: &mut Turn<'_>) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        if self.tiers.get(usize::from(wish.to)).is_none_or(|tier| tier.capacity == 0) {
            return Err(Rejected::NoSuchTier);
        }
        self.used(index);
        self.settle(index, false, turn);
        // Whoever asks learns at once what comes of it, not at the next tick, which may never be.
        self.buffers[index].resting = false;
        self.set_wish(index, wish);
        Ok(())
    }

    fn set_wish(&mut self, index: u32, wish: Wish) {
        self.buffers[index].wish = Some(wish);
        self.queue_wish(index);
    }

    /// A buffer was used: the second time within the window it is promoted.
    pub(super) fn touch(&mut self, id: Id) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        self.used(index);
        self.policies.iter_mut().for_each(|policy| policy.touch(index));
        let (now, target) = (self.now, self.target(index));
        let buffer = &mut self.buffers[index];
        let again = buffer.touched.is_some_and(|before| now - before <= self.window);
        buffer.touched = Some(now).filter(|_| !again);
        match target {
            Some(to) if again && buffer.wish.is_none() => self.set_wish(index, Wish { to, what: What::Touched }),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn prefetch(&mut self, id: Id) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        self.used(index);
        match self.target(index) {
            Some(to) if self.buffers[index].wish.is_none() => self.set_wish(index, Wish { to, what: What::Prefetch }),
            _ => {}
        }
        Ok(())
    }

    /// A better tier than the best it is valid in: that of its hint, or the best memory that could hold it.
    fn target(&self, index: u32) -> Option<Tier> {
        let buffer = &self.buffers[index];
        let hinted =
            buffer.hint.tier.filter(|tier| usize::from(*tier) < self.tiers.len() && self.is_open(*tier, buffer));
        let memory = |tier: &Tier| self.tiers[usize::from(*tier)].kind == TierKind::Memory;
        let best = hinted.or_else(|| self.all().filter(memory).find(|tier| self.is_open(*tier, buffer)));
        best.filter(|tier| *tier < buffer.residence.best())
    }

    /// A lease is given back that stood in the way.
    pub(super) fn released(&mut self, id: Id) -> Result<(), Rejected> {
        let index = self.buffers.find(id)?;
        self.buffers[index].resting = false;
        self.queue_wish(index);
        Ok(())
    }

    /// Puts a buffer's wish, if it has one, where it will be looked at.
    pub(super) fn queue_wish(&mut self, index: u32) {
        let buffer = &mut self.buffers[index];
        let Some(wish) = buffer.wish else { return };
        let queue = usize::from(wish.is_up());
        if !std::mem::replace(&mut buffer.queued[queue], true) {
            self.wishes[queue].push_back(buffer.id);
        }
    }

    /// Ends a buffer's wish, if it has one.
    pub(super) fn settle(&mut self, index: u32, met: bool, turn: &mut Turn<'_>) {
        let buffer = &mut self.buffers[index];
        let wish = buffer.wish.take();
        if let Some(Wish { to, .. }) = wish.filter(|wish| wish.is_told()) {
            turn.out.push(Action::Settled { id: buffer.id, to, met });
        }
    }

    /// A buffer has its bytes in a tier now. A wish for that is met here and now, not when it is looked at next: a
    /// request may have them copied away again before, and the wish back, without end.
    pub(super) fn arrived(&mut self, index: u32, to: Tier, turn: &mut Turn<'_>) {
        if self.buffers[index].wish.is_some_and(|wish| wish.to == to && wish.what != What::Demote) {
            self.settle(index, true, turn);
        }
    }

    /// Looks at wishes until one waits for room: those that lead down, then those that lead up.
    pub(super) fn grant_wishes(&mut self, waits: Waits, turn: &mut Turn<'_>) {
        for queue in 0..self.wishes.len() {
            while let Some(&id) = self.wishes[queue].front() {
                let up = queue == 1;
                if up && waits == Waits::Coming {
                    break;
                }
                let index = self.buffers.find(id).ok();
                let wish = index.and_then(|index| self.buffers[index].wish).filter(|wish| wish.is_up() == up);
                let passes = |wish: Wish| !up || waits == Waits::Nobody || wish.is_told();
                let step = index.zip(wish).map(|(index, wish)| match passes(wish) {
                    true => self.step(index, wish, turn),
                    false => Step::Over(false),
                });
                if matches!(step, Some(Step::Coming)) {
                    break;
                }
                self.wishes[queue].pop_front();
                let Some(index) = index else { continue };
                self.buffers[index].queued[queue] = false;
                if let Some(Step::Over(met)) = step {
                    self.settle(index, met, turn);
                }
            }
        }
    }

    /// Does what can be done for a wish now.
    fn step(&mut self, index: u32, wish: Wish, turn: &mut Turn<'_>) -> Step {
        let Wish { to, what } = wish;
        let buffer = &self.buffers[index];
        if buffer.motion.is_some() || buffer.resting {
            return Step::Set;
        }
        if buffer.residence.valid(to) && what != What::Demote {
            return Step::Over(true);
        }
        if (turn.look)(buffer.id) == Look::Leased {
            self.rest(index);
            return Step::Set;
        }
        let demoted = what == What::Demote;
        if demoted && (to..self.all().end).any(|tier| buffer.residence.valid(tier)) {
            return self.leave_above(index, to, turn);
        }
        if !self.is_open(to, buffer) {
            return Step::Over(false);
        }
        if self.fits(buffer, to, 0) {
            self.begin_copy(index, buffer.residence.best(), to, demoted, turn);
            return Step::Set;
        }
        let (lacks, tenant) = (self.tiers[usize::from(to)].lacks(self.held(to, buffer.bytes)), buffer.tenant);
        // It is no victim of its own.
        self.buffers[index].picked = true;
        let made = what != What::Prefetch && self.make_room(to, lacks, Some(tenant), turn);
        self.buffers[index].picked = false;
        // Who comes now may leave when it is there.
        let later = what == What::Promote && self.tiers[usize::from(to)].coming > 0;
        if made || later { Step::Coming } else { Step::Over(false) }
    }

    /// Drops the copies in better tiers, one after the other.
    fn leave_above(&mut self, index: u32, to: Tier, turn: &mut Turn<'_>) -> Step {
        let buffer = &self.buffers[index];
        let mut above = (0..to).filter(|tier| buffer.residence.present(*tier));
        match above.clone().find(|tier| buffer.is_redundant(*tier)) {
            Some(tier) => {
                self.begin_drop(index, tier, turn);
                Step::Set
            }
            // What survives a power cut stays.
            None => Step::Over(above.next().is_none()),
        }
    }
}
