//! Ticks, resizes and pressure: empties tiers ahead of need and down to new capacities, and reports levels.
//!
//! Ahead of need: once a tier was filled to 80 %, ticks empty it to 60 %, the best tier first. One tick moves no more
//! bytes than the budget (or one larger buffer), by drops and by copies into free room of lower tiers: no lower tier is
//! emptied to make that room.

use super::error::Rejected;
use super::types::Action;
use super::{EventContext, Ledger, Tier};
use terrace_core::pressure::Level;

/// Maintenance empties a tier to this many permille of its capacity, at which its pressure level is at most elevated.
const LOW: u64 = 600;

impl Ledger {
    pub(super) fn tick(&mut self, now: u64, context: &mut EventContext<'_>) {
        self.now = self.now.max(now);
        for id in std::mem::take(&mut self.deferred) {
            if let Ok(index) = self.buffers.find(id) {
                let buffer = &mut self.buffers[index];
                (buffer.deferred, buffer.in_deferred_list) = (false, false);
                self.queue_move(index);
            }
        }
        for tier in &mut self.tiers {
            tier.suspended_until = tier.suspended_until.filter(|until| *until > self.now);
            tier.demand = [0, tier.demand[0]];
        }
        self.drain(context);
    }

    fn drain(&mut self, context: &mut EventContext<'_>) {
        let mut budget = self.maintenance_budget;
        for tier in self.all_tiers() {
            let state = &mut self.tiers[usize::from(tier)];
            let goal = (u128::from(state.capacity) * u128::from(LOW) / 1000) as u64;
            let above = (state.used - state.leaving).saturating_sub(goal);
            state.draining = above > 0 && (state.draining || state.reported >= Level::High);
            if state.draining {
                budget = budget.saturating_sub(self.vacate(tier, above, Some(budget), context));
            }
        }
    }

    pub(super) fn tier_refused(&mut self, tier: Tier) -> Result<(), Rejected> {
        if usize::from(tier) >= self.tiers.len() {
            return Err(Rejected::NoSuchTier);
        }
        self.suspend(tier);
        Ok(())
    }

    pub(super) fn tier_recovered(&mut self, tier: Tier) -> Result<(), Rejected> {
        let state = self.tiers.get_mut(usize::from(tier)).ok_or(Rejected::NoSuchTier)?;
        (state.suspended_until, state.failures) = (None, 0);
        Ok(())
    }

    pub(super) fn resize(&mut self, tier: Tier, capacity: u64, context: &mut EventContext<'_>) -> Result<(), Rejected> {
        let state = self.tiers.get_mut(usize::from(tier)).ok_or(Rejected::NoSuchTier)?;
        state.resize(capacity, state.budget);
        self.refuse_impossible(context);
        Ok(())
    }

    pub(super) fn set_budget(&mut self, tier: Tier, bytes: u64) -> Result<(), Rejected> {
        let state = self.tiers.get_mut(usize::from(tier)).ok_or(Rejected::NoSuchTier)?;
        state.resize(state.limit, bytes);
        Ok(())
    }

    /// Evicts from tiers that hold more than their capacity.
    pub(super) fn shrink_to_capacity(&mut self, context: &mut EventContext<'_>) {
        for tier in self.all_tiers() {
            let shortfall = self.tiers[usize::from(tier)].shortfall(0);
            if shortfall > 0 {
                self.vacate(tier, shortfall, None, context);
            }
        }
    }

    /// Reports the pressure levels that have changed.
    pub(super) fn report_pressure(&mut self, context: &mut EventContext<'_>) {
        for (tier, state) in (0u8..).zip(&mut self.tiers) {
            let level = match state.pressure.update(state.used, |_| {}) {
                _ if state.over_limit => Level::Critical,
                level => level,
            };
            if std::mem::replace(&mut state.reported, level) != level {
                context.actions.push(Action::Pressure { tier, level });
            }
        }
    }
}
