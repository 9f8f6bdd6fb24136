//! [`Backend`] for [`Cuda`]: each method calls one function of the driver.
//!
//! Promises upward: the contract of the trait; no method takes a lock of this crate.
//! Asks from below: `regions` and `pages` for memory; calls for streams, events and copies stand in this file.

use crate::context::{handle, number};
use crate::copy_batch::copy_batch;
use crate::cuda::Cuda;
use crate::hints;
use crate::layouts::NO_TIMING;
use crate::library::missing_fault;
use crate::pages;
use crate::regions;
use crate::result_codes::{NOT_READY, PEER_ACCESS_ALREADY_ENABLED, as_bad_handle, size};
use crate::streams::{create_stream, destroy_stream, stream_name};
use std::ptr::null_mut;
use terrace_device::{
    Advice, Backend, Capabilities, CopyRange, Description, Fault, FaultReason, Memory, MemoryKind, PhysicalHandle,
    PrefetchTarget, RawEvent, RawStream, meminfo,
};

impl Cuda {
    /// The device's free bytes (`told` by the driver), corrected for devices that share the host's memory.
    ///
    /// On those, the driver counts the page cache as used, although the system reclaims it on demand; `/proc/meminfo`
    /// counts it as available.
    fn free(&self, told: u64, total: u64) -> u64 {
        match meminfo::available() {
            Some(available) if self.description.capabilities.contains(Capabilities::FREE_IS_AVAILABLE) => {
                available.min(total)
            }
            _ => told,
        }
    }
}

/// CUDA's handle for the per-thread default stream.
const PER_THREAD: u64 = 2;

// SAFETY: each method is one call of CUDA, whose documentation guarantees what the trait demands: memory of the requested size,
// work in stream order, events that complete only after the work recorded before them. Pinned and managed memory are mapped
// for the host. `SYNCHRONOUS` is never set.
unsafe impl Backend for Cuda {
    fn description(&self) -> &Description {
        &self.description
    }

    fn memory(&self) -> Result<Memory, Fault> {
        let (mut free, mut total) = (0, 0);
        self.primary.call("cuMemGetInfo_v2", |core| {
            // SAFETY: both out parameters live through the call.
            unsafe { (core.cuMemGetInfo_v2)(&raw mut free, &raw mut total) }
        })?;
        Ok(Memory { free: self.free(free as u64, total as u64), total: total as u64 })
    }

    fn take(&self, kind: MemoryKind, bytes: u64) -> Result<u64, Fault> {
        regions::allocate(self, kind, bytes)
    }

    unsafe fn give_back(&self, kind: MemoryKind, address: u64, _bytes: u64) -> Result<(), Fault> {
        // SAFETY: the called function has the same contract as this method.
        unsafe { regions::free(self, kind, address) }
    }

    fn trim(&self) -> Result<(), Fault> {
        regions::trim(self)
    }

    fn reserve(&self, bytes: u64) -> Result<u64, Fault> {
        pages::reserve(self, bytes)
    }

    unsafe fn unreserve(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        // SAFETY: the called function has the same contract as this method.
        unsafe { pages::unreserve(self, address, bytes) }
    }

    fn create_handle(&self, bytes: u64) -> Result<PhysicalHandle, Fault> {
        pages::create(self, bytes)
    }

    unsafe fn release_handle(&self, handle: PhysicalHandle) -> Result<(), Fault> {
        // SAFETY: the called function has the same contract as this method.
        unsafe { pages::release(self, handle) }
    }

    unsafe fn map(&self, address: u64, bytes: u64, handle: PhysicalHandle) -> Result<(), Fault> {
        // SAFETY: the called function has the same contract as this method.
        unsafe { pages::map(self, address, bytes, handle) }
    }

    unsafe fn allow(&self, address: u64, bytes: u64, peers: &[u32]) -> Result<(), Fault> {
        // SAFETY: the called function has the same contract as this method.
        unsafe { pages::allow(self, address, bytes, peers) }
    }

    unsafe fn unmap(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        // SAFETY: the called function has the same contract as this method.
        unsafe { pages::unmap(self, address, bytes) }
    }

    fn create_stream(&self) -> Result<RawStream, Fault> {
        create_stream(&self.primary).map(RawStream)
    }

    unsafe fn destroy_stream(&self, stream: RawStream) -> Result<(), Fault> {
        // SAFETY: the called function has the same contract as this method.
        unsafe { destroy_stream(&self.primary, stream.0) }
    }

