//! [`Backend`] for [`OpenClBackend`]: each method makes one call of the driver, or a few.
//!
//! Promises upward: the contract of the trait. A lock is taken for an event, for queues that come and go, and to look an
//! address up.
//! Asks from below: `regions` for memory, `copies`, `queues`, `events`.

use crate::connection::{handle, number};
use crate::copies::{self, LocatedMemory, locate};
use crate::events::ReusedEvent;
use crate::memory::OpenClMemory;
use crate::opencl::{OpenClBackend, OpenClState};
use crate::regions;
use std::sync::atomic::Ordering;
use terrace_device::{
    Backend, Capabilities, Description, Fault, Memory, MemoryKind, MemoryPlace, PrefetchTarget, RawEvent, RawStream,
    meminfo,
};

impl OpenClBackend {
    /// The device, refused in a forked child before a lock is touched, which another thread of the parent may have held.
    #[inline]
    fn own(&self, call: &'static str) -> Result<&OpenClState, Fault> {
        self.inner.connection.check_process(call).map(|()| &*self.inner)
    }
}

/// The event behind a handle.
///
/// # Safety
/// The handle must be live, and so for the lifetime that the caller takes.
unsafe fn event<'a>(raw: RawEvent) -> &'a ReusedEvent {
    let event: *mut ReusedEvent = handle(raw.0);
    // SAFETY: made by `create_event`; the caller promises that it is not destroyed.
    unsafe { &*event }
}

// SAFETY: regions are allocations of the driver's, with addresses of their own; what the host reaches stays mapped, or is
// fine-grained. Queues keep the order of their commands, also adopted ones; a marker completes after all commands before it, and a
// barrier holds those after it back. Every queue that work was put on is known to `queues`. `SYNCHRONOUS` is never set.
unsafe impl Backend for OpenClBackend {
    fn description(&self) -> &Description {
        &self.inner.description
    }

    fn memory(&self) -> Result<Memory, Fault> {
        let (total, taken) = (self.inner.description.total, self.inner.taken.load(Ordering::Relaxed));
        let free = total.saturating_sub(taken);
        let shared = self.inner.description.capabilities.contains(Capabilities::FREE_IS_AVAILABLE);
        let available = meminfo::available().filter(|_| shared);
        Ok(Memory { free: available.map_or(free, |available| available.min(free)), total })
    }

    fn take(&self, kind: MemoryKind, bytes: u64) -> Result<u64, Fault> {
        regions::allocate(self.own("take")?, kind, bytes)
    }

    unsafe fn give_back(&self, kind: MemoryKind, address: u64, bytes: u64) -> Result<(), Fault> {
        let inner = self.own("give back")?;
        // SAFETY: the called function has the same contract as this method.
        unsafe { regions::free(inner, kind, address, bytes) }
    }

    /// What sub-buffers are aligned to, where blocks are buffers: each command on one makes a sub-buffer.
    fn least_granule(&self) -> u64 {
        if self.inner.memory == OpenClMemory::Buffers { self.inner.align } else { 1 }
    }

    fn place(&self, address: u64) -> MemoryPlace {
        match self.own("place").map(|inner| locate(inner, address)) {
            Ok(LocatedMemory::Buffer { buffer, offset }) => MemoryPlace { object: buffer, offset },
            _ => MemoryPlace { object: 0, offset: address },
        }
    }

    fn create_stream(&self) -> Result<RawStream, Fault> {
        let inner = self.own("clCreateCommandQueue")?;
        inner.queues.create(&inner.connection).map(RawStream)
    }

    unsafe fn destroy_stream(&self, stream: RawStream) -> Result<(), Fault> {
        let inner = self.own("clReleaseCommandQueue")?;
        // SAFETY: the called function has the same contract as this method.
        unsafe { inner.queues.destroy(&inner.connection, stream.0) }
    }

    unsafe fn stream_name(&self, stream: RawStream) -> Result<Option<u64>, Fault> {
        let inner = self.own("clGetCommandQueueInfo")?;
        // SAFETY: the caller promises a live stream.
        unsafe { inner.queues.id(&inner.connection, stream.0) }.map(Some)
    }

    unsafe fn synchronize_stream(&self, stream: RawStream) -> Result<(), Fault> {
        let inner = self.own("clFinish")?;
        // SAFETY: the caller promises a live stream.
        unsafe { inner.queues.finish(&inner.connection, stream.0) }
    }

    fn synchronize(&self) -> Result<(), Fault> {
        let inner = self.own("clFinish")?;
        inner.queues.synchronize(&inner.connection)
    }

    fn create_event(&self) -> Result<RawEvent, Fault> {
        self.own("create event")?;
        Ok(RawEvent(number(Box::into_raw(Box::<ReusedEvent>::default()))))
    }

    unsafe fn destroy_event(&self, raw: RawEvent) -> Result<(), Fault> {
        let inner = self.own("clReleaseEvent")?;
        // SAFETY: the caller promises a live event.
        unsafe { event(raw) }.close(&inner.connection)?;
        // SAFETY: made by `create_event`; the caller promises that no later call names it.
        drop(unsafe { Box::<ReusedEvent>::from_raw(handle(raw.0)) });
        Ok(())
    }

    unsafe fn record(&self, raw: RawEvent, stream: RawStream) -> Result<(), Fault> {
        let inner = self.own("clEnqueueMarkerWithWaitList")?;
        // SAFETY: the caller promises a live event.
        let event = unsafe { event(raw) };
        // SAFETY: the caller promises a live stream.
        unsafe { event.record(&inner.connection, stream.0) }
    }

    unsafe fn query(&self, raw: RawEvent) -> Result<bool, Fault> {
        let inner = self.own("clGetEventInfo")?;
        // SAFETY: the caller promises a live event.
        unsafe { event(raw) }.is_done(&inner.connection)
    }

    unsafe fn wait(&self, raw: RawEvent) -> Result<(), Fault> {
        let inner = self.own("clWaitForEvents")?;
        // SAFETY: the caller promises a live event.
        unsafe { event(raw) }.wait(&inner.connection)
    }

    unsafe fn order(&self, stream: RawStream, raw: RawEvent) -> Result<(), Fault> {
        let inner = self.own("clEnqueueBarrierWithWaitList")?;
        // SAFETY: the caller promises a live event.
        let event = unsafe { event(raw) };
        // SAFETY: the caller promises a live stream.
        unsafe { event.order(&inner.connection, stream.0) }
    }

    unsafe fn copy(&self, to: u64, from: u64, bytes: u64, stream: RawStream) -> Result<(), Fault> {
        let inner = self.own("clEnqueueCopyBuffer")?;
        // SAFETY: the called function has the same contract as this method.
        unsafe { copies::copy(inner, to, from, bytes, stream.0) }
    }

    unsafe fn fill(&self, address: u64, value: u8, bytes: u64, stream: RawStream) -> Result<(), Fault> {
        let inner = self.own("clEnqueueFillBuffer")?;
        // SAFETY: the called function has the same contract as this method.
        unsafe { copies::fill(inner, address, value, bytes, stream.0) }
    }

    unsafe fn prefetch(&self, address: u64, bytes: u64, to: PrefetchTarget, stream: RawStream) -> Result<(), Fault> {
        let inner = self.own("clEnqueueSVMMigrateMem")?;
        // SAFETY: the called function has the same contract as this method.
        unsafe { copies::prefetch(inner, address, bytes, to, stream.0) }
    }
}
