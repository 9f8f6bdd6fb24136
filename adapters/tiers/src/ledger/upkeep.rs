//! What happens by itself: tiers are emptied ahead of need, and down to new capacities; levels of pressure are told.
//!
//! Ahead of need: a tier filled to 80 % is emptied to 60 % at the ticks that follow, by no more than the budget in each
//! (or one buffer that is larger), the first tiers first. Only drops and copies into room that is there: it empties
//! nothing for that.

use super::account::MOST;
use super::error::Rejected;
use super::words::Action;
use super::{Ledger, Tier, Turn};
use terrace_core::pressure::{Level, Pressure};

/// Maintenance empties a tier to so many permille: where the level is elevated, no more than that.
const LOW: u64 = 600;

impl Ledger {
    pub(super) fn tick(&mut self, now: u64, turn: &mut Turn<'_>) {
        self.now = self.now.max(now);
        for id in std::mem::take(&mut self.resting) {
            if let Ok(index) = self.buffers.find(id) {
                let buffer = &mut self.buffers[index];
                (buffer.resting, buffer.rests_listed) = (false, false);
                self.queue_wish(index);
            }
        }
        for tier in &mut self.tiers {
            tier.rests_until = tier.rests_until.filter(|until| *until > self.now);
        }
        self.drain(turn);
    }

    fn drain(&mut self, turn: &mut Turn<'_>) {
        let mut budget = self.budget;
        for tier in self.all() {
            let state = &mut self.tiers[usize::from(tier)];
            let goal = (u128::from(state.capacity) * u128::from(LOW) / 1000) as u64;
            let above = (state.used - state.leaving).saturating_sub(goal);
            state.draining = above > 0 && (state.draining || state.told >= Level::High);
            if state.draining && budget > 0 {
                budget = budget.saturating_sub(self.vacate(tier, above, Some(budget), turn));
            }
        }
    }

    pub(super) fn refused(&mut self, tier: Tier) -> Result<(), Rejected> {
        if usize::from(tier) >= self.tiers.len() {
            return Err(Rejected::NoSuchTier);
        }
        self.failed(tier);
        Ok(())
    }

    pub(super) fn recovered(&mut self, tier: Tier) -> Result<(), Rejected> {
        let state = self.tiers.get_mut(usize::from(tier)).ok_or(Rejected::NoSuchTier)?;
        (state.rests_until, state.failures) = (None, 0);
        Ok(())
    }

    pub(super) fn resize(&mut self, tier: Tier, capacity: u64, turn: &mut Turn<'_>) -> Result<(), Rejected> {
        let state = self.tiers.get_mut(usize::from(tier)).ok_or(Rejected::NoSuchTier)?;
        state.capacity = capacity.min(MOST);
        state.over = state.used > state.capacity;
        state.pressure = Pressure::new(state.capacity);
        self.dismiss(turn);
        Ok(())
    }

    /// Empties tiers that hold more than their capacity.
    pub(super) fn fit(&mut self, turn: &mut Turn<'_>) {
        for tier in self.all() {
            let lacks = self.tiers[usize::from(tier)].lacks(0);
            if lacks > 0 {
                self.vacate(tier, lacks, None, turn);
            }
        }
    }

    /// Tells levels that changed.
    pub(super) fn tell_pressure(&mut self, turn: &mut Turn<'_>) {
        for (tier, state) in (0u8..).zip(&mut self.tiers) {
            let level = match state.pressure.update(state.used, |_| {}) {
                _ if state.over => Level::Critical,
                level => level,
            };
            if std::mem::replace(&mut state.told, level) != level {
                turn.out.push(Action::Pressure { tier, level });
            }
        }
    }
}
