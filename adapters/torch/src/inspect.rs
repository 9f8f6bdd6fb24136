//! Functions that programs call, not PyTorch: counters, snapshot, last message, trim and close.
//!
//! Promises upward: result codes are 0 for success and -1 for a failure, whose message is recorded; no function here
//! opens a device.
//! Asks from below: `process`, `snapshot`.

use crate::failure::{self, FailureKind, TorchFailure, guarded};
use crate::{process, snapshot};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use terrace_device::DeviceStats;

/// Counters of one device.
///
/// A field counts bytes unless its line says otherwise. All fields are 0 for a device that was not used.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TorchStats {
    /// Bytes that are reserved from the driver now.
    pub reserved: u64,
    /// The highest value of `reserved` so far.
    pub peak_reserved: u64,
    /// The limit on `reserved`; 0: no limit.
    pub capacity: u64,
    /// Bytes of live blocks, rounding included.
    pub in_use: u64,
    /// The highest value of `in_use` so far.
    pub peak_in_use: u64,
    /// Bytes of freed blocks that one stream can reuse, or that queued work may still use: not yet free for all
    /// streams.
    pub pooled: u64,
    /// Bytes of the largest block that can be allocated without a call of the driver.
    pub largest_free: u64,
    /// Bytes reserved from the driver for private pools (of graphs and program regions); not part of `reserved`.
    pub pools_reserved: u64,
    /// Bytes of live blocks in private pools; not part of `in_use`.
    pub pools_in_use: u64,
    /// Number of live blocks, those in private pools included.
    pub live_blocks: u64,
    /// Number of successful allocations, those from private pools included.
    pub allocations: u64,
    /// Number of frees, those into private pools included.
    pub frees: u64,
    /// Number of allocations that needed no call of the driver, those from private pools included.
    pub hits: u64,
    /// Number of failed allocations, those into private pools included.
    pub failed: u64,
    /// Number of freed blocks that a stream other than their own still uses.
    pub held: u64,
    /// Number of CUDA events recorded so far.
    pub events: u64,
    /// Number of streams that the device has open.
    pub streams: u64,
}

impl From<DeviceStats> for TorchStats {
    fn from(stats: DeviceStats) -> Self {
        let DeviceStats { pool, graphs, streams, held, events, .. } = stats;
        Self {
            reserved: pool.reserved,
            peak_reserved: pool.peak_reserved,
            capacity: pool.capacity,
            in_use: pool.in_use,
            peak_in_use: pool.peak_in_use,
            pooled: pool.pooled,
            largest_free: pool.largest_free,
            pools_reserved: graphs.reserved,
            pools_in_use: graphs.in_use,
            live_blocks: pool.live_blocks + graphs.live_blocks,
            allocations: pool.allocations + graphs.allocations,
            frees: pool.frees + graphs.frees,
            hits: pool.hits + graphs.hits,
            failed: pool.failed,
            held,
            events,
            streams,
        }
    }
}

/// Converts a result to the C result code, 0 or -1.
fn code(done: Result<(), TorchFailure>) -> c_int {
    if done.is_ok() { 0 } else { -1 }
}

/// Writes the counters of a device to `out`.
///
/// # Safety
/// `out` must be null, which is a failure, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_torch_stats(device: c_int, out: *mut TorchStats) -> c_int {
    // SAFETY: the caller promises null or a writable pointer.
    let out = unsafe { out.as_mut() };
    code(guarded(|| {
        let out =
            out.ok_or_else(|| TorchFailure::new(FailureKind::Request, "terrace_torch_stats: nowhere to write to"))?;
        *out = process::opened(device)?.map_or(TorchStats::default(), |device| device.inner.stats().into());
        Ok(())
    }))
}

/// Writes the live blocks of a device (-1: of all devices) to a file.
///
/// The file is JSON in the shape of `torch.cuda.memory._snapshot()`.
///
/// # Safety
/// `path` must be null, which is a failure, or a zero-terminated string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_torch_snapshot(device: c_int, path: *const c_char) -> c_int {
    // SAFETY: not null, so the caller promises a zero-terminated string.
    let path = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) });
    code(guarded(|| {
        let path = path.ok_or_else(|| TorchFailure::new(FailureKind::Request, "terrace_torch_snapshot: no path"))?;
        let path = Path::new(OsStr::from_bytes(path.to_bytes()));
        let devices = if device == -1 { process::all_opened() } else { process::opened(device)?.into_iter().collect() };
        let text = snapshot::of(&devices);
        let refused = |error| {
            TorchFailure::new(FailureKind::Request, format!("terrace: snapshot to {}: {error}", path.display()))
        };
        std::fs::write(path, text).map_err(refused)
    }))
}

/// Copies the last failure's message and a zero byte into `buffer`, truncated to `room` bytes.
///
/// Returns the length in bytes of the whole message, without the zero.
///
/// # Safety
/// `buffer` must be null or valid for writes of `room` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_torch_last_error(buffer: *mut c_char, room: usize) -> usize {
    let text = guarded(|| Ok(failure::last())).unwrap_or_default();
    if room > 0 && !buffer.is_null() {
        let mut bytes = text.as_bytes()[..text.len().min(room - 1)].to_vec();
        bytes.push(0);
        // SAFETY: at most `room` bytes, for which the caller promises space; the fresh vector does not overlap it.
        unsafe { buffer.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
    }
    text.len()
}

/// Releases a device's unused memory to the driver; returns how many bytes.
///
/// Returns 0 for a device that was not used.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_trim(device: c_int) -> u64 {
    guarded(|| Ok(process::opened(device)?.map_or(0, |device| device.inner.trim()))).unwrap_or(0)
}

/// Closes all devices and returns the number of blocks that are still live.
///
/// The caller must have stopped allocating. A device with live blocks closes when the last of them is freed. This call
/// is optional: the driver frees everything at process exit.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_close() -> u64 {
    guarded(|| Ok(process::close())).unwrap_or(0)
}
