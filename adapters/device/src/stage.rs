//! Memory that bytes pass through on their way between ordinary memory and a device: a region of pinned memory.
//!
//! Promises upward: it goes back when it is dropped; whoever drops it knows that nothing is in flight on it.
//! Asks from below: [`Backend::take`](crate::Backend::take) of [`Kind::Pinned`], whose memory the host reads and writes.

use crate::backend::{CopyRange, Kind};
use crate::fault::Fault;
use crate::loss::insist;
use crate::pool::Service;
use std::sync::Arc;

pub(super) struct Stage {
    service: Arc<dyn Service>,
    address: u64,
    pub(super) bytes: u64,
}

impl Stage {
    /// # Errors
    /// The driver's.
    pub(super) fn new(service: &Arc<dyn Service>, bytes: u64) -> Result<Self, Fault> {
        let address = service.backend().take(Kind::Pinned, bytes)?;
        Ok(Self { service: Arc::clone(service), address, bytes })
    }

    /// The ranges one after the other in here: from `ranges`' own sources to here, and on from here.
    ///
    /// # Safety
    /// Sources are live host memory; nothing is in flight here; together they have at most [`Stage::bytes`].
    pub(super) unsafe fn fill(&mut self, ranges: &[CopyRange]) {
        let mut at = self.address;
        for range in ranges {
            // SAFETY: the caller's promise: the source is alive, and all of them fit in here.
            unsafe { copy(at, range.from, range.bytes) };
            at += range.bytes;
        }
    }

    /// The other way: from here to the ranges' own targets.
    ///
    /// # Safety
    /// Targets are live host memory that nobody else uses; nothing is in flight here; together they have at most
    /// [`Stage::bytes`].
    pub(super) unsafe fn empty(&self, ranges: impl Iterator<Item = CopyRange>) {
        let mut at = self.address;
        for range in ranges {
            // SAFETY: the caller's promise: the target is alive and its own, and all of them fit in here.
            unsafe { copy(range.to, at, range.bytes) };
            at += range.bytes;
        }
    }

    /// The ranges with this memory in the host's place.
    pub(super) fn through(&self, ranges: &[CopyRange], up: bool) -> Vec<CopyRange> {
        let mut at = self.address;
        let staged = ranges.iter().map(|&range| {
            let here = at;
            at += range.bytes;
            if up { CopyRange { from: here, ..range } } else { CopyRange { to: here, ..range } }
        });
        staged.collect()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let backend = self.service.backend();
        // SAFETY: taken by `new` with these bytes, given back here once; nothing is in flight on it.
        let _ = insist(|| unsafe { backend.give_back(Kind::Pinned, self.address, self.bytes) });
    }
}

/// Copies host memory.
///
/// # Safety
/// Both ranges are live host memory and do not overlap; nobody else uses the target.
unsafe fn copy(to: u64, from: u64, bytes: u64) {
    let source: *const u8 = std::ptr::with_exposed_provenance(from as usize);
    let target: *mut u8 = std::ptr::with_exposed_provenance_mut(to as usize);
    // SAFETY: the caller's promise.
    unsafe { source.copy_to_nonoverlapping(target, bytes as usize) };
}
