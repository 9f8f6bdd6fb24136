//! The functions that PyTorch calls, with the signatures that PyTorch defines
//! (`torch/csrc/cuda/CUDAPluggableAllocator.h`).
//!
//! Promises upward: nothing unwinds out of these functions, except the C++ exception of
//! [`terrace_torch_alloc_or_throw`]. Any thread may call any of them at any time.
//! Asks from below: `process`, which returns failures as values.

use crate::failure::{TorchFailure, guarded};
use crate::filter::{Filter, StdFunction};
use crate::pools::PoolId;
use crate::{exception, process};
use std::ffi::{c_int, c_void};

fn handle(stream: *mut c_void) -> u64 {
    stream.expose_provenance() as u64
}

fn pointer(address: u64) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(address as usize)
}

/// `void* alloc(ssize_t size, int device, cudaStream_t stream)`: allocates a block.
///
/// Returns null for a size of 0 and on failure.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_alloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    guarded(|| process::allocate(size, device, handle(stream))).map_or(std::ptr::null_mut(), pointer)
}

/// Like [`terrace_torch_alloc`], but throws `std::runtime_error` with the message on failure.
///
/// PyTorch raises the exception in Python. Returns null on failure if the process has no C++ library.
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

/// `void free(void* ptr, ssize_t size, int device, cudaStream_t stream)`: frees a block.
///
/// Ignores size and device, which the block's record has. If `stream` is not the stream of the allocation, the block
/// also counts as used on `stream`.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_free(block: *mut c_void, _size: isize, _device: c_int, stream: *mut c_void) {
    // `guarded` records a failure; a free has no result in which to return it.
    let _ = guarded(|| process::free(handle(block), handle(stream)));
}

/// `void init(int device_count)`: validates the TERRACE_TORCH_* variables.
///
/// Opens no device; each device opens at its first use.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_init(_device_count: c_int) {
    let _ = guarded(process::options);
}

/// `void reset()`, PyTorch's `empty_cache`: releases unused memory of all open devices to the driver.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_reset() {
    let _ = guarded(|| {
        process::all_opened().iter().for_each(|device| _ = device.inner.trim());
        Ok(())
    });
}

/// `void memory_fraction(double fraction, int device)`: limits a device to a share of its memory.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_memory_fraction(fraction: f64, device: c_int) {
    let _ = guarded(|| process::set_memory_fraction(fraction, device));
}

/// `void* base_alloc(void* ptr, size_t* size)`: finds the block that contains a pointer.
///
/// Returns the block's first address and writes its bytes to `size`; if no live block contains the pointer, returns the
/// pointer itself and writes 0.
///
/// # Safety
/// `size` must be null or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_torch_base_alloc(inside: *mut c_void, size: *mut usize) -> *mut c_void {
    let found = guarded(|| Ok(process::enclosing_block(handle(inside)))).ok().flatten();
    let (start, bytes) = found.map_or((inside, 0), |(start, bytes)| (pointer(start), bytes as usize));
    // SAFETY: the caller promises null or a writable pointer.
    if let Some(size) = unsafe { size.as_mut() } {
        *size = bytes;
    }
    start
}

/// `void record_stream(void* ptr, cudaStream_t stream)`: marks a block as used on a stream.
///
/// When the block is freed later, it is not reused before all work queued on that stream until the free is done.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_record_stream(block: *mut c_void, stream: *mut c_void) {
    let _ = guarded(|| process::record_stream(handle(block), handle(stream)));
}

/// Opens a pool: allocations that the filter accepts come from it, until its end.
///
/// [`terrace_torch_end_allocate_to_pool`] ends it. PyTorch's signature is
/// `void begin_allocate_to_pool(int device, MempoolId_t pool, std::function<bool(cudaStream_t)> filter)`.
///
/// # Safety
/// `filter` must be null or point to a live `std::function<bool(cudaStream_t)>` of the GNU C++ library, which any thread may call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_torch_begin_allocate_to_pool(device: c_int, pool: PoolId, filter: *const StdFunction) {
    // SAFETY: the caller promises null or a live function.
    let filter = unsafe { Filter::copy(filter) };
    let _ = guarded(|| process::begin_pool(device, pool, filter));
}

/// `void end_allocate_to_pool(int device, MempoolId_t pool)`: ends the latest open begin of the pool.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_end_allocate_to_pool(device: c_int, pool: PoolId) {
    let _ = guarded(|| process::on_pool(device, pool, "ended", |device| device.end(pool)));
}

/// `void release_pool(int device, MempoolId_t pool)`: drops one use of the pool.
///
/// PyTorch calls this once for each begin. After the last call, the pool's memory is freed as soon as all of its blocks
/// are freed.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_torch_release_pool(device: c_int, pool: PoolId) {
    let _ = guarded(|| process::on_pool(device, pool, "released", |device| device.release(pool)));
}
