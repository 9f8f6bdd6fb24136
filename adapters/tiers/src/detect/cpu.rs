//! The machine's memory: its size, its limits by control groups, its pressure.
//!
//! Promises upward: what the system does not report is `None`.
//! Asks from below: `/proc/meminfo`, `/proc/pressure`, control groups.

use super::groups::ControlGroups;
use super::pressure::PressureStall;
use serde::Serialize;
use std::path::Path;
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
