//! The machine's memory: what is there, what groups allow, and how hard it is pressed.
//!
//! Promises upward: what the system does not say is `None`.
//! Asks from below: `/proc/meminfo`, `/proc/pressure`, control groups.

use super::groups::Groups;
use super::pressure::Pressure;
use serde::Serialize;
use std::path::Path;
use terrace_device::meminfo;

/// The machine's memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cpu {
    /// In all.
    pub total_bytes: Option<u64>,
    /// What could be had now without swapping, files in memory included (`MemAvailable`).
    pub available_bytes: Option<u64>,
    /// Control groups.
    pub groups: Groups,
    /// How long programs waited for memory.
    pub memory_pressure: Option<Pressure>,
    /// How long they waited for disks.
    pub io_pressure: Option<Pressure>,
}

impl Cpu {
    /// Looks.
    pub fn read(root: &Path) -> Self {
        let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
        let text = read("proc/meminfo").unwrap_or_default();
        Self {
            total_bytes: meminfo::field(&text, "MemTotal:"),
            available_bytes: meminfo::field(&text, "MemAvailable:"),
            groups: Groups::read(root),
            memory_pressure: read("proc/pressure/memory").and_then(|text| Pressure::parse(&text)),
            io_pressure: read("proc/pressure/io").and_then(|text| Pressure::parse(&text)),
        }
    }
}
