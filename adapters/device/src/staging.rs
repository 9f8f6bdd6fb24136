//! Staging memory: copies between ordinary memory and a device pass through it, so that the driver never gets the
//! address of memory that a caller only lent.
//!
//! Promises upward: a dropped staging buffer is freed; if a copy may still be in flight on it, it leaks instead.
//! Asks from below: [`Backend::take`] of [`MemoryKind::Pinned`], whose memory the host can access; the global allocator
//! where the device has no pinned memory.

use crate::backend::{Backend, CopyRange, MemoryKind};
use crate::capability::Capabilities;
use crate::fault::{Fault, FaultReason};
use crate::health::{DeviceHealth, insist};
use std::sync::Arc;

/// A region that only its owner, and copies to and from the device, may use.
pub(crate) struct StagingBuffer {
    backend: Arc<dyn Backend>,
    health: Arc<DeviceHealth>,
    address: u64,
    bytes: u64,
    /// Whether the memory is pinned, from the backend; otherwise it is from the global allocator.
    pinned: bool,
    /// Whether the driver got the buffer's address, and no wait has proved since that its copies are done.
    busy: bool,
}

impl StagingBuffer {
    /// Allocates `bytes` bytes: pinned where the device has pinned memory left, otherwise from the global allocator.
    ///
    /// # Errors
    /// The driver's error, if it is fatal; [`FaultReason::OutOfMemory`].
    pub(crate) fn new(backend: Arc<dyn Backend>, health: Arc<DeviceHealth>, bytes: u64) -> Result<Self, Fault> {
        health.check()?;
        let none = Fault::of("allocate staging memory", FaultReason::OutOfMemory);
        let pinned = backend.description().capabilities.contains(Capabilities::PINNED);
        let taken = if pinned { backend.take(MemoryKind::Pinned, bytes) } else { Err(none) };
        let (address, pinned) = match taken {
            Ok(address) => (address, true),
            Err(fault) if fault.is_fatal() => return Err(health.note(fault)),
            Err(_) => (ordinary(bytes).ok_or(none)?, false),
        };
        Ok(Self { backend, health, address, bytes, pinned, busy: false })
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies the ranges' sources into the staging memory, one after the other.
    ///
    /// # Safety
    /// The sources must be live host memory, of at most [`StagingBuffer::bytes`] bytes in all; no copy may be in flight
    /// here.
    pub(crate) unsafe fn fill(&mut self, ranges: &[CopyRange]) {
        let mut at = self.address;
        for range in ranges {
            // SAFETY: the caller's promise: the source is live, and all sources together fit into the buffer.
            unsafe { copy(at, range.from, range.bytes) };
            at += range.bytes;
        }
    }

    /// Copies the staged bytes, in order, to the ranges' targets.
    ///
    /// # Safety
    /// The targets must be live host memory, exclusively the caller's, of at most [`StagingBuffer::bytes`] bytes in
    /// all; no copy may be in flight here.
    pub(crate) unsafe fn empty(&self, ranges: impl Iterator<Item = CopyRange>) {
        let mut at = self.address;
        for range in ranges {
            // SAFETY: the caller's promise: the target is live and exclusively the caller's; the buffer has bytes for
            // all.
            unsafe { copy(range.to, at, range.bytes) };
            at += range.bytes;
        }
    }

    /// The ranges for the driver to copy, with staging memory in place of host memory; marks the buffer busy.
    pub(crate) fn lend(&mut self, ranges: &[CopyRange], up: bool) -> Vec<CopyRange> {
        self.busy = true;
        let mut at = self.address;
        let staged = ranges.iter().map(|&range| {
            let here = at;
            at += range.bytes;
            if up { CopyRange { from: here, ..range } } else { CopyRange { to: here, ..range } }
        });
        staged.collect()
    }

    /// Marks the buffer as not busy. Caller must have waited for every copy that used it.
    pub(crate) fn reclaim(&mut self) {
        self.busy = false;
    }
}

impl Drop for StagingBuffer {
    fn drop(&mut self) {
        if self.busy || self.health.check().is_err() {
            return;
        }
        if self.pinned {
            // SAFETY: `new` took the region with these bytes, and it is given back once, here; no copy is in flight on
            // it.
            let _ = insist(|| unsafe { self.backend.give_back(MemoryKind::Pinned, self.address, self.bytes) });
        } else {
            let start: *mut u8 = std::ptr::with_exposed_provenance_mut(self.address as usize);
            let all = std::ptr::slice_from_raw_parts_mut(start, self.bytes as usize);
            // SAFETY: `ordinary` took this box apart, and it is reassembled once, here; no copy is in flight on it.
            drop(unsafe { Box::from_raw(all) });
        }
    }
}

/// Allocates from the global allocator; returns the address, or `None` if memory is short.
fn ordinary(bytes: u64) -> Option<u64> {
    let (len, mut memory) = (usize::try_from(bytes).ok()?, Vec::new());
    memory.try_reserve_exact(len).ok()?;
    memory.resize(len, 0u8);
    Some(Box::into_raw(memory.into_boxed_slice()).cast::<u8>().expose_provenance() as u64)
}

/// Copies host memory.
///
/// # Safety
/// Both ranges must be live host memory and must not overlap; the target must be exclusively the caller's.
unsafe fn copy(to: u64, from: u64, bytes: u64) {
    let source: *const u8 = std::ptr::with_exposed_provenance(from as usize);
    let target: *mut u8 = std::ptr::with_exposed_provenance_mut(to as usize);
    // SAFETY: the caller's promise.
    unsafe { source.copy_to_nonoverlapping(target, bytes as usize) };
}
