//! Copies and fills, by what lies at each address.
//!
//! ```text
//!   to \ from      buffer           shared virtual memory     the host's, pinned or not
//!   buffer         CopyBuffer       WriteBuffer               WriteBuffer
//!   shared         ReadBuffer       SVMMemcpy                 SVMMemcpy
//!   the host's     ReadBuffer       SVMMemcpy                 by the host, once the queue is done
//! ```
//! Pinned memory of [`OpenClMemory::Buffers`](crate::OpenClMemory::Buffers) is a buffer that stays mapped, which no command may name: it
//! is the host's.
//!
//! Promises upward: work is put on the queue in order of call, and reads or writes only the ranges that are passed.
//! Asks from below: the address space, which knows buffers and shared virtual memory.

use crate::connection::{handle, number, size};
use crate::functions::{CoreFunctions, missing};
use crate::layouts::{CL_FALSE, CL_MIGRATE_MEM_OBJECT_HOST, ClCode, ClHandle};
use crate::opencl::{OpenClState, RegionMemory};
use crate::regions::{SubBuffer, svm};
use std::ffi::c_void;
use std::ptr::{null, null_mut};
use terrace_device::{Fault, FaultReason, PrefetchTarget};

/// What lies at an address.
#[derive(Clone, Copy, Debug)]
pub enum LocatedMemory {
    Buffer { buffer: u64, offset: u64 },
    Svm(*mut c_void),
    Host(*mut c_void),
}

/// Looks an address up.
pub fn locate(inner: &OpenClState, address: u64) -> LocatedMemory {
    match inner.space.find(address) {
        Some((RegionMemory::Buffer { buffer }, offset)) => LocatedMemory::Buffer { buffer, offset },
        Some((RegionMemory::Svm { .. }, _)) => LocatedMemory::Svm(handle(address)),
        Some((RegionMemory::Mapped { .. }, _)) | None => LocatedMemory::Host(handle(address)),
    }
}

/// Puts a command on a queue, which keeps its event: the next wait for the queue tells its failure.
fn enqueue(
    inner: &OpenClState,
    queue: u64,
    call: &'static str,
    enqueue: impl FnOnce(&CoreFunctions, *mut ClHandle) -> ClCode,
) -> Result<(), Fault> {
    let mut event = null_mut();
    inner.connection.call(call, |core| enqueue(core, &raw mut event))?;
    inner.queues.track(&inner.connection, queue, call, number(event));
    Ok(())
}

/// Copies between any two places, in the order of the queue.
///
/// # Safety
/// As for [`Backend::copy`](terrace_device::Backend::copy).
pub unsafe fn copy(inner: &OpenClState, to: u64, from: u64, bytes: u64, queue: u64) -> Result<(), Fault> {
    let bytes = size("clEnqueueCopyBuffer", bytes)?;
    if bytes == 0 {
        return Ok(());
    }
    let on = handle(queue);
    // SAFETY: the caller promises the range, in a buffer that the table has.
    let part = |buffer, offset| unsafe { SubBuffer::new(inner, buffer, offset, bytes) };
    match (locate(inner, to), locate(inner, from)) {
        (LocatedMemory::Buffer { buffer: to, offset: at }, LocatedMemory::Buffer { buffer: from, offset }) => {
            // SAFETY: the caller promises both ranges, in buffers that the table has.
            let together = unsafe { SubBuffer::of_both(inner, (to, at), (from, offset), bytes) }?;
            if let Some((both, at, offset)) = together {
                return enqueue(inner, queue, "clEnqueueCopyBuffer", |core, event| {
                    let part = both.handle();
                    // SAFETY: the caller promises both ranges and the queue.
                    unsafe { (core.clEnqueueCopyBuffer)(on, part, part, offset, at, bytes, 0, null(), event) }
                });
            }
            let (to, from) = (part(to, at)?, part(from, offset)?);
            enqueue(inner, queue, "clEnqueueCopyBuffer", |core, event| {
                let (source, target) = (from.handle(), to.handle());
                // SAFETY: the caller promises both ranges and the queue.
                unsafe {
                    (core.clEnqueueCopyBuffer)(on, source, target, from.offset, to.offset, bytes, 0, null(), event)
                }
            })
        }
        (LocatedMemory::Buffer { buffer, offset }, LocatedMemory::Svm(from) | LocatedMemory::Host(from)) => {
            let to = part(buffer, offset)?;
            enqueue(inner, queue, "clEnqueueWriteBuffer", |core, event| {
                let (target, at) = (to.handle(), to.offset);
                // SAFETY: as above.
                unsafe { (core.clEnqueueWriteBuffer)(on, target, CL_FALSE, at, bytes, from, 0, null(), event) }
            })
        }
        (LocatedMemory::Svm(to) | LocatedMemory::Host(to), LocatedMemory::Buffer { buffer, offset }) => {
            let from = part(buffer, offset)?;
            enqueue(inner, queue, "clEnqueueReadBuffer", |core, event| {
                let (source, at) = (from.handle(), from.offset);
                // SAFETY: as above.
                unsafe { (core.clEnqueueReadBuffer)(on, source, CL_FALSE, at, bytes, to, 0, null(), event) }
            })
        }
        (LocatedMemory::Host(to), LocatedMemory::Host(from)) => {
            // SAFETY: the caller promises the queue.
            unsafe { inner.queues.finish(&inner.connection, queue) }?;
            // Not `copy_nonoverlapping`: wrapped memory may overlap other blocks.
            // SAFETY: the caller promises both ranges, and the queue's earlier work is done.
            unsafe { std::ptr::copy(from.cast::<u8>(), to.cast::<u8>(), bytes) };
            Ok(())
        }
        (LocatedMemory::Svm(to) | LocatedMemory::Host(to), LocatedMemory::Svm(from) | LocatedMemory::Host(from)) => {
            let svm = svm(inner)?;
            enqueue(inner, queue, "clEnqueueSVMMemcpy", |_, event| {
                // SAFETY: the caller promises both ranges and the queue; either may be the host's.
                unsafe { (svm.clEnqueueSVMMemcpy)(on, CL_FALSE, to, from, bytes, 0, null(), event) }
            })
        }
    }
}