    unsafe fn stream_name(&self, stream: RawStream) -> Result<Option<u64>, Fault> {
        if stream.0 == PER_THREAD {
            // The handle means a different stream on each thread: a thread that polls it would query its own stream.
            return Err(Fault {
                code: 400,
                ..Fault::of("adopt the per-thread default stream", FaultReason::BadHandle)
            });
        }
        if !self.description.capabilities.contains(Capabilities::STREAM_NAMES) {
            return Ok(None);
        }
        // SAFETY: the caller promises a live stream.
        unsafe { stream_name(&self.primary, stream.0) }.map(Some)
    }

    unsafe fn is_idle(&self, stream: RawStream) -> Result<bool, Fault> {
        let mut answer = 0;
        let done = self.primary.call_relaxed("cuStreamQuery", |core| {
            // SAFETY: the caller promises live handles.
            answer = unsafe { (core.cuStreamQuery)(handle(stream.0)) };
            if answer == NOT_READY { 0 } else { answer }
        });
        done.map(|()| answer != NOT_READY).map_err(as_bad_handle)
    }

    unsafe fn synchronize_stream(&self, stream: RawStream) -> Result<(), Fault> {
        let done = self.primary.call_relaxed("cuStreamSynchronize", |core| {
            // SAFETY: the caller promises live handles.
            unsafe { (core.cuStreamSynchronize)(handle(stream.0)) }
        });
        done.map_err(as_bad_handle)
    }

    fn synchronize(&self) -> Result<(), Fault> {
        self.primary.call_relaxed("cuCtxSynchronize", |core| {
            // SAFETY: takes no arguments; the context is current.
            unsafe { (core.cuCtxSynchronize)() }
        })
    }

    fn create_event(&self) -> Result<RawEvent, Fault> {
        let mut event = null_mut();
        self.primary.call("cuEventCreate", |core| {
            // SAFETY: the out parameter lives through the call.
            unsafe { (core.cuEventCreate)(&raw mut event, NO_TIMING) }
        })?;
        Ok(RawEvent(number(event)))
    }

    unsafe fn destroy_event(&self, event: RawEvent) -> Result<(), Fault> {
        let done = self.primary.call("cuEventDestroy_v2", |core| {
            // SAFETY: the caller promises live handles.
            unsafe { (core.cuEventDestroy_v2)(handle(event.0)) }
        });
        done.map_err(as_bad_handle)
    }

    unsafe fn record(&self, event: RawEvent, stream: RawStream) -> Result<(), Fault> {
        let done = self.primary.call("cuEventRecord", |core| {
            // SAFETY: the caller promises live handles.
            unsafe { (core.cuEventRecord)(handle(event.0), handle(stream.0)) }
        });
        done.map_err(as_bad_handle)
    }

    unsafe fn query(&self, event: RawEvent) -> Result<bool, Fault> {
        let mut answer = 0;
        let done = self.primary.call_relaxed("cuEventQuery", |core| {
            // SAFETY: the caller promises live handles.
            answer = unsafe { (core.cuEventQuery)(handle(event.0)) };
            // "Not ready" is a result, not an error.
            if answer == NOT_READY { 0 } else { answer }
        });
        done.map(|()| answer != NOT_READY).map_err(as_bad_handle)
    }

    unsafe fn wait(&self, event: RawEvent) -> Result<(), Fault> {
        let done = self.primary.call_relaxed("cuEventSynchronize", |core| {
            // SAFETY: the caller promises live handles.
            unsafe { (core.cuEventSynchronize)(handle(event.0)) }
        });
        done.map_err(as_bad_handle)
    }

    unsafe fn order(&self, stream: RawStream, event: RawEvent) -> Result<(), Fault> {
        let done = self.primary.call("cuStreamWaitEvent", |core| {
            // SAFETY: the caller promises live handles.
            unsafe { (core.cuStreamWaitEvent)(handle(stream.0), handle(event.0), 0) }
        });
        done.map_err(as_bad_handle)
    }

