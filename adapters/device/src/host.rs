//! The host as a device: the same interface over ordinary memory, for programs and tests without a GPU.
//!
//! Promises upward: work is done before its call returns, in order of call, so nothing is ever in flight; calls for
//! pages and peers are refused as unsupported.
//! Asks from below: the system's pages, which are zero at first and take no memory until they are touched.

mod pages;

use crate::backend::{Backend, MemoryKind, RawEvent, RawStream};
use crate::capability::{Capabilities, Description, Memory};
use crate::fault::{Fault, FaultReason};
use crate::meminfo;
use std::sync::atomic::{AtomicU64, Ordering};

/// A backend over ordinary host memory.
#[derive(Debug)]
pub struct HostBackend {
    description: Description,
    /// The handle that the next stream or event gets.
    names: AtomicU64,
    /// Bytes in allocated regions.
    taken: AtomicU64,
}

impl Default for HostBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl HostBackend {
    /// A device as large as the host's memory.
    pub fn new() -> Self {
        // If the system does not report its memory, only the system's own refusal limits allocations.
        Self::with_total(meminfo::total().unwrap_or(1 << 46))
    }

    /// A device of `total` bytes of memory.
    pub fn with_total(total: u64) -> Self {
        let capabilities = Capabilities::SYNCHRONOUS
            | Capabilities::MANAGED
            | Capabilities::CONCURRENT_MANAGED
            | Capabilities::PINNED
            | Capabilities::REGISTRATION
            | Capabilities::INTEGRATED
            | Capabilities::PROCESSOR
            | Capabilities::PAGEABLE
            | Capabilities::HOST_ATOMICS
            | Capabilities::FREE_IS_AVAILABLE
            | Capabilities::STREAM_NAMES;
        let description = Description {
            backend: "host",
            ordinal: 0,
            name: "host memory".into(),
            driver: "none".into(),
            total,
            page_bytes: 0,
            peers: Vec::new(),
            strangers: Vec::new(),
            capabilities,
            notes: vec!["no pages: memory comes in segments".into()],
        };
        Self { description, names: AtomicU64::new(1), taken: AtomicU64::new(0) }
    }
}

// SAFETY: regions are fresh pages of this process, which nothing else uses until they are given back. Copies and fills
// are done when their call returns, so every answer about streams and events is "done", and true.
unsafe impl Backend for HostBackend {
    fn description(&self) -> &Description {
        &self.description
    }

    fn memory(&self) -> Result<Memory, Fault> {
        let total = self.description.total;
        let own = total.saturating_sub(self.taken.load(Ordering::Relaxed));
        Ok(Memory { free: meminfo::available().unwrap_or(own).min(own), total })
    }

    fn take(&self, _: MemoryKind, bytes: u64) -> Result<u64, Fault> {
        let refused = Fault::of("alloc", FaultReason::OutOfMemory);
        let size = usize::try_from(bytes).ok().filter(|&size| size > 0).ok_or(refused)?;
        let total = self.description.total;
        let taken = self.taken.try_update(Ordering::Relaxed, Ordering::Relaxed, |taken| {
            taken.checked_add(bytes).filter(|&taken| taken <= total)
        });
        taken.map_err(|_| refused)?;
        let region = pages::take(size).inspect_err(|_| _ = self.taken.fetch_sub(bytes, Ordering::Relaxed));
        Ok(region.map_err(|()| refused)?.expose_provenance() as u64)
    }

    unsafe fn give_back(&self, _: MemoryKind, address: u64, bytes: u64) -> Result<(), Fault> {
        let region = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the caller passes a region that `take` returned, with the size that was requested.
        unsafe { pages::give_back(region, bytes as usize) };
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn create_stream(&self) -> Result<RawStream, Fault> {
        Ok(RawStream(self.names.fetch_add(1, Ordering::Relaxed)))
    }

    unsafe fn destroy_stream(&self, _: RawStream) -> Result<(), Fault> {
        Ok(())
    }

    unsafe fn stream_name(&self, stream: RawStream) -> Result<Option<u64>, Fault> {
        Ok(Some(stream.0))
    }

    unsafe fn is_idle(&self, _: RawStream) -> Result<bool, Fault> {
        Ok(true)
    }

    unsafe fn synchronize_stream(&self, _: RawStream) -> Result<(), Fault> {
        Ok(())
    }

    fn synchronize(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn create_event(&self) -> Result<RawEvent, Fault> {
        Ok(RawEvent(self.names.fetch_add(1, Ordering::Relaxed)))
    }

    unsafe fn destroy_event(&self, _: RawEvent) -> Result<(), Fault> {
        Ok(())
    }

    unsafe fn record(&self, _: RawEvent, _: RawStream) -> Result<(), Fault> {
        Ok(())
    }

    unsafe fn query(&self, _: RawEvent) -> Result<bool, Fault> {
        Ok(true)
    }

    unsafe fn wait(&self, _: RawEvent) -> Result<(), Fault> {
        Ok(())
    }

    unsafe fn order(&self, _: RawStream, _: RawEvent) -> Result<(), Fault> {
        Ok(())
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: u64, _: RawStream) -> Result<(), Fault> {
        let from: *const u8 = std::ptr::with_exposed_provenance(from as usize);
        let to: *mut u8 = std::ptr::with_exposed_provenance_mut(to as usize);
        // Not `copy_nonoverlapping`: wrapped memory may overlap other blocks.
        // SAFETY: the caller passes ranges of live memory.
        unsafe { std::ptr::copy(from, to, bytes as usize) };
        Ok(())
    }

    unsafe fn fill(&self, address: u64, value: u8, bytes: u64, _: RawStream) -> Result<(), Fault> {
        let to: *mut u8 = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the caller passes a range of live memory.
        unsafe { std::ptr::write_bytes(to, value, bytes as usize) };
        Ok(())
    }

    /// Does nothing: this device can access all host memory.
    unsafe fn register(&self, _: u64, _: u64) -> Result<(), Fault> {
        Ok(())
    }

    unsafe fn unregister(&self, _: u64) -> Result<(), Fault> {
        Ok(())
    }
}
