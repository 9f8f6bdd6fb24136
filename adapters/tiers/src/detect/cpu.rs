//! The machine's memory: its size, its limits by control groups, its pressure.
//!
//! Promises upward: what the system does not report is `None`.
//! Asks from below: `/proc/meminfo`, `/proc/pressure`, control groups.

use super::groups::ControlGroups;
use super::pressure::PressureStall;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;
use terrace_device::meminfo;

/// Size, limits and pressure of the machine's memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuMemory {
    /// Total bytes.
    pub total_bytes: Option<u64>,
    /// Bytes available without swapping, reclaimable page cache included (`MemAvailable`).
    pub available_bytes: Option<u64>,
    /// Limits and pressure of this process's control groups.
    pub groups: ControlGroups,
    /// Memory pressure of the whole machine.
    pub memory_pressure: Option<PressureStall>,
    /// I/O pressure of the whole machine.
    pub io_pressure: Option<PressureStall>,
}

impl CpuMemory {
    /// Reads the facts from `/proc` and from control groups, under `root`.
    pub fn read(root: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        let text = read("proc/meminfo").unwrap_or_default();
        Self {
            total_bytes: meminfo::field(&text, "MemTotal:"),
            available_bytes: meminfo::field(&text, "MemAvailable:"),
            groups: ControlGroups::read(root),
            memory_pressure: read("proc/pressure/memory").and_then(|text| PressureStall::parse(&text)),
            io_pressure: read("proc/pressure/io").and_then(|text| PressureStall::parse(&text)),
        }
    }
}

/// The share of processor time, 0 to 1, that programs use while this thread sleeps.
///
/// `during`: how long it sleeps. `None` where the system does not say.
pub fn busy(during: Duration) -> Option<f64> {
    let look = || std::fs::read_to_string("/proc/stat").ok();
    let before = look()?;
    std::thread::sleep(during);
    busy_between(&before, &look()?)
}

/// As [`busy`], between two contents of `/proc/stat`.
fn busy_between(before: &str, after: &str) -> Option<f64> {
    // The first line: user, nice, system, idle and iowait ticks of all processors together, then others that are busy.
    let ticks = |text: &str| -> Option<(u64, u64)> {
        let fields: Vec<u64> = text
            .lines()
            .next()?
            .strip_prefix("cpu ")?
            .split_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        Some((fields.iter().take(8).sum(), fields.get(3)? + fields.get(4)?))
    };
    let ((all, idle), (all_after, idle_after)) = (ticks(before)?, ticks(after)?);
    let all = all_after.checked_sub(all).filter(|all| *all > 0)?;
    Some(1.0 - idle_after.saturating_sub(idle).min(all) as f64 / all as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_what_is_not_idle() {
        let before = "cpu  100 0 100 700 100 0 0 0 0 0\ncpu0 1 2 3 4\n";
        assert_eq!(busy_between(before, "cpu  120 0 130 740 110 0 0 0 0 0\n"), Some(0.5));
        assert_eq!(busy_between(before, "cpu  100 0 100 800 100 0 0 0 0 0\n"), Some(0.0));
        assert_eq!(busy_between(before, before), None, "no time has passed");
        assert_eq!(busy_between("", before), None);
        assert_eq!(busy_between(before, "intr 5\n"), None);
    }

    #[test]
    fn this_machine_s_share_is_one_or_unknown() {
        let share = busy(Duration::from_millis(50));
        assert!(share.is_none_or(|share| (0.0..=1.0).contains(&share)), "{share:?}");
    }
}