    unsafe fn is_capturing(&self, stream: RawStream) -> Result<bool, Fault> {
        // A driver without this function cannot capture streams.
        let Ok(capture) = &self.primary.functions.capture else { return Ok(false) };
        let mut state = 0;
        let done = self.primary.call("cuStreamIsCapturing", |_| {
            // SAFETY: the caller promises a live stream; the out parameter lives through the call.
            unsafe { (capture.cuStreamIsCapturing)(handle(stream.0), &raw mut state) }
        });
        // 0 means no capture. A capture that became invalid counts as one until it ends.
        done.map(|()| state != 0).map_err(as_bad_handle)
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: u64, stream: RawStream) -> Result<(), Fault> {
        let size = size("cuMemcpyAsync", bytes)?;
        let done = self.primary.call("cuMemcpyAsync", |core| {
            // SAFETY: the caller promises both ranges; the driver tells host from device by the addresses.
            unsafe { (core.cuMemcpyAsync)(to, from, size, handle(stream.0)) }
        });
        done.map_err(as_bad_handle)
    }

    unsafe fn copy_batch(&self, copies: &[CopyRange], stream: RawStream) -> Result<(), Fault> {
        match &self.primary.functions.batches {
            // SAFETY: the called function has the same contract as this method.
            Ok(batches) if copies.len() > 1 && self.description.capabilities.contains(Capabilities::BATCHES) => unsafe {
                copy_batch(self, batches, copies, stream)
            },
            _ => copies.iter().try_for_each(|&CopyRange { to, from, bytes }| {
                // SAFETY: the caller promises each range of the batch.
                unsafe { self.copy(to, from, bytes, stream) }
            }),
        }
    }

    fn attach(&self) -> Result<(), Fault> {
        self.primary.attach()
    }

    unsafe fn copy_peer(&self, to: u64, from: u64, of: u32, bytes: u64, stream: RawStream) -> Result<(), Fault> {
        let peers = self.primary.functions.peers.as_ref().map_err(missing_fault)?;
        let size = size("cuMemcpyPeerAsync", bytes)?;
        let (own, other) = (self.primary.context(), self.peer_context(of)?.context());
        let done = self.primary.call("cuMemcpyPeerAsync", |_| {
            // SAFETY: the caller promises both ranges; both contexts are retained.
            unsafe { (peers.cuMemcpyPeerAsync)(to, own, from, other, size, handle(stream.0)) }
        });
        done.map_err(as_bad_handle)
    }

    unsafe fn fill(&self, address: u64, value: u8, bytes: u64, stream: RawStream) -> Result<(), Fault> {
        let size = size("cuMemsetD8Async", bytes)?;
        let done = self.primary.call("cuMemsetD8Async", |core| {
            // SAFETY: the caller promises the range.
            unsafe { (core.cuMemsetD8Async)(address, value, size, handle(stream.0)) }
        });
        done.map_err(as_bad_handle)
    }

    unsafe fn prefetch(&self, address: u64, bytes: u64, to: PrefetchTarget, stream: RawStream) -> Result<(), Fault> {
        // SAFETY: the called function has the same contract as this method.
        unsafe { hints::prefetch(self, address, bytes, to, stream) }
    }

    unsafe fn advise(&self, address: u64, bytes: u64, advice: Advice) -> Result<(), Fault> {
        // SAFETY: the called function has the same contract as this method.
        unsafe { hints::advise(self, address, bytes, advice) }
    }

    unsafe fn register(&self, address: u64, bytes: u64) -> Result<(), Fault> {
        // SAFETY: the called function has the same contract as this method.
        unsafe { regions::register(self, address, bytes) }
    }

    unsafe fn unregister(&self, address: u64) -> Result<(), Fault> {
        // SAFETY: the called function has the same contract as this method.
        unsafe { regions::unregister(self, address) }
    }

    fn can_reach(&self, ordinal: u32) -> Result<bool, Fault> {
        if ordinal == self.description.ordinal {
            return Ok(true);
        }
        self.can_access_peer(ordinal, false)
    }

    fn reach(&self, ordinal: u32) -> Result<(), Fault> {
        const CALL: &str = "cuCtxEnablePeerAccess";
        if ordinal == self.description.ordinal {
            return Ok(());
        }
        let peers = self.primary.functions.peers.as_ref().map_err(missing_fault)?;
        if !self.can_reach(ordinal)? {
            return Err(self.primary.fault(CALL, FaultReason::Unsupported));
        }
        let other = self.peer_context(ordinal)?.context();
        self.primary.call(CALL, |_| {
            // SAFETY: `self.peers` keeps the context retained.
            match unsafe { (peers.cuCtxEnablePeerAccess)(other, 0) } {
                PEER_ACCESS_ALREADY_ENABLED => 0,
                code => code,
            }
        })
    }
}
