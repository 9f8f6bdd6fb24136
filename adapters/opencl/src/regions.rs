//! Allocation of whole regions: buffers, mapped buffers, shared virtual memory.
//!
//! Promises upward: a region has its memory once [`allocate`] returns, not at its first use; a refused call leaves nothing
//! allocated.
//! Asks from below: for each kind of memory, one function of the driver to allocate and one to free.

use crate::connection::{handle, number, size};
use crate::events;
use crate::functions::{SvmFunctions, missing};
use crate::layouts::{
    BufferRegion, CL_BUFFER_CREATE_TYPE_REGION, CL_COMPLETE, CL_MAP_READ, CL_MAP_WRITE, CL_MEM_ALLOC_HOST_PTR,
    CL_MEM_READ_WRITE, CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, CL_TRUE, ClHandle,
};
use crate::memory::OpenClMemory;
use crate::opencl::{OpenClState, RegionMemory};
use crate::result_codes::{as_out_of_memory, fault};
use std::ptr::{null, null_mut};
use std::sync::atomic::Ordering;
use terrace_device::{Fault, FaultReason, MemoryKind, insist};

/// Regions begin at multiples of it; what the driver gives may begin at any multiple of 128.
const ALIGN: u64 = 256;

/// Allocates a region of a kind.
pub fn allocate(inner: &OpenClState, kind: MemoryKind, bytes: u64) -> Result<u64, Fault> {
    let (counted, none) = (is_counted(kind), Fault::of("take", FaultReason::OutOfMemory));
    if bytes == 0 {
        return Err(none);
    }
    if counted {
        let total = inner.description.total;
        let room = |taken: u64| taken.checked_add(bytes).filter(|&taken| taken <= total);
        let taken = inner.taken.try_update(Ordering::Relaxed, Ordering::Relaxed, room);
        taken.map_err(|_| none)?;
    }
    let made = match (kind, inner.memory) {
        (MemoryKind::Device, OpenClMemory::Buffers) => allocate_buffer(inner, bytes),
        (MemoryKind::Device, OpenClMemory::CoarseSvm) => allocate_svm(inner, 0, bytes),
        (MemoryKind::Pinned, OpenClMemory::Buffers | OpenClMemory::CoarseSvm) => allocate_mapped(inner, bytes),
        (MemoryKind::Device | MemoryKind::Pinned, OpenClMemory::FineSvm) | (MemoryKind::Managed, _) => {
            allocate_svm(inner, inner.fine, bytes)
        }
        (MemoryKind::Pool, _) => Err(Fault::of("take", FaultReason::Unsupported)),
    };
    made.map_err(as_out_of_memory).inspect_err(|_| {
        if counted {
            inner.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
    })
}

/// Whether a kind is the device's memory; pinned memory is the host's.
fn is_counted(kind: MemoryKind) -> bool {
    kind != MemoryKind::Pinned
}

/// Frees a region that [`allocate`] returned.
///
/// # Safety
/// [`allocate`] must have returned the region for this kind, it must not be freed yet, and no queued work may use it.
pub unsafe fn free(inner: &OpenClState, kind: MemoryKind, address: u64, bytes: u64) -> Result<(), Fault> {
    let (region, _) = inner.space.find(address).filter(|(_, offset)| *offset == 0).ok_or(UNKNOWN)?;
    // SAFETY: the caller promises an unused region, which the table says how to free.
    unsafe { free_region(inner, region, address, bytes) }?;
    if is_counted(kind) {
        inner.taken.fetch_sub(bytes, Ordering::Relaxed);
    }
    Ok(())
}

const UNKNOWN: Fault = Fault::of("give back", FaultReason::BadHandle);

/// Frees a region by how it was allocated.
///
/// # Safety
/// As for [`free`]; the region must be the one at `address`.
unsafe fn free_region(inner: &OpenClState, region: RegionMemory, address: u64, bytes: u64) -> Result<(), Fault> {
    if let RegionMemory::Buffer { buffer } = region {
        // SAFETY: the caller's promise.
        unsafe { release_buffer(inner, buffer) }?;
        inner.space.remove(address);
        return Ok(());
    }
    // Removed first: once it is freed, another thread may be given the same address.
    inner.space.remove(address).ok_or(UNKNOWN)?;
    // A refused call changed nothing, so that the region is live again.
    let freed = match region {
        // SAFETY: the caller's promise.
        RegionMemory::Mapped { buffer, start } => unsafe { unmap(inner, buffer, start) },
        // SAFETY: as above.
        RegionMemory::Svm { start } => unsafe { free_svm(inner, start) },
        RegionMemory::Buffer { .. } => Ok(()),
    };
    freed.inspect_err(|_| _ = inner.space.insert_at(region, address, bytes))
}

fn allocate_buffer(inner: &OpenClState, bytes: u64) -> Result<u64, Fault> {
    let buffer = create_buffer(inner, CL_MEM_READ_WRITE, bytes)?;
    let placed = settle(inner, buffer).and_then(|()| {
        inner.space.insert(RegionMemory::Buffer { buffer }, bytes).ok_or(Fault::of("take", FaultReason::OutOfMemory))
    });
    placed.inspect_err(|_| {
        // SAFETY: created above, and not handed out.
        _ = insist(|| unsafe { release_buffer(inner, buffer) });
    })
}

/// Has the driver allocate a buffer's memory, which it may do no earlier than at the first use, where a refusal would be that
/// of any call.
fn settle(inner: &OpenClState, buffer: u64) -> Result<(), Fault> {
    let (objects, mut event): ([ClHandle; 1], _) = ([handle(buffer)], null_mut());
    inner.connection.call("clEnqueueMigrateMemObjects", |core| {
        let (queue, how) = (handle(inner.queue), CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED);
        // SAFETY: our own queue, and a fresh buffer of the same context.
        unsafe { (core.clEnqueueMigrateMemObjects)(queue, 1, objects.as_ptr(), how, 0, null(), &raw mut event) }
    })?;
    wait(inner, number(event))
}

/// Waits for a command by its event, which alone tells that the command failed, and releases it.
fn wait(inner: &OpenClState, event: u64) -> Result<(), Fault> {
    let connection = &inner.connection;
    // SAFETY: the event of a command of this module's, which nothing else has: here and below.
    let waited = unsafe { events::wait(connection, event) };
    // SAFETY: as above.
    let status = unsafe { events::status(connection, event) };
    // SAFETY: as above, for the last time.
    _ = unsafe { events::release(connection, event) };
    match status {
        Ok(status) if status < CL_COMPLETE => Err(fault("clWaitForEvents", status)),
        _ => waited,
    }
}

fn allocate_mapped(inner: &OpenClState, bytes: u64) -> Result<u64, Fault> {
    let room = bytes.saturating_add(ALIGN);
    let buffer = create_buffer(inner, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, room)?;
    let mapped = size("clEnqueueMapBuffer", room).and_then(|room| {
        inner.connection.made("clEnqueueMapBuffer", |core, code| {
            let (queue, buffer, how) = (handle(inner.queue), handle(buffer), CL_MAP_READ | CL_MAP_WRITE);
            // SAFETY: our own queue, all of a fresh buffer; the call waits for the map, and its out parameter lives through it.
            unsafe { (core.clEnqueueMapBuffer)(queue, buffer, CL_TRUE, how, 0, room, 0, null(), null_mut(), code) }
        })
    });
    let mapped = mapped.map(number).inspect_err(|_| {
        // SAFETY: created above, and not handed out.
        _ = insist(|| unsafe { release_buffer(inner, buffer) });
    });
    mapped.and_then(|start| {
        insert(inner, RegionMemory::Mapped { buffer, start }, start, bytes).inspect_err(|_| {
            // SAFETY: mapped above, and not handed out.
            _ = insist(|| unsafe { unmap(inner, buffer, start) });
        })
    })
}

fn allocate_svm(inner: &OpenClState, flags: u64, bytes: u64) -> Result<u64, Fault> {
    const CALL: &str = "clSVMAlloc";
    let svm = svm(inner)?;
    let room = size(CALL, bytes.saturating_add(ALIGN))?;
    // The function has no code: a null pointer is all that it says.
    if room as u64 > inner.largest {
        return Err(Fault::of(CALL, FaultReason::OutOfMemory));
    }
    let start = inner.connection.made(CALL, |_, _| {
        // SAFETY: the connection's context.
        unsafe { (svm.clSVMAlloc)(inner.connection.context(), CL_MEM_READ_WRITE | flags, room, 0) }
    })?;
    if start.is_null() {
        return Err(Fault::of(CALL, FaultReason::OutOfMemory));
    }
    let start = number(start);
    insert(inner, RegionMemory::Svm { start }, start, bytes).inspect_err(|_| {
        // SAFETY: allocated above, and not handed out.
        _ = unsafe { free_svm(inner, start) };
    })
}

/// Gives memory that the host reaches, from `start` on with room for its alignment, its address.
fn insert(inner: &OpenClState, region: RegionMemory, start: u64, bytes: u64) -> Result<u64, Fault> {
    let address = start.next_multiple_of(ALIGN);
    let placed = inner.space.insert_at(region, address, bytes);
    placed.then_some(address).ok_or(Fault::of("take", FaultReason::OutOfMemory))
}

fn create_buffer(inner: &OpenClState, flags: u64, bytes: u64) -> Result<u64, Fault> {
    let size = size("clCreateBuffer", bytes)?;
    let buffer = inner.connection.made("clCreateBuffer", |core, code| {
        // SAFETY: the connection's context; no host pointer; the out parameter lives through the call.
        unsafe { (core.clCreateBuffer)(inner.connection.context(), flags, size, null_mut(), code) }
    })?;
    Ok(number(buffer))
}

/// Gives a reference to a buffer back.
///
/// # Safety
/// The buffer must be live, and the reference the caller's.
pub unsafe fn release_buffer(inner: &OpenClState, buffer: u64) -> Result<(), Fault> {
    inner.connection.call("clReleaseMemObject", |core| {
        // SAFETY: the caller promises a reference.
        unsafe { (core.clReleaseMemObject)(handle(buffer)) }
    })
}

/// Ends a map, and releases the buffer.
///
/// An error says that the driver took no command, and the buffer is still mapped. Once it has one the memory is gone, whatever comes of
/// it: a buffer whose unmap failed leaks.
///
/// # Safety
/// The buffer must be live, the reference the caller's, and mapped at `start`, which nothing uses any more.
unsafe fn unmap(inner: &OpenClState, buffer: u64, start: u64) -> Result<(), Fault> {
    let mut event = null_mut();
    inner.connection.call("clEnqueueUnmapMemObject", |core| {
        let (queue, buffer, start) = (handle(inner.queue), handle(buffer), handle(start));
        // SAFETY: the caller promises the map; our own queue.
        unsafe { (core.clEnqueueUnmapMemObject)(queue, buffer, start, 0, null(), &raw mut event) }
    })?;
    if wait(inner, number(event)).is_ok() {
        // SAFETY: the caller's reference. If it is refused, the buffer leaks.
        _ = insist(|| unsafe { release_buffer(inner, buffer) });
    }
    Ok(())
}

/// Frees shared virtual memory.
///
/// # Safety
/// The memory must be of [`allocate_svm`], and unused.
unsafe fn free_svm(inner: &OpenClState, start: u64) -> Result<(), Fault> {
    let svm = svm(inner)?;
    inner.connection.call("clSVMFree", |_| {
        // SAFETY: the caller promises live memory of the connection's context.
        unsafe { (svm.clSVMFree)(inner.connection.context(), handle(start)) };
        0
    })
}

/// The functions of shared virtual memory, which a device older than OpenCL 2.0 need not have.
pub fn svm(inner: &OpenClState) -> Result<&'static SvmFunctions, Fault> {
    if inner.version < (2, 0) {
        return Err(Fault::of("clSVMAlloc", FaultReason::Unsupported));
    }
    inner.connection.functions.svm.as_ref().map_err(missing)
}

