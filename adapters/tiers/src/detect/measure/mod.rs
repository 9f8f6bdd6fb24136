//! How fast a disk and the memory are, within about two seconds each.
//!
//! Promises upward: bounded time and space; every figure with its unit in its name; where something cannot be measured,
//! why.
//! Asks from below: engines for files (`terrace-file`), Linux only.

#[cfg(target_os = "linux")]
mod disk;
#[cfg(target_os = "linux")]
mod load;
mod memory;

#[cfg(target_os = "linux")]
pub use disk::{DiskMeasureError, disk};
pub use memory::{MemoryFigures, memory};

use serde::Serialize;
use std::fmt;

/// What is measured of a disk, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Writing, in large pieces.
    Write,
    /// Random 4K reads, one at a time.
    Random,
    /// Sequential 4K reads, one at a time.
    Sequential,
    /// Random 4K reads, sixteen at a time.
    Deep,
    /// Reading, in large pieces.
    Read,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Write, Self::Random, Self::Sequential, Self::Deep, Self::Read];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Write => "writing",
            Self::Random => "random reads",
            Self::Sequential => "sequential reads",
            Self::Deep => "sixteen at a time",
            Self::Read => "reading",
        })
    }
}

/// What was measured of a disk. The names are JSON keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskFigures {
    /// Bytes that were written, and read back in all these ways.
    pub file_bytes: u64,
    /// Whether the page cache was passed by; where not, it was emptied before each read.
    pub direct: bool,
    /// `ring` or `threads`.
    pub engine: &'static str,
    /// Writing 1 MiB pieces, four at a time, until they were safe on the disk.
    pub write_bytes_per_s: u64,
    /// Reading them, four at a time.
    pub read_bytes_per_s: u64,
    /// Half of the random 4K reads, one at a time, took at most this.
    pub random_4k_read_p50_ns: u64,
    /// Random 4K reads a second, one at a time.
    pub random_4k_qd1_iops: u64,
    /// Sequential 4K reads a second, one at a time.
    pub sequential_4k_qd1_iops: u64,
    /// Random 4K reads a second, sixteen at a time.
    pub random_4k_qd16_iops: u64,
    /// Random over sequential 4K reads, one at a time.
    pub random_over_sequential: f64,
    /// Random 4K reads, sixteen at a time over one at a time.
    pub depth_scaling: f64,
}

/// A number for each state (splitmix64, Steele and others, 2014): for orders and bytes that no disk foresees.
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
