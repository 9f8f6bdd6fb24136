//! Functions for programs rather than PyTorch: counters, snapshot, last message, trim and close.
//!
//! Promises upward: 0 is success, -1 a failure whose message is recorded; no function here opens a device.
//! Asks from below: `process`, `snapshot`.

use crate::failure::{self, FailureKind, TorchFailure, guarded};
use crate::{process, snapshot};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use terrace_device::DeviceStats;

/// Counters of one device.
///
/// In bytes unless the field says otherwise; all 0 for a device that was not used.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TorchStats {
    /// Reserved from the driver now.
    pub reserved: u64,
    /// Maximum of `reserved` so far.
    pub peak_reserved: u64,
    /// Limit of `reserved`; 0: no limit.
    pub capacity: u64,
    /// In live blocks, with rounding.
    pub in_use: u64,
    /// Maximum of `in_use` so far.
    pub peak_in_use: u64,
    /// In freed blocks that are cached for their streams or wait for their fences.
    pub pooled: u64,
    /// Largest block that can be allocated without the driver.
    pub largest_free: u64,
    /// Reserved from the driver for pools of graphs and regions; not part of `reserved`.
    pub pools_reserved: u64,
    /// In live blocks of those pools; not part of `in_use`.
    pub pools_in_use: u64,
    /// Number of live blocks, pools included.
    pub live_blocks: u64,
    /// Number of successful allocations, pools included.
    pub allocations: u64,
    /// Number of frees, pools included.
    pub frees: u64,
    /// Number of allocations served without a call of the driver.
    pub hits: u64,
    /// Number of failed allocations.
    pub failed: u64,
    /// Number of freed blocks that another stream still uses.
    pub held: u64,
    /// Number of events recorded so far.
    pub events: u64,
    /// Number of streams that the device knows.
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

/// The C result code: 0 or -1.
fn code(done: Result<(), TorchFailure>) -> c_int {
    if done.is_ok() { 0 } else { -1 }
}

/// Writes the counters of a device.
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

/// Copies the last message, truncated to fit, and a zero into `room` bytes.
///
/// Returns the length of the whole message.
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

/// Releases a device's unused memory to the driver and returns the released bytes.
///
/// Returns 0 for a device that was not used.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_trim(device: c_int) -> u64 {
    guarded(|| Ok(process::opened(device)?.map_or(0, |device| device.inner.trim()))).unwrap_or(0)
}

/// Closes all devices and returns the number of blocks that are still live.
///
/// Caller must have stopped allocating. A device with live blocks closes with its last one. The call is optional: the driver
/// frees everything at process exit.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_close() -> u64 {
    guarded(|| Ok(process::close())).unwrap_or(0)
}
