//! What tiers of memory may hold now: less while other programs need the memory, and again more when they do not.
//!
//! Promises upward: a tier shrinks at once, and what leaves it goes back to the system or the driver; the tier of the
//! machine's memory grows back in steps, and keeps an eighth of its limit, or of the memory that there is at all, whatever
//! others need.
//! Asks from below: what the system says is available, its control groups and stalls; what drivers have left, and
//! refused lately.

use super::state::State;
use super::{ManagerShared, TierStorage};
use crate::detect::{self, CpuMemory};
use crate::ledger::LedgerEvent;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use terrace_core::residence::Tier;

/// Other programs are to find at least one part in this many of the memory free, or what `min_free` says if that is more: of
/// the machine, of the control group, or of a device tier's limit.
const SPARE: u64 = 32;

/// But `min_free` takes no more than one part in this many.
const MOST_SPARE: u64 = 8;

/// So much more is to be free when tasks waited for memory in this percentage of the last ten seconds.
const STALLED_PERCENT: f64 = 10.0;

/// The tier of the machine's memory grows by at most one part in this many of [`State::most`] at a time, so that it does not
/// take what others are about to need again.
const GROWTH: u64 = 8;

/// It never shrinks below one part in this many of the same.
const LEAST: u64 = 8;

/// Changes of a capacity by at most one part in this many of the same are ignored, unless the limit is reached.
const SMALL: u64 = 64;

/// Bytes that the manager's threads, rings and tables take beside buffers and staging memory: two to three MiB were
/// measured, which a control group counts.
const OWN: u64 = 4 << 20;

/// For so many milliseconds a tier holds no more than it held when its driver refused memory.
const REFUSED: u64 = 10_000;

/// What a tier may hold, whatever its limit is.
#[derive(Clone, Copy, Debug)]
pub(super) struct TierBudget {
    /// Bytes that others leave to it of the machine's memory, if it is a tier of that.
    machine: u64,
    /// Bytes that others leave to it of a device's memory, if it is a tier of that.
    device: u64,
    /// Bytes that it held when its driver refused memory, and until when it may hold no more.
    refused: Option<(u64, u64)>,
    /// Bytes of the machine's memory, or the limit of its control groups if that is less, if it is a tier of that memory.
    whole: u64,
}

impl TierBudget {
    pub(super) const UNLIMITED: Self = Self { machine: u64::MAX, device: u64::MAX, refused: None, whole: u64::MAX };

    /// The fewest of these bytes, at the time `now`; `least` after a driver has refused memory.
    fn bytes(&self, now: u64, least: u64) -> u64 {
        let refused = self.refused.filter(|(_, until)| now < *until).map_or(u64::MAX, |(held, _)| held.max(least));
        self.machine.min(self.device).min(refused)
    }
}

/// Bytes of the machine's memory, or the lowest limit of this process's control groups if that is less.
fn whole_memory(cpu: &CpuMemory) -> u64 {
    let group = cpu.groups.lowest_limit().map_or(u64::MAX, |limit| limit.limit_bytes);
    cpu.total_bytes.unwrap_or(u64::MAX).min(group)
}

/// Bytes that a tier of the machine's memory, `whole` bytes, may hold if it holds `held` bytes now. `None` where the
/// system does not say what is available.
fn machine_share(cpu: &CpuMemory, whole: u64, held: u64, min_free: u64) -> Option<u64> {
    let left = detect::left(cpu)?;
    let stalls = [cpu.memory_pressure, cpu.groups.memory_pressure].into_iter().flatten();
    let stalled = stalls.map(|pressure| pressure.some.avg10_percent).fold(0.0, f64::max);
    let least = (whole / SPARE).max(min_free.min(whole / MOST_SPARE));
    let spare = least as f64 * (1.0 + stalled / STALLED_PERCENT);
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

    /// The budget of a tier, in bytes.
    pub(super) fn budget(&self, tier: Tier) -> u64 {
        self.budgets[usize::from(tier)].bytes(self.now, self.most(tier) / LEAST)
    }

    /// The limit of a tier, or all memory that there is if that is less, in bytes.
    fn most(&self, tier: Tier) -> u64 {
        self.limits[usize::from(tier)].min(self.budgets[usize::from(tier)].whole)
    }

    /// Tells the ledger what a tier may hold now, if that has changed much.
    fn follow_budget(&mut self, shared: &Arc<ManagerShared>, tier: Tier) {
        let Some(view) = self.ledger.tier(tier) else { return };
        let (limit, bytes) = (self.limits[usize::from(tier)], self.budget(tier));
        if bytes.min(view.limit).abs_diff(view.capacity) > if bytes >= limit { 0 } else { self.most(tier) / SMALL } {
            let _ = self.handle(shared, LedgerEvent::Budget { tier, bytes });
        }
    }
}

impl ManagerShared {
    /// Adjusts the tier of the machine's memory to what the system has left.
    pub(super) fn follow_machine_memory(self: &Arc<Self>) {
        let (Some(tier), cpu) = (self.memory(), CpuMemory::read(&self.system_root)) else { return };
        let held = match self.storage(tier) {
            Some(TierStorage::Memory(frames)) => {
                (frames.resident() as u64).saturating_sub(self.blank_bytes.load(Ordering::Relaxed))
            }
            _ => self.state().ledger.tier(tier).map_or(0, |view| view.used),
        };
        let whole = whole_memory(&cpu);
        let min_free = self.min_free.load(Ordering::Relaxed);
        let Some(share) = machine_share(&cpu, whole, held, min_free) else { return };
        // What the manager has not touched yet is left now, and may be touched at any time.
        let staging = self.frames.usage().1 - self.frames.resident();
        let share = share.saturating_sub(staging as u64 + OWN);
        let mut state = self.state();
        state.budgets[usize::from(tier)].whole = whole;
        let most = state.most(tier);
        let budget = &mut state.budgets[usize::from(tier)];
        budget.machine = share.max(most / LEAST).min(budget.machine.saturating_add(most / GROWTH));
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
            state.budgets[usize::from(tier)].device = room.capacity(view.used, most / SPARE);
            state.follow_budget(self, tier);
            self.unlock(state);
            // Returns the memory of copies that left the tier to the driver.
            if room.is_short(most / SPARE) {
                gpu.trim();
            }
        }
    }
}
