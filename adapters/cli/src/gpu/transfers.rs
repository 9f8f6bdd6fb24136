//! Copies of one large buffer, by the engine and by a bare loop of the driver's copies.
//!
//! Promises upward: both ways in turn, [`ROUNDS`] times, on the same memory; times are medians.
//! Asks from below: a device, a monotonic clock.

use serde::Serialize;
use std::time::Instant;
use terrace::Device;
use terrace::device::{DeviceBuffer, DeviceError, HostBuffer, PinnedBuffer, TransferEngine};

/// Times each way is measured.
pub const ROUNDS: usize = 5;

/// Bytes copied; a quarter when there is no more.
const BYTES: usize = 256 << 20;

/// One kind of copy. The names are the JSON keys.
#[derive(Clone, Debug, Serialize)]
pub struct CopyRates {
    /// Which way, and from or to which memory.
    pub name: &'static str,
    /// Bytes of one copy.
    pub bytes: usize,
    /// Bytes a nanosecond by the driver's own copy, each round, rising.
    pub bare: [f64; ROUNDS],
    /// The same by the engine.
    pub engine: [f64; ROUNDS],
}

impl CopyRates {
    /// The median of the engine over that of the bare loop.
    pub fn ratio(&self) -> f64 {
        self.engine[ROUNDS / 2] / self.bare[ROUNDS / 2]
    }
}

/// Measures all kinds: pinned and ordinary memory, there and back.
pub fn measure_copies(device: &Device, quick: bool) -> Result<Vec<CopyRates>, DeviceError> {
    let bytes = if quick { BYTES / 8 } else { BYTES };
    let (stream, engine) = (device.stream()?, TransferEngine::new(device)?);
    let there = DeviceBuffer::<u8>::zeroed(device, &stream, bytes)?;
    // Touched: first touches are the system's time, not the copy's.
    let ordinary = vec![1u8; bytes];
    let mut copies = Vec::new();
    let there = match PinnedBuffer::<u8>::new(device, &stream, bytes) {
        Ok(mut pinned) => {
            pinned.fill(1);
            let names = ["pinned, to the device", "pinned, from the device"];
            let (there, rows) = measure(&engine, there, pinned, names, &BareCopy { up: pinned_up, down: pinned_down })?;
            copies.extend(rows);
            there
        }
        // No pinned memory: its rows are left out.
        Err(_) => there,
    };
    let names = ["ordinary, to the device", "ordinary, from the device"];
    let (_, rows) = measure(&engine, there, ordinary, names, &BareCopy { up: ordinary_up, down: ordinary_down })?;
    copies.extend(rows);
    Ok(copies)
}

/// The driver's own copy, waited for.
struct BareCopy<H> {
    up: fn(H, &mut DeviceBuffer<u8>) -> Result<H, DeviceError>,
    down: fn(H, &DeviceBuffer<u8>) -> Result<H, DeviceError>,
}

fn pinned_up(host: PinnedBuffer<u8>, there: &mut DeviceBuffer<u8>) -> Result<PinnedBuffer<u8>, DeviceError> {
    host.copy_to(there)?.wait()
}

fn pinned_down(host: PinnedBuffer<u8>, there: &DeviceBuffer<u8>) -> Result<PinnedBuffer<u8>, DeviceError> {
    host.copy_from(there)?.wait()
}

fn ordinary_up(host: Vec<u8>, there: &mut DeviceBuffer<u8>) -> Result<Vec<u8>, DeviceError> {
    there.as_slice_mut().write(&host).map(|()| host)
}

fn ordinary_down(mut host: Vec<u8>, there: &DeviceBuffer<u8>) -> Result<Vec<u8>, DeviceError> {
    there.as_slice().read(&mut host).map(|()| host)
}

/// Bytes a nanosecond.
fn rate<T>(bytes: usize, work: impl FnOnce() -> Result<T, DeviceError>) -> Result<(T, f64), DeviceError> {
    let begun = Instant::now();
    let done = work()?;
    Ok((done, bytes as f64 / begun.elapsed().as_nanos().max(1) as f64))
}

fn measure<H: HostBuffer<u8>>(
    engine: &TransferEngine,
    mut there: DeviceBuffer<u8>,
    mut host: H,
    names: [&'static str; 2],
    bare: &BareCopy<H>,
) -> Result<(DeviceBuffer<u8>, [CopyRates; 2]), DeviceError> {
    let bytes = there.len();
    let mut rows = names.map(|name| CopyRates { name, bytes, bare: [0.0; ROUNDS], engine: [0.0; ROUNDS] });
    // Once before: staging memory is made, sizes of pieces are found.
    let done = engine.upload(host, there, 0).wait()?;
    let done = engine.download(done.target, 0, done.source).wait()?;
    (host, there) = (done.target, done.source);
    for round in 0..ROUNDS {
        (host, rows[0].bare[round]) = rate(bytes, || (bare.up)(host, &mut there))?;
        let (done, up) = rate(bytes, || Ok(engine.upload(host, there, 0).wait()?))?;
        (host, there, rows[0].engine[round]) = (done.source, done.target, up);
        (host, rows[1].bare[round]) = rate(bytes, || (bare.down)(host, &there))?;
        let (done, down) = rate(bytes, || Ok(engine.download(there, 0, host).wait()?))?;
        (host, there, rows[1].engine[round]) = (done.target, done.source, down);
    }
    for row in &mut rows {
        row.bare.sort_by(f64::total_cmp);
        row.engine.sort_by(f64::total_cmp);
    }
    Ok((there, rows))
}
