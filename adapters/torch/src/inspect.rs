//! What people ask: counters, a snapshot, the last message; and letting go. Not called by PyTorch.
//!
//! Promises upward: 0 is success, -1 a failure whose message is kept; nothing here opens a device.
//! Asks from below: `process`, `snapshot`.

use crate::failure::{self, FailureKind, TorchFailure};
use crate::hooks::guarded;
use crate::{process, snapshot};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use terrace_device::DeviceStats;

/// Counters of one device. Bytes unless named otherwise; a device that was not used has zeros everywhere.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TorchStats {
    /// Taken from the driver now.
    pub reserved: u64,
    /// The most ever taken from the driver at once.
    pub peak_reserved: u64,
    /// The most to take; 0: no limit.
    pub capacity: u64,
    /// In live blocks, rounding included.
    pub in_use: u64,
    /// The most ever in live blocks.
    pub peak_in_use: u64,
    /// Freed, and kept for their streams or until their fences open.
    pub pooled: u64,
    /// The largest block that needs no more from the driver.
    pub largest_free: u64,
    /// Taken from the driver for pools of graphs and regions; not in `reserved`.
    pub pools_reserved: u64,
    /// In live blocks of those pools; not in `in_use`.
    pub pools_in_use: u64,
    /// Blocks handed out now, from pools too.
    pub live_blocks: u64,
    /// Allocations that were served, from pools too.
    pub allocations: u64,
    /// Blocks that were freed, from pools too.
    pub frees: u64,
    /// Allocations served without asking the driver.
    pub hits: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Blocks freed while another stream still uses them.
    pub held: u64,
    /// Events recorded so far.
    pub events: u64,
    /// Streams seen.
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

/// What C sees of a result.
fn code(done: Result<(), TorchFailure>) -> c_int {
    if done.is_ok() { 0 } else { -1 }
}

/// Writes the counters of a device.
///
/// # Safety
/// `out` is null, which is a failure, or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_torch_stats(device: c_int, out: *mut TorchStats) -> c_int {
    // SAFETY: null or writable, says the caller.
    let out = unsafe { out.as_mut() };
    code(guarded(|| {
        let out =
            out.ok_or_else(|| TorchFailure::new(FailureKind::Request, "terrace_torch_stats: nowhere to write to"))?;
        *out = process::opened(device)?.map_or(TorchStats::default(), |device| device.inner.stats().into());
        Ok(())
    }))
}

/// Writes the live blocks of a device, or of all for -1, to a file: JSON in the shape of `torch.cuda.memory._snapshot()`.
///
/// # Safety
/// `path` is null, which is a failure, or a string that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_torch_snapshot(device: c_int, path: *const c_char) -> c_int {
    // SAFETY: a string, says the caller, unless it is null.
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

/// Copies the last message and a zero into `room` bytes, as much of it as fits; gives the length of all of it.
///
/// # Safety
/// `buffer` has room for `room` bytes; it may be null where that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_torch_last_error(buffer: *mut c_char, room: usize) -> usize {
    let text = guarded(|| Ok(failure::last())).unwrap_or_default();
    if room > 0 && !buffer.is_null() {
        let mut bytes = text.as_bytes()[..text.len().min(room - 1)].to_vec();
        bytes.push(0);
        // SAFETY: they are at most `room`, for which there is room, says the caller; new bytes do not overlap with it.
        unsafe { buffer.copy_from_nonoverlapping(bytes.as_ptr().cast(), bytes.len()) };
    }
    text.len()
}

/// Gives everything unused of a device back to the driver. The bytes given back; 0 for a device that was not used.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_trim(device: c_int) -> u64 {
    guarded(|| Ok(process::opened(device)?.map_or(0, |device| device.inner.trim()))).unwrap_or(0)
}

/// Lets go of all devices, when nobody allocates any more. Each is closed with its last live block; gives how many are left.
/// A program need not call it: the driver takes everything back at the end.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_close() -> u64 {
    guarded(|| Ok(process::close())).unwrap_or(0)
}
