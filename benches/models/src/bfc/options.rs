//! Constants and options of the best-fit-with-coalescing allocator.
//!
//! Promises upward: pure arithmetic. Asks from below: nothing.

use crate::MIB;

/// Smallest size and step of every size: 256 bytes.
pub const MIN_CHUNK: u64 = 256;
/// Bins: bin `b` holds free chunks of 256 * 2^b bytes and more, the last one everything from 256 MiB.
pub const BINS: usize = 21;
/// Most bytes a block may have above its rounded size, when the options name no other: 128 MiB.
pub const MAX_WASTE: u64 = 128 * MIB;
/// Size of the first region: 2 MiB.
pub const FIRST_REGION: u64 = 2 * MIB;

/// How a BFC allocator grows and splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BfcOptions {
    /// Most bytes it takes from the source; 0 for the source's capacity.
    pub limit: u64,
    /// Start with 2 MiB and double (true), or take the whole limit as one region (false).
    pub allow_growth: bool,
    /// Give wholly free regions back before it fails.
    pub garbage_collection: bool,
    /// Most bytes a block may have above its rounded size.
    pub max_waste: u64,
}

impl Default for BfcOptions {
    fn default() -> Self {
        Self { limit: 0, allow_growth: true, garbage_collection: true, max_waste: MAX_WASTE }
    }
}

/// The bin of a size.
///
/// ```
/// use terrace_models::bfc::bin_of;
/// assert_eq!((bin_of(1), bin_of(511), bin_of(512), bin_of(1 << 40)), (0, 0, 1, 20));
/// ```
pub fn bin_of(bytes: u64) -> usize {
    ((bytes.max(MIN_CHUNK) / MIN_CHUNK).ilog2() as usize).min(BINS - 1)
}