/// A sub-buffer of a range of a buffer, for as long as commands are put on queues with it.
///
/// OpenCL leaves undefined what concurrent commands do that name a buffer and its sub-buffer, or two that overlap. So every
/// command names a sub-buffer of its own range, and those of different blocks do not overlap. It begins where the device allows, at
/// most `align` bytes before the range.
pub struct SubBuffer<'a> {
    inner: &'a OpenClState,
    buffer: u64,
    /// Offset of the range in it.
    pub offset: usize,
}

impl<'a> SubBuffer<'a> {
    /// Makes a sub-buffer around a range.
    ///
    /// # Safety
    /// The buffer must be live, and the range inside it.
    pub unsafe fn new(inner: &'a OpenClState, buffer: u64, offset: u64, bytes: usize) -> Result<Self, Fault> {
        let before = (offset % inner.align.max(1)) as usize;
        let region = BufferRegion { origin: offset as usize - before, size: bytes + before };
        let made = inner.connection.made("clCreateSubBuffer", |core, code| {
            let (how, region) = (CL_BUFFER_CREATE_TYPE_REGION, (&raw const region).cast());
            // SAFETY: the caller promises the buffer; the region is read during the call, the out parameter lives through it.
            unsafe { (core.clCreateSubBuffer)(handle(buffer), CL_MEM_READ_WRITE, how, region, code) }
        })?;
        Ok(Self { inner, buffer: number(made), offset: before })
    }

