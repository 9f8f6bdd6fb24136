//! Counters by tag, and of a region of code.
//!
//! Promises upward: plain values; a table that fits a terminal.
//! Asks from below: [`list`](crate::list), for columns.

use crate::list::{printable, width};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// What was counted under one tag, or under all, while the tracker was on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TagStats {
    /// Name of the tag; empty for blocks without one.
    pub tag: String,
    /// Number of allocations.
    pub allocations: u64,
    /// Number of frees of these allocations.
    pub frees: u64,
    /// Bytes allocated since the tracker was made.
    pub bytes: u64,
    /// Bytes that are live now.
    pub live_bytes: u64,
    /// Most bytes that were live at a time. Off by at most 64 KiB for each thread, or 0.4 % where that is more.
    pub peak_bytes: u64,
}

impl TagStats {
    pub(crate) fn new(tag: &str, [allocations, frees, bytes, freed]: [u64; 4], peak: u64) -> Self {
        let live_bytes = (bytes.wrapping_sub(freed) as i64).max(0) as u64;
        Self { tag: tag.into(), allocations, frees, bytes, live_bytes, peak_bytes: peak.max(live_bytes) }
    }

    /// Number of blocks that are live now.
    pub fn live_blocks(&self) -> u64 {
        self.allocations.saturating_sub(self.frees)
    }
}

/// Counters of all tags at one moment, those with the most live bytes first.
///
/// Prints as a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TagTable {
    /// Name of the tracker.
    pub name: String,
    /// Tags under which anything was allocated.
    pub tags: Vec<TagStats>,
    /// The same of all tags together.
    pub total: TagStats,
}

impl TagTable {
    /// The counters of a tag, by its name.
    pub fn get(&self, tag: &str) -> Option<&TagStats> {
        self.tags.iter().find(|stats| stats.tag == tag)
    }
}

impl fmt::Display for TagTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tags = width("(no tag)", self.tags.iter().map(|stats| &*stats.tag));
        writeln!(f, "{}", printable(&self.name, 0))?;
        let titles = ["live bytes", "peak bytes", "all bytes", "allocations", "frees"];
        write!(f, "{:tags$}", "tag")?;
        titles.iter().try_for_each(|title| write!(f, "  {title:>15}"))?;
        writeln!(f)?;
        let total = TagStats { tag: "all".into(), ..self.total.clone() };
        for stats in self.tags.iter().chain([&total]) {
            let name = if stats.tag.is_empty() { "(no tag)" } else { &stats.tag };
            write!(f, "{}", printable(name, tags))?;
            let numbers = [stats.live_bytes, stats.peak_bytes, stats.bytes, stats.allocations, stats.frees];
            numbers.iter().try_for_each(|number| write!(f, "  {number:>15}"))?;
            writeln!(f)?;
        }
        Ok(())
    }
}

/// What the thread that opened a [`Scope`](crate::Scope) did since.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ScopeStats {
    /// Number of allocations.
    pub allocations: u64,
    /// Number of frees, also of blocks that were allocated before.
    pub frees: u64,
    /// Bytes allocated.
    pub bytes: u64,
    /// Bytes freed.
    pub freed_bytes: u64,
    /// Most bytes that the thread had live beyond those at the begin.
    pub peak_bytes: u64,
}

impl ScopeStats {
    /// Bytes allocated less bytes freed; below zero where more was freed.
    pub fn net_bytes(&self) -> i64 {
        self.bytes.wrapping_sub(self.freed_bytes) as i64
    }
}

impl fmt::Display for ScopeStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { allocations, frees, bytes, freed_bytes, peak_bytes } = self;
        write!(f, "{allocations} allocations of {bytes} bytes, {frees} frees of {freed_bytes} bytes")?;
        write!(f, ", at most {peak_bytes} bytes more than at the begin")
    }
}
