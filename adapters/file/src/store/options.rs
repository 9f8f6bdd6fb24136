//! How much a store may take, and in what files.

use super::error::StoreError;
use super::superblock;
use crate::frame::ALIGN;

/// Bytes of the largest step by which a log grows: sums of a few logs stay far below 2^64.
const LOG: u64 = 1 << 40;

/// How much a store may take, and in what files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Bytes that all files together may take.
    pub cap: u64,
    /// Bytes of a slab: no piece is larger, nor larger than 2 GiB less a page.
    pub slab_bytes: u64,
    /// Bytes of a log, or of a step by which it grows: it has room for twice what is to be said of all durable objects (29
    /// bytes for a piece; 11 and the meta data for an object), in two copies. The same again is kept for the next one, in a file
    /// of its own where the disk has room for it.
    pub log_bytes: u64,
}

impl StoreOptions {
    /// For so many bytes on the disk: slabs of a sixty-fourth (1 MiB to 1 GiB), logs of a 256th (256 KiB to 1 GiB).
    pub fn new(cap: u64) -> Self {
        let page = ALIGN as u64;
        let slab_bytes = (cap / 64).clamp(1 << 20, 1 << 30) / page * page;
        Self { cap, slab_bytes, log_bytes: (cap / 256).clamp(256 << 10, 1 << 30) / page * page }
    }

    /// Bytes of a slab, two logs and the superblock: no cap is smaller.
    pub fn least_cap(&self) -> u64 {
        self.slab_bytes.saturating_add(self.log_bytes.saturating_mul(2)).saturating_add(superblock::BYTES)
    }

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
