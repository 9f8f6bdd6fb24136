//! What a slice of host memory costs when its bytes are there.
//!
//! Promises upward: batches of all buffers in turn, so that what else runs on the machine meets all of them; kinds of memory
//! that a device lacks are left out.
//! Asks from below: a device, a monotonic clock.

use super::measure::BATCHES;
use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;
use terrace::Device;
use terrace::device::{DeviceError, FallbackBuffer, FaultReason, PinnedBuffer, UnifiedBuffer};

/// One kind of buffer. The names are the JSON keys.
#[derive(Clone, Debug, Serialize)]
pub struct AccessTime {
    /// Which call.
    pub call: &'static str,
    /// Nanoseconds of the call and of reading one element, best of [`BATCHES`].
    pub ns: f64,
    /// The same, half of the batches took at most this.
    pub ns_p50: f64,
}

/// Accesses of a batch, and elements of a buffer: all in the nearest cache.
const TIMES: u32 = 100_000;
const LEN: usize = 1024;

/// `None` where the device has no such memory.
fn supported<T>(made: Result<T, DeviceError>) -> Result<Option<T>, DeviceError> {
    match made {
        Err(DeviceError::Driver { fault, .. }) if fault.reason == FaultReason::Unsupported => Ok(None),
        made => made.map(Some),
    }
}

/// Nanoseconds of an access, over a batch.
fn batch(mut access: impl FnMut(usize) -> Result<u32, DeviceError>) -> Result<f64, DeviceError> {
    let begin = Instant::now();
    for at in 0..TIMES as usize {
        black_box(access(black_box(at % LEN))?);
    }
    Ok(begin.elapsed().as_nanos() as f64 / f64::from(TIMES))
}

/// All kinds that the device has.
pub fn measure(device: &Device) -> Result<Vec<AccessTime>, DeviceError> {
    let stream = device.stream()?;
    let mut mirror = supported(FallbackBuffer::<u32>::new(device, &stream, LEN))?;
    let pinned = supported(PinnedBuffer::<u32>::new(device, &stream, LEN))?;
    let mut unified = supported(UnifiedBuffer::<u32>::new(device, &stream, LEN))?;
    if let Some(mirror) = &mut mirror {
        // On both sides: what most programs have.
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
    Ok(measured.map(|(call, times)| of(call, times)).collect())
}

fn of(call: &'static str, mut times: Vec<f64>) -> AccessTime {
    times.sort_by(f64::total_cmp);
    AccessTime { call, ns: times[0], ns_p50: times[times.len() / 2] }
}
