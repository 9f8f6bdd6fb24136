//! Measures the speed of a disk and of memory, within about two seconds each.
//!
//! Promises upward: bounded time and space; every figure has its unit in its name; an error says why a disk cannot be
//! measured.
//! Asks from below: I/O engines (`terrace-file`), on Linux only.

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

/// The phases of a disk measurement, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Writes of 1 MiB pieces at queue depth 4.
    Write,
    /// Random 4K reads at queue depth 1.
    Random,
    /// Sequential 4K reads at queue depth 1.
    Sequential,
    /// Random 4K reads at queue depth 16.
    Deep,
    /// Reads of 1 MiB pieces at queue depth 4.
    Read,
}

impl Phase {
    /// All phases, in order.
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

/// Figures measured of a disk. The field names are JSON keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskFigures {
    /// Size in bytes of the file that was written and read back.
    pub file_bytes: u64,
    /// Whether direct I/O bypassed the page cache. If not, the file's cached pages were dropped before each read phase.
    pub direct: bool,
    /// The I/O engine: `ring` or `threads`.
    pub engine: &'static str,
    /// Bytes written a second, in 1 MiB pieces at queue depth 4; the time includes the final sync.
    pub write_bytes_per_s: u64,
    /// Bytes read a second, in 1 MiB pieces at queue depth 4.
    pub read_bytes_per_s: u64,
    /// Median latency of random 4K reads at queue depth 1, in nanoseconds.
    pub random_4k_read_p50_ns: u64,
    /// Random 4K reads a second at queue depth 1.
    pub random_4k_qd1_iops: u64,
    /// Sequential 4K reads a second at queue depth 1.
    pub sequential_4k_qd1_iops: u64,
    /// Random 4K reads a second at queue depth 16.
    pub random_4k_qd16_iops: u64,
    /// Ratio of random to sequential 4K reads a second at queue depth 1.
    pub random_over_sequential: f64,
    /// Ratio of random 4K reads a second at queue depth 16 to those at depth 1.
    pub depth_scaling: f64,
}

/// Returns the next number of the splitmix64 generator (Steele and others, 2014). It gives read orders that no disk
/// predicts, and bytes that no disk compresses.
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (*state ^ (*state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
