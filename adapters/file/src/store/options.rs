//! Limits of a store: its cap, and the sizes of its files.

use super::error::StoreError;
use super::superblock;
use crate::frame::ALIGN;

/// The largest step by which a log grows: a sum of a few logs stays far below 2^64.
const LOG: u64 = 1 << 40;

/// Limits of a store: its cap, and the sizes of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The most bytes that all files together may take.
    pub cap: u64,
    /// Bytes of a slab. A piece is no larger than a slab, nor than 2 GiB less a page.
    pub slab_bytes: u64,
    /// Bytes by which a log grows.
    ///
    /// A log has room for twice the records of all durable objects (29 bytes for a piece; 11 and the meta data for an object), in
    /// two copies. The same again is reserved for the next log, in a file of its own if the disk has room.
    pub log_bytes: u64,
}

impl StoreOptions {
    /// Options for a cap.
    ///
    /// Slabs of a sixty-fourth of it (1 MiB to 1 GiB), logs of a 256th (256 KiB to 1 GiB).
    pub fn new(cap: u64) -> Self {
        let page = ALIGN as u64;
        let slab_bytes = (cap / 64).clamp(1 << 20, 1 << 30) / page * page;
        Self { cap, slab_bytes, log_bytes: (cap / 256).clamp(256 << 10, 1 << 30) / page * page }
    }

    /// The smallest cap: a slab, two logs and the superblock.
    pub fn least_cap(&self) -> u64 {
        self.slab_bytes.saturating_add(self.log_bytes.saturating_mul(2)).saturating_add(superblock::BYTES)
    }

    /// Checks the ranges of the options.
    ///
    /// # Errors
    /// [`StoreError::BadOptions`].
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let page = ALIGN as u64;
        let bad = |what| Err(StoreError::BadOptions(what));
        match self {
            _ if self.slab_bytes == 0 || self.slab_bytes > u64::from(u32::MAX) => bad("slabs have 1 page to 4 GiB"),
            _ if !(self.slab_bytes | self.log_bytes).is_multiple_of(page) => bad("slabs and logs are whole pages"),
            // seeded: log_step: self.log_bytes > LOG => false
            _ if self.log_bytes < 8 * page || self.log_bytes > LOG => bad("a log grows by 8 pages to 1 TiB"),
            _ if self.cap < self.least_cap() => bad("the cap has room for a slab, two logs and 64 KiB at least"),
            _ => Ok(()),
        }
    }
}
