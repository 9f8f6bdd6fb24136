//! The functions that PyTorch calls, with its own signatures (`torch/csrc/cuda/CUDAPluggableAllocator.h`).
//!
//! Promises upward: nothing unwinds out of them, but for what [`terrace_torch_alloc_or_throw`] throws on purpose; each may be
//! called by any thread at any time.
//! Asks from below: `process`, which gives failures as values.

use crate::failure::{self, FailureKind, TorchFailure};
use crate::filter::{Filter, StdFunction};
use crate::pools::PoolId;
use crate::{exception, process};
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs what must not panic; a panic that happens all the same becomes a failure.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, TorchFailure>) -> Result<T, TorchFailure> {
    // Every structure behind it is whole between any two of its calls.
    let done = catch_unwind(AssertUnwindSafe(work));
    let done = done.unwrap_or_else(|_| {
        Err(TorchFailure::new(FailureKind::Bug, "terrace: a mistake in libterrace_torch; please report it"))
    });
    done.inspect_err(failure::report)
}

fn handle(stream: *mut c_void) -> u64 {
    stream.expose_provenance() as u64
}

fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// `void* alloc(ssize_t size, int device, cudaStream_t stream)`: null for no bytes, and when there is no memory.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_alloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    guarded(|| process::allocate(size, device, handle(stream))).map_or(std::ptr::null_mut(), pointer)
}

/// The same, but where there is no memory it throws `std::runtime_error` with the message: PyTorch's Python side raises it.
/// Null where the process has no C++ library.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn terrace_torch_alloc_or_throw(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    match guarded(|| process::allocate(size, device, handle(stream))) {
        Ok(address) => pointer(address),
        Err(TorchFailure { message, .. }) => {
            exception::throw(message);
            std::ptr::null_mut()
        }
    }
}

/// `void free(void* ptr, ssize_t size, int device, cudaStream_t stream)`. Size and device are what the allocation said, so
/// they are not looked at; a stream other than the allocation's counts as using the block.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_free(block: *mut c_void, _size: isize, _device: c_int, stream: *mut c_void) {
    // Told by `guarded`; a free has nobody else to tell.
    let _ = guarded(|| process::free(handle(block), handle(stream)));
}

/// `void init(int device_count)`: looks whether the TERRACE_TORCH_* variables can be. Devices are opened when they are used.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_init(_device_count: c_int) {
    let _ = guarded(process::options);
}

/// `void reset()`, PyTorch's `empty_cache`: gives everything unused back to the driver, on all devices that were used.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_reset() {
    let _ = guarded(|| {
        process::all_opened().iter().for_each(|device| _ = device.inner.trim());
        Ok(())
    });
}

/// `void memory_fraction(double fraction, int device)`: takes at most this share of the device's memory from now on.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_memory_fraction(fraction: f64, device: c_int) {
    let _ = guarded(|| process::set_memory_fraction(fraction, device));
}

/// `void* base_alloc(void* ptr, size_t* size)`: start and bytes of the block in which a pointer lies; the pointer itself and
/// 0 for one that lies in none.
///
/// # Safety
/// `size` is null or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_torch_base_alloc(inside: *mut c_void, size: *mut usize) -> *mut c_void {
    let found = guarded(|| Ok(process::enclosing_block(handle(inside)))).ok().flatten();
    let (start, bytes) = found.map_or((inside, 0), |(start, bytes)| (pointer(start), bytes as usize));
    // SAFETY: null or writable, says the caller.
    if let Some(size) = unsafe { size.as_mut() } {
        *size = bytes;
    }
    start
}

/// `void record_stream(void* ptr, cudaStream_t stream)`: the block is not given out again before what was put on this stream
/// until it is freed is done.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_record_stream(block: *mut c_void, stream: *mut c_void) {
    let _ = guarded(|| process::record_stream(handle(block), handle(stream)));
}

/// `void begin_allocate_to_pool(int device, MempoolId_t pool, std::function<bool(cudaStream_t)> filter)`: what the filter
/// accepts comes from the pool until its end.
///
/// # Safety
/// `filter` is null or points to a live `std::function<bool(cudaStream_t)>` of the GNU C++ library, which any thread may call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_torch_begin_allocate_to_pool(device: c_int, pool: PoolId, filter: *const StdFunction) {
    // SAFETY: the caller's promise.
    let filter = unsafe { Filter::copy(filter) };
    let _ = guarded(|| process::begin_pool(device, pool, filter));
}

/// `void end_allocate_to_pool(int device, MempoolId_t pool)`
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_end_allocate_to_pool(device: c_int, pool: PoolId) {
    let _ = guarded(|| process::on_pool(device, pool, "ended", |device| device.end(pool)));
}

/// `void release_pool(int device, MempoolId_t pool)`: one for each begin; the pool's memory goes back with the last, as soon
/// as its blocks are free.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_release_pool(device: c_int, pool: PoolId) {
    let _ = guarded(|| process::on_pool(device, pool, "released", |device| device.release(pool)));
}
