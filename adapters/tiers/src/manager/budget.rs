//! What tiers of memory may hold now: less while other programs need the memory, and again more when they do not.
//!
//! Promises upward: a tier shrinks at once, and what leaves it goes back to the system or the driver; the tier of the
//! machine's memory grows back in steps, and keeps an eighth of its limit whatever others need.
//! Asks from below: what the system says is available, its control groups and stalls; what drivers have left, and
//! refused lately.

use super::state::State;
use super::{ManagerShared, TierStorage};
use crate::detect::{self, CpuMemory};
use crate::ledger::{LedgerEvent, Medium};
use std::sync::Arc;
use terrace_core::residence::Tier;

/// Other programs are to find at least one part in this many of the memory free: of the machine, of the control group, or
/// of a device tier's limit.
const SPARE: u64 = 32;

/// So much more is to be free when tasks waited for memory in this percentage of the last ten seconds.
const STALLED_PERCENT: f64 = 10.0;

/// The tier of the machine's memory grows by at most one part in this many of its limit at a time, so that it does not
/// take what others are about to need again.
const GROWTH: u64 = 8;

/// It never shrinks below one part in this many of its limit.
const LEAST: u64 = 8;

/// Changes of a capacity by at most one part in this many of its limit are ignored, unless the limit is reached.
const SMALL: u64 = 64;

/// For so many milliseconds a tier holds no more than it held when its driver refused memory.
const REFUSED: u64 = 10_000;

/// What a tier may hold, whatever its limit is.
#[derive(Clone, Copy, Debug)]
pub(super) struct TierBudget {
    /// Bytes that others leave to it.
    bytes: u64,
    /// Bytes that it held when its driver refused memory, and until when it may hold no more.
    refused: Option<(u64, u64)>,
}

impl TierBudget {
    pub(super) const UNLIMITED: Self = Self { bytes: u64::MAX, refused: None };

    /// The fewest of these bytes, at the time `now`.
    pub(super) fn bytes(&self, now: u64) -> u64 {
        self.bytes.min(self.refused.filter(|(_, until)| now < *until).map_or(u64::MAX, |(held, _)| held))
    }
}

/// Bytes that a tier of the machine's memory may hold if it holds `held` bytes now. `None` where the system does not say
/// what is available.
fn machine_share(cpu: &CpuMemory, held: u64) -> Option<u64> {
    let left = detect::budgets(cpu, &[]).first()?.bytes?;
    let group = cpu.groups.lowest_limit().map_or(u64::MAX, |limit| limit.limit_bytes);
    let whole = cpu.total_bytes.unwrap_or(u64::MAX).min(group);
    let stalls = [cpu.memory_pressure, cpu.groups.memory_pressure].into_iter().flatten();
    let stalled = stalls.map(|pressure| pressure.some.avg10_percent).fold(0.0, f64::max);
    let spare = (whole / SPARE) as f64 * (1.0 + stalled / STALLED_PERCENT);
    Some(held.saturating_add(left).saturating_sub(spare as u64))
}

impl State {
    /// Records that a tier's driver has refused memory.
    pub(super) fn refused_memory(&mut self, tier: Tier) {
        if let (Some(view), Some(budget)) = (self.ledger.tier(tier), self.budgets.get_mut(usize::from(tier))) {
            budget.refused = Some((view.used, self.now.saturating_add(REFUSED)));
        }
    }

    /// Forgets that a tier's driver has refused memory: it has more now.
    pub(super) fn has_memory_again(&mut self, tier: Tier) {
        if let Some(budget) = self.budgets.get_mut(usize::from(tier)) {
            budget.refused = None;
        }
    }

    /// Resizes a tier to what it may hold now, if that has changed much.
    fn follow_budget(&mut self, shared: &Arc<ManagerShared>, tier: Tier) {
        let Some(view) = self.ledger.tier(tier) else { return };
        let (most, capacity) = (self.limits[usize::from(tier)], self.allowed(shared, tier));
        let whole = self.budgets[usize::from(tier)].bytes(self.now) >= most;
        if capacity.abs_diff(view.capacity) > if whole { 0 } else { most / SMALL } {
            let _ = self.handle(shared, LedgerEvent::Resize { tier, capacity });
        }
    }
}

impl ManagerShared {
    /// Adjusts the tier of the machine's memory to what the system has left.
    pub(super) fn follow_machine_memory(self: &Arc<Self>) {
        let (Some(tier), cpu) = (self.memory(), CpuMemory::read(&self.system_root)) else { return };
        let held = match self.storage(tier) {
            Some(TierStorage::Memory(frames)) => frames.resident() as u64,
            _ => self.state().ledger.tier(tier).map_or(0, |view| view.used),
        };
        let Some(share) = machine_share(&cpu, held) else { return };
        let mut state = self.state();
        let most = state.limits[usize::from(tier)];
        let budget = &mut state.budgets[usize::from(tier)];
        let next = share.max(most / LEAST).min(budget.bytes.min(most).saturating_add(most / GROWTH));
        // A limit that is raised later must not meet what a lower one has cut.
        budget.bytes = if next < most { next } else { u64::MAX };
        state.follow_budget(self, tier);
        self.unlock(state);
    }

    /// Adjusts the tiers on devices to what their drivers have left.
    pub(super) fn follow_device_memory(self: &Arc<Self>) {
        for tier in self.tiers() {
            let Some(gpu) = self.device_tier(tier) else { continue };
            // If a device does not answer, its capacity stays: calls that use the device report the error.
            let Ok(room) = gpu.room(self.medium(tier)) else { continue };
            let mut state = self.state();
            let Some(view) = state.ledger.tier(tier) else { continue };
            let most = state.limits[usize::from(tier)];
            let share = room.capacity(view.used, most / SPARE);
            let budget = &mut state.budgets[usize::from(tier)];
            // Memory that a device shares with the machine has a budget by the machine's account too.
            budget.bytes = if self.medium(tier) == Medium::Device { share } else { share.min(budget.bytes) };
            state.follow_budget(self, tier);
            self.unlock(state);
            // Returns the memory of copies that left the tier to the driver.
            if room.is_short(most / SPARE) {
                gpu.trim();
            }
        }
    }
}
