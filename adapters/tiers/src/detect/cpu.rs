//! The machine's memory: what is there, what groups allow, and how hard it is pressed.
//!
//! Promises upward: what the system does not say is `None`.
//! Asks from below: `/proc/meminfo`, `/proc/pressure`, control groups.

use super::groups::ControlGroups;
use super::pressure::PressureStall;
use serde::Serialize;
use std::path::Path;
use terrace_device::meminfo;

/// The machine's memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuMemory {
    /// In all.
    pub total_bytes: Option<u64>,
    /// What could be had now without swapping, files in memory included (`MemAvailable`).
    pub available_bytes: Option<u64>,
    /// Control groups.
    pub groups: ControlGroups,
    /// How long programs waited for memory.
    pub memory_pressure: Option<PressureStall>,
    /// How long they waited for disks.
    pub io_pressure: Option<PressureStall>,
}

impl CpuMemory {
    /// Looks.
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