/// Sets each byte of a range, in the order of the queue.
///
/// # Safety
/// As for [`Backend::fill`](terrace_device::Backend::fill).
pub unsafe fn fill(inner: &OpenClState, address: u64, value: u8, bytes: u64, queue: u64) -> Result<(), Fault> {
    let bytes = size("clEnqueueFillBuffer", bytes)?;
    if bytes == 0 {
        return Ok(());
    }
    let (on, pattern) = (handle(queue), (&raw const value).cast());
    match locate(inner, address) {
        LocatedMemory::Buffer { buffer, offset } => {
            // SAFETY: the caller promises the range, in a buffer that the table has.
            let to = unsafe { SubBuffer::new(inner, buffer, offset, bytes) }?;
            enqueue(inner, queue, "clEnqueueFillBuffer", |core, event| {
                let (target, at) = (to.handle(), to.offset);
                // SAFETY: the caller promises range and queue; the pattern is one byte, which is copied during the call.
                unsafe { (core.clEnqueueFillBuffer)(on, target, pattern, 1, at, bytes, 0, null(), event) }
            })
        }
        LocatedMemory::Svm(to) => {
            let svm = svm(inner)?;
            enqueue(inner, queue, "clEnqueueSVMMemFill", |_, event| {
                // SAFETY: as above.
                unsafe { (svm.clEnqueueSVMMemFill)(on, to, pattern, 1, bytes, 0, null(), event) }
            })
        }
        LocatedMemory::Host(to) => {
            // SAFETY: the caller promises the queue.
            unsafe { inner.queues.finish(&inner.connection, queue) }?;
            // SAFETY: the caller promises the range, and the queue's earlier work is done.
            unsafe { to.cast::<u8>().write_bytes(value, bytes) };
            Ok(())
        }
    }
}

/// Moves shared virtual memory to the processor that uses it next.
///
/// # Safety
/// As for [`Backend::prefetch`](terrace_device::Backend::prefetch).
pub unsafe fn prefetch(
    inner: &OpenClState,
    address: u64,
    bytes: u64,
    to: PrefetchTarget,
    queue: u64,
) -> Result<(), Fault> {
    const CALL: &str = "clEnqueueSVMMigrateMem";
    let LocatedMemory::Svm(from) = locate(inner, address) else {
        return Err(Fault::of(CALL, FaultReason::Unsupported));
    };
    // The loader has the function whatever the device's driver has.
    if inner.version < (2, 1) {
        return Err(Fault::of(CALL, FaultReason::Unsupported));
    }
    let migrate = inner.connection.functions.migrate.as_ref().map_err(missing)?;
    let (from, bytes) = (from.cast_const(), size(CALL, bytes)?);
    let how = if to == PrefetchTarget::Host { CL_MIGRATE_MEM_OBJECT_HOST } else { 0 };
    inner.connection.call(CALL, |_| {
        let (from, bytes, on) = (&raw const from, &raw const bytes, handle(queue));
        // SAFETY: the caller promises range and queue; the arrays have one element each, and are read during the call.
        unsafe { (migrate.clEnqueueSVMMigrateMem)(on, 1, from, bytes, how, 0, null(), null_mut()) }
    })
}
