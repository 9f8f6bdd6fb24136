//! Rates of copying one large buffer: by the transfer engine, and by the driver's own copy.
//!
//! Promises upward: engine and driver alternate [`ROUNDS`] times on the same memory, in each direction.
//! Asks from below: a device, a monotonic clock.

use serde::Serialize;
use std::time::Instant;
use terrace::Device;
use terrace::device::{DeviceBuffer, DeviceError, HostBuffer, PinnedBuffer, TransferEngine};

/// Number of measurements of each kind of copy.
pub const ROUNDS: usize = 5;

/// Bytes of the buffer that is copied; an eighth of it with `--quick`.
const BYTES: usize = 256 << 20;

/// The rates of one kind of copy. The field names are the JSON keys.
#[derive(Clone, Debug, Serialize)]
pub struct CopyRates {
    /// Kind of host memory, and direction.
    pub name: &'static str,
    /// Bytes of one copy.
    pub bytes: usize,
    /// Bytes per nanosecond by the driver's own copy, sorted.
    pub bare: [f64; ROUNDS],
    /// Bytes per nanosecond by the engine, sorted.
    pub engine: [f64; ROUNDS],
}

impl CopyRates {
    /// The engine's median rate divided by the driver's.
    pub fn ratio(&self) -> f64 {
        self.engine[ROUNDS / 2] / self.bare[ROUNDS / 2]
    }
}

/// Measures all kinds: pinned and ordinary host memory, to the device and back.
pub fn measure_copies(device: &Device, quick: bool) -> Result<Vec<CopyRates>, DeviceError> {
    let bytes = if quick { BYTES / 8 } else { BYTES };
    let (stream, engine) = (device.stream()?, TransferEngine::new(device)?);
    let remote = DeviceBuffer::<u8>::zeroed(device, &stream, bytes)?;
    // Fill the memory in advance, so that page faults are not measured as part of copying.
    let ordinary = vec![1u8; bytes];
    let mut copies = Vec::new();
    let remote = match PinnedBuffer::<u8>::new(device, &stream, bytes) {
        Ok(mut pinned) => {
            pinned.fill(1);
            let names = ["pinned, to the device", "pinned, from the device"];
            let (remote, rows) =
                measure(&engine, remote, pinned, names, &BareCopy { up: pinned_up, down: pinned_down })?;
            copies.extend(rows);
            remote
        }
        // Without pinned memory, omit the rows for it.
        Err(_) => remote,
    };
    let names = ["ordinary, to the device", "ordinary, from the device"];
    let (_, rows) = measure(&engine, remote, ordinary, names, &BareCopy { up: ordinary_up, down: ordinary_down })?;
    copies.extend(rows);
    Ok(copies)
}

/// The driver's own copies, which block until they are done.
struct BareCopy<H> {
    up: fn(H, &mut DeviceBuffer<u8>) -> Result<H, DeviceError>,
    down: fn(H, &DeviceBuffer<u8>) -> Result<H, DeviceError>,
}

fn pinned_up(host: PinnedBuffer<u8>, remote: &mut DeviceBuffer<u8>) -> Result<PinnedBuffer<u8>, DeviceError> {
    host.copy_to(remote)?.wait()
}

fn pinned_down(host: PinnedBuffer<u8>, remote: &DeviceBuffer<u8>) -> Result<PinnedBuffer<u8>, DeviceError> {
    host.copy_from(remote)?.wait()
}

fn ordinary_up(host: Vec<u8>, remote: &mut DeviceBuffer<u8>) -> Result<Vec<u8>, DeviceError> {
    remote.as_slice_mut().write(&host).map(|()| host)
}

fn ordinary_down(mut host: Vec<u8>, remote: &DeviceBuffer<u8>) -> Result<Vec<u8>, DeviceError> {
    remote.as_slice().read(&mut host).map(|()| host)
}

/// Runs `work`, which copies `bytes` bytes; also returns its rate in bytes per nanosecond.
fn rate<T>(bytes: usize, work: impl FnOnce() -> Result<T, DeviceError>) -> Result<(T, f64), DeviceError> {
    let begun = Instant::now();
    let done = work()?;
    Ok((done, bytes as f64 / begun.elapsed().as_nanos().max(1) as f64))
}

/// Measures both directions with one buffer of host memory.
fn measure<H: HostBuffer<u8>>(
    engine: &TransferEngine,
    mut remote: DeviceBuffer<u8>,
    mut host: H,
    names: [&'static str; 2],
    bare: &BareCopy<H>,
) -> Result<(DeviceBuffer<u8>, [CopyRates; 2]), DeviceError> {
    let bytes = remote.len();
    let mut rows = names.map(|name| CopyRates { name, bytes, bare: [0.0; ROUNDS], engine: [0.0; ROUNDS] });
    // This first round is not measured: in it the engine allocates its staging memory and finds the best piece size.
    let done = engine.upload(host, remote, 0).wait()?;
    let done = engine.download(done.target, 0, done.source).wait()?;
    (host, remote) = (done.target, done.source);
    for round in 0..ROUNDS {
        (host, rows[0].bare[round]) = rate(bytes, || (bare.up)(host, &mut remote))?;
        let (done, up) = rate(bytes, || Ok(engine.upload(host, remote, 0).wait()?))?;
        (host, remote, rows[0].engine[round]) = (done.source, done.target, up);
        (host, rows[1].bare[round]) = rate(bytes, || (bare.down)(host, &remote))?;
        let (done, down) = rate(bytes, || Ok(engine.download(remote, 0, host).wait()?))?;
        (host, remote, rows[1].engine[round]) = (done.target, done.source, down);
    }
    for row in &mut rows {
        row.bare.sort_by(f64::total_cmp);
        row.engine.sort_by(f64::total_cmp);
    }
    Ok((remote, rows))
}
