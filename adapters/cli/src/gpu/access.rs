//! The latency of an access to a host slice whose bytes are resident.
//!
//! Promises upward: batches alternate between the kinds of buffer, so that other programs disturb all of them alike; kinds that
//! the device lacks are omitted.
//! Asks from below: a device, a monotonic clock.

use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;
use terrace::Device;
use terrace::device::{DeviceError, FallbackBuffer, FaultReason, PinnedBuffer, UnifiedBuffer};

/// The latency of access to one kind of buffer. The field names are the JSON keys.
#[derive(Clone, Debug, Serialize)]
pub struct AccessTime {
    /// The call that returns the slice.
    pub call: &'static str,
    /// Nanoseconds to get the slice and to read one element of it: the best of [`BATCHES`] batches.
    pub ns: f64,
    /// Nanoseconds to get the slice and to read one element of it: the median of the batches.
    pub ns_p50: f64,
}

/// Number of batches of a measurement.
///
/// Each batch takes some ms, so that other programs disturb only some of them.
pub const BATCHES: usize = 25;

/// `TIMES`: accesses in a batch. `LEN`: elements of a buffer, which all fit into the first-level cache.
const TIMES: u32 = 100_000;
const LEN: usize = 1024;

/// Turns an error into `None` if the device lacks this kind of memory.
fn supported<T>(made: Result<T, DeviceError>) -> Result<Option<T>, DeviceError> {
    match made {
        Err(DeviceError::Driver { fault, .. }) if fault.reason == FaultReason::Unsupported => Ok(None),
        made => made.map(Some),
    }
}

/// Mean nanoseconds of an access in a batch.
fn batch(mut access: impl FnMut(usize) -> Result<u32, DeviceError>) -> Result<f64, DeviceError> {
    let begin = Instant::now();
    for at in 0..TIMES as usize {
        black_box(access(black_box(at % LEN))?);
    }
    Ok(begin.elapsed().as_nanos() as f64 / f64::from(TIMES))
}

/// Measures all kinds of buffer that the device supports.
pub fn measure(device: &Device) -> Result<Vec<AccessTime>, DeviceError> {
    let stream = device.stream()?;
    let mut mirror = supported(FallbackBuffer::<u32>::new(device, &stream, LEN))?;
    let pinned = supported(PinnedBuffer::<u32>::new(device, &stream, LEN))?;
    let mut unified = supported(UnifiedBuffer::<u32>::new(device, &stream, LEN))?;
    if let Some(mirror) = &mut mirror {
        // Make the elements valid on the device as well as on the host, as they are in most programs.
        mirror.on_device()?;
    }
    let lease = unified.as_mut().map(UnifiedBuffer::lease).transpose()?;
    let mut times: [Vec<f64>; 3] = Default::default();
    for _ in 0..BATCHES {
        if let Some(mirror) = &mut mirror {
            times[0].push(batch(|at| Ok(mirror.host()?[at]))?);
        }
        if let Some(pinned) = &pinned {
            times[1].push(batch(|at| Ok(black_box(pinned)[at]))?);
        }
        if let Some(lease) = &lease {
            times[2].push(batch(|at| Ok(black_box(lease)[at]))?);
        }
    }
    let names = ["FallbackBuffer::host()", "PinnedBuffer, as a slice", "UnifiedLease, as a slice"];
    let measured = names.into_iter().zip(times).filter(|(_, times)| !times.is_empty());
    Ok(measured.map(|(call, times)| summary(call, times)).collect())
}

/// The least and the median of the batches' times.
fn summary(call: &'static str, mut times: Vec<f64>) -> AccessTime {
    times.sort_by(f64::total_cmp);
    AccessTime { call, ns: times[0], ns_p50: times[times.len() / 2] }
}
