//! Hints about managed memory.
//!
//! Promises upward: one call for each hint, by the exported functions that every driver since CUDA 8 has; where a driver has
//! lost them, by those that take a location and came with CUDA 12.2. (The headers of CUDA 13 give the plain names to the
//! latter; the library exports both.)
//! Asks from below: the functions; whether a device takes hints at all is asked above.

use crate::codes::{of_handle, size};
use crate::cuda::Cuda;
use crate::layouts::{CPU, Location, advice};
use crate::library::absent;
use crate::primary::handle;
use std::ffi::{c_int, c_uint};
use terrace_device::{Advice, Fault, PrefetchTarget, RawStream};

/// The driver's name for a side: a device, or [`CPU`].
fn device_of(cuda: &Cuda, side: PrefetchTarget) -> c_int {
    match side {
        PrefetchTarget::Device => cuda.primary.device,
        PrefetchTarget::Host => CPU,
    }
}

fn location_of(cuda: &Cuda, side: PrefetchTarget) -> Location {
    match side {
        PrefetchTarget::Device => Location::device(cuda.primary.device),
        PrefetchTarget::Host => Location::host(),
    }
}

/// The driver's number for advice, and whom it is about: the device where the driver does not look at it.
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

/// Moves a range on a stream.
///
/// # Safety
/// It lies in live managed memory, which stays until the stream is done.
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
            // SAFETY: the caller's promise; a number of a device, or the CPU's.
            unsafe { (plain.cuMemPrefetchAsync)(address, size, device_of(cuda, to), stream) }
        }),
        (_, Ok(newer)) => cuda.primary.call("cuMemPrefetchAsync_v2", |_| {
            // SAFETY: as above; no flags are known.
            unsafe { (newer.cuMemPrefetchAsync_v2)(address, size, location_of(cuda, to), 0, stream) }
        }),
        (Err(missing), _) => Err(absent(missing)),
    };
    done.map_err(of_handle)
}

/// Says how a range will be used.
///
/// # Safety
/// It lies in live managed memory.
pub unsafe fn advise(cuda: &Cuda, address: u64, bytes: u64, said: Advice) -> Result<(), Fault> {
    let size = size("cuMemAdvise", bytes)?;
    let (number, about) = translate(said);
    let functions = cuda.primary.functions;
    let done = match (&functions.hints, &functions.hints_by_location) {
        (Ok(plain), _) => cuda.primary.relaxed("cuMemAdvise", |_| {
            // SAFETY: the caller's promise; a number of a device, or the CPU's.
            unsafe { (plain.cuMemAdvise)(address, size, number, device_of(cuda, about)) }
        }),
        (_, Ok(newer)) => cuda.primary.relaxed("cuMemAdvise_v2", |_| {
            // SAFETY: as above.
            unsafe { (newer.cuMemAdvise_v2)(address, size, number, location_of(cuda, about)) }
        }),
        (Err(missing), _) => Err(absent(missing)),
    };
    done.map_err(of_handle)
}
