//! Prefetch and advice for managed memory.
//!
//! Promises upward: each hint is one driver call, of the functions that drivers export since CUDA 8, or, if a driver
//! lacks those, of the functions of CUDA 12.2 that take a location. (The headers of CUDA 13 map the plain names to the
//! functions of CUDA 12.2; the library exports both.)
//! Asks from below: the driver's functions. Callers must check whether the device supports hints.

use crate::context::handle;
use crate::cuda::Cuda;
use crate::layouts::{CPU, MemoryLocation, advice};
use crate::library::missing_fault;
use crate::result_codes::{as_bad_handle, size};
use std::ffi::{c_int, c_uint};
use terrace_device::{Advice, Fault, PrefetchTarget, RawStream};

/// The driver's ordinal for a target: that of this device, or [`CPU`] for the host.
fn device_of(cuda: &Cuda, side: PrefetchTarget) -> c_int {
    match side {
        PrefetchTarget::Device => cuda.primary.device,
        PrefetchTarget::Host => CPU,
    }
}

fn location_of(cuda: &Cuda, side: PrefetchTarget) -> MemoryLocation {
    match side {
        PrefetchTarget::Device => MemoryLocation::device(cuda.primary.device),
        PrefetchTarget::Host => MemoryLocation::host(),
    }
}

/// The driver's number for an advice, and its target: the device, where the driver ignores the target.
fn translate(said: Advice) -> (c_uint, PrefetchTarget) {
    match said {
        Advice::ReadMostly => (advice::SET_READ_MOSTLY, PrefetchTarget::Device),
        Advice::NotReadMostly => (advice::UNSET_READ_MOSTLY, PrefetchTarget::Device),
        Advice::PreferDevice => (advice::SET_PREFERRED_LOCATION, PrefetchTarget::Device),
        Advice::PreferHost => (advice::SET_PREFERRED_LOCATION, PrefetchTarget::Host),
        Advice::PreferNone => (advice::UNSET_PREFERRED_LOCATION, PrefetchTarget::Device),
        Advice::AccessedByDevice => (advice::SET_ACCESSED_BY, PrefetchTarget::Device),
        Advice::NotAccessedByDevice => (advice::UNSET_ACCESSED_BY, PrefetchTarget::Device),
    }
}

/// Queues on a stream the migration of a range's pages to the device or the host.
///
/// # Safety
/// The range must lie in live managed memory that is not freed before the stream is done.
pub unsafe fn prefetch(
    cuda: &Cuda,
    address: u64,
    bytes: u64,
    to: PrefetchTarget,
    stream: RawStream,
) -> Result<(), Fault> {
    let size = size("cuMemPrefetchAsync", bytes)?;
    let stream = handle(stream.0);
    let functions = cuda.primary.functions;
    let done = match (&functions.hints, &functions.hints_by_location) {
        (Ok(plain), _) => cuda.primary.call("cuMemPrefetchAsync", |_| {
            // SAFETY: the caller promises the range; the ordinal is our device's or the CPU's.
            unsafe { (plain.cuMemPrefetchAsync)(address, size, device_of(cuda, to), stream) }
        }),
        (_, Ok(newer)) => cuda.primary.call("cuMemPrefetchAsync_v2", |_| {
            // SAFETY: the caller promises the range; flags must be 0.
            unsafe { (newer.cuMemPrefetchAsync_v2)(address, size, location_of(cuda, to), 0, stream) }
        }),
        (Err(missing), _) => Err(missing_fault(missing)),
    };
    done.map_err(as_bad_handle)
}

/// Advises the driver how a range will be used.
///
/// # Safety
/// The range must lie in live managed memory.
pub unsafe fn advise(cuda: &Cuda, address: u64, bytes: u64, said: Advice) -> Result<(), Fault> {
    let size = size("cuMemAdvise", bytes)?;
    let (number, about) = translate(said);
    let functions = cuda.primary.functions;
    let done = match (&functions.hints, &functions.hints_by_location) {
        (Ok(plain), _) => cuda.primary.call_relaxed("cuMemAdvise", |_| {
            // SAFETY: the caller promises the range; the ordinal is our device's or the CPU's.
            unsafe { (plain.cuMemAdvise)(address, size, number, device_of(cuda, about)) }
        }),
        (_, Ok(newer)) => cuda.primary.call_relaxed("cuMemAdvise_v2", |_| {
            // SAFETY: the caller promises the range; the location is our device or the host.
            unsafe { (newer.cuMemAdvise_v2)(address, size, number, location_of(cuda, about)) }
        }),
        (Err(missing), _) => Err(missing_fault(missing)),
    };
    done.map_err(as_bad_handle)
}
