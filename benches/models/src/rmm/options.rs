//! Options of RMM's pool and by how much it grows.
//!
//! Promises upward: pure arithmetic. Asks from below: nothing.

use terrace_core::SourceError;

/// Alignment of every block and step of every size: 256 bytes, what `cudaMalloc` promises.
pub const ALIGNMENT: u64 = 256;

/// How a pool starts and where it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RmmOptions {
    /// Bytes the first region has at least. Taken with the first allocation (RMM takes it when constructed).
    pub initial: u64,
    /// Most bytes the pool takes; 0 for no maximum, and then the pool doubles.
    pub maximum: u64,
}

impl RmmOptions {
    /// Bytes to ask the source for, when `bytes` (a multiple of 256) are needed and the pool has `pool`.
    pub(super) fn growth(&self, bytes: u64, pool: u64) -> Result<u64, SourceError> {
        if pool == 0 && self.initial > 0 {
            return Ok(bytes.max(self.initial.next_multiple_of(ALIGNMENT)));
        }
        if self.maximum == 0 {
            return Ok(bytes.max(pool));
        }
        let remaining = self.maximum.saturating_sub(pool).next_multiple_of(ALIGNMENT);
        if bytes > remaining {
            return Err(SourceError::OutOfMemory { available: remaining });
        }
        Ok(bytes.max(remaining / 2))
    }
}