    /// Makes one sub-buffer around two ranges of as many bytes, if those around each would meet.
    ///
    /// Returns the offsets of both in it too. OpenCL refuses a copy between two that overlap, also where the ranges do not.
    ///
    /// # Safety
    /// The buffers must be live, and the ranges inside them.
    pub unsafe fn of_both(
        inner: &'a OpenClState,
        (to, at): (u64, u64),
        (from, offset): (u64, u64),
        bytes: usize,
    ) -> Result<Option<(Self, usize, usize)>, Fault> {
        let (low, high) = (at.min(offset), at.max(offset));
        let apart = (high - low) as usize;
        if to != from || high - high % inner.align.max(1) >= low + bytes as u64 {
            return Ok(None);
        }
        // SAFETY: the caller's promise: it ends where the later range does.
        let both = unsafe { Self::new(inner, to, low, apart + bytes) }?;
        let (first, second) = (both.offset, both.offset + apart);
        Ok(Some(if at == low { (both, first, second) } else { (both, second, first) }))
    }

    pub fn handle(&self) -> ClHandle {
        handle(self.buffer)
    }
}

impl Drop for SubBuffer<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, for this value alone; the driver keeps it until commands that name it are done.
        _ = insist(|| unsafe { release_buffer(self.inner, self.buffer) });
    }
}
