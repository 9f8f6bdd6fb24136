//! Which device and which tiers of this machine would hold an estimate.
//!
//! Promises upward: every device has a reason; no byte of memory is counted twice.
//! Asks from below: [`Device::best_for`], the tiers' detection.

use crate::tiers::gpus;
use serde::Serialize;
use terrace::Device;
use terrace::device::PassedBy;
use terrace_tiers::detect::{Machine, TierKind};

/// Where an estimate fits. The field names are the JSON keys.
#[derive(Debug, Serialize)]
pub struct FitReport {
    /// Bytes that are looked for.
    pub needed_bytes: u64,
    /// The device that has room for all of them.
    pub device: Option<String>,
    /// Bytes that it has room for.
    pub device_room_bytes: Option<u64>,
    /// The other devices.
    pub passed_by: Vec<PassedDevice>,
    /// Tiers from the fastest on, each with as much as fits.
    pub tiers: Vec<TierShare>,
    /// Whether all tiers together hold all.
    pub tiers_hold_all: bool,
}

/// A device that was not chosen.
#[derive(Debug, Serialize)]
pub struct PassedDevice {
    pub device: String,
    /// Why not, in words.
    pub why: String,
}

/// What a tier would hold.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct TierShare {
    /// `gpu`, `cpu`, `nvme`, `ssd` or `hdd`.
    pub tier: TierKind,
    /// The device, or where the disk is mounted.
    pub name: String,
    pub free_bytes: u64,
    pub holds_bytes: u64,
}

/// Looks at this machine.
pub fn fit(needed: u64) -> FitReport {
    let (device, passed_by) = match Device::best_for(needed) {
        Ok(best) => (Some((best.name, best.room)), best.passed_by),
        Err(none) => (None, none.passed_by),
    };
    let passed = |other: PassedBy| PassedDevice { why: other.to_string(), device: other.name };
    // GPUs that cannot be opened are among the devices that were passed by.
    let (gpus, _) = gpus();
    let tiers = fill(free(&Machine::detect(gpus)), needed);
    let (device, device_room_bytes) = device.unzip();
    FitReport {
        needed_bytes: needed,
        device,
        device_room_bytes,
        passed_by: passed_by.into_iter().map(passed).collect(),
        tiers_hold_all: tiers.iter().map(|tier| tier.holds_bytes).sum::<u64>() == needed,
        tiers,
    }
}

/// Free memory of each kind, the fastest first: GPUs, the machine's memory, and the disk of each kind that has the most.
fn free(machine: &Machine) -> Vec<(TierKind, String, u64)> {
    let mut free = Vec::new();
    // The machine's own budget comes first, then one for each GPU with memory of its own.
    for (at, budget) in machine.budgets.iter().enumerate() {
        let kind = if at == 0 { TierKind::Cpu } else { TierKind::Gpu };
        free.push((kind, budget.of.join(" + "), budget.bytes.unwrap_or(0)));
    }
    for kind in [TierKind::Nvme, TierKind::Ssd, TierKind::Hdd] {
        let disks = machine.disks.iter().filter(|disk| disk.class.tier == Some(kind));
        let most = disks.max_by_key(|disk| disk.free_bytes);
        free.extend(most.map(|disk| (kind, disk.mount.display().to_string(), disk.free_bytes.unwrap_or(0))));
    }
    free.sort_by_key(|(kind, _, bytes)| (*kind, std::cmp::Reverse(*bytes)));
    free
}

/// Puts bytes into the first tier, what does not fit into the second, and so on.
fn fill(free: Vec<(TierKind, String, u64)>, mut needed: u64) -> Vec<TierShare> {
    let share = |(tier, name, free_bytes): (TierKind, String, u64)| {
        let holds_bytes = needed.min(free_bytes);
        needed -= holds_bytes;
        TierShare { tier, name, free_bytes, holds_bytes }
    };
    free.into_iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_tier_cannot_hold_the_next_one_does() {
        let free = || {
            vec![(TierKind::Gpu, "a".to_owned(), 10), (TierKind::Cpu, "b".into(), 5), (TierKind::Ssd, "c".into(), 50)]
        };
        let holds = |needed| fill(free(), needed).iter().map(|tier| tier.holds_bytes).collect::<Vec<_>>();
        assert_eq!([holds(7), holds(12), holds(30), holds(100)], [[7, 0, 0], [10, 2, 0], [10, 5, 15], [10, 5, 50]]);
    }

    #[test]
    fn tiers_are_filled_from_the_fastest_on() {
        let kinds: Vec<TierKind> = free(&Machine::detect(Vec::new())).iter().map(|(kind, ..)| *kind).collect();
        assert!(kinds.is_sorted() && kinds.contains(&TierKind::Cpu), "{kinds:?}");
    }
}
