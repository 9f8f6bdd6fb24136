//! `libterrace_embedded.a`: the functions that `include/terrace.h` declares and documents.
//!
//! Promises upward: what the header says; null or an error code for every invalid argument that can be recognised.
//! Asks from below: `HeaderHeap`, whose blocks record their size; the two lock functions.
#![cfg_attr(target_os = "none", no_std)]

mod heap;
mod lock;

use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};

use embedded::{HeapCounters, RegionError};
use heap::{BadFreeHook, HEADER, OutOfMemoryHook};

/// Stops for a debugger. The library does not panic, but the compiler cannot prove it.
#[cfg(target_os = "none")]
#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// `enum terrace_result`.
///
/// In C the functions return `int`, since compiler options change the width of an enum.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitResult {
    /// Done.
    Ok = 0,
    /// The address is null.
    Null = 1,
    /// The region has no room for blocks beside its tables.
    TooSmall = 2,
    /// The region is larger than the heap's records can express.
    TooLarge = 3,
    /// The region overlaps one that the heap has.
    Overlaps = 4,
    /// All four regions are in use.
    TooMany = 5,
    /// `terrace_init` was called before.
    AlreadyInitialised = 6,
}

/// `struct terrace_stats`.
#[repr(C)]
#[derive(Debug)]
#[expect(missing_docs, reason = "documented in the header")]
pub struct CStats {
    pub total: usize,
    pub tables: usize,
    pub live: usize,
    pub free: usize,
    pub largest_free: usize,
    pub free_blocks: usize,
    pub requested: usize,
    pub peak: usize,
    pub allocations: usize,
    pub frees: usize,
    pub failures: usize,
    pub refused: usize,
}

/// See the header.
///
/// # Safety
/// From now on the bytes must be readable and writable, and only the heap and the users of its blocks may access them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_init(start: *mut c_void, bytes: usize) -> InitResult {
    // SAFETY: the caller's promise.
    unsafe { add_region(start, bytes, true) }
}

/// See the header.
///
/// # Safety
/// As for [`terrace_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_add_region(start: *mut c_void, bytes: usize) -> InitResult {
    // SAFETY: the caller's promise.
    unsafe { add_region(start, bytes, false) }
}

/// Adds a region; `first`: refuses if there is one.
///
/// # Safety
/// As for [`terrace_init`].
unsafe fn add_region(start: *mut c_void, bytes: usize, first: bool) -> InitResult {
    let Some(start) = NonNull::new(start.cast()) else { return InitResult::Null };
    heap::locked(|state| {
        if first && state.regions > 0 {
            return InitResult::AlreadyInitialised;
        }
        // SAFETY: the caller's promise.
        match unsafe { state.heap.add_region(start, bytes) } {
            Ok(()) => {
                state.regions += 1;
                InitResult::Ok
            }
            Err(RegionError::TooSmall) => InitResult::TooSmall,
            Err(RegionError::TooLarge { .. }) => InitResult::TooLarge,
            Err(RegionError::Overlaps) => InitResult::Overlaps,
            Err(RegionError::TooMany) => InitResult::TooMany,
        }
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_malloc(bytes: usize) -> *mut c_void {
    terrace_memalign(HEADER, bytes)
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_calloc(count: usize, bytes: usize) -> *mut c_void {
    let Some(bytes) = count.checked_mul(bytes) else { return ptr::null_mut() };
    let block = terrace_malloc(bytes);
    if !block.is_null() {
        // SAFETY: a fresh block of so many bytes.
        unsafe { block.write_bytes(0, bytes) };
    }
    block
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_memalign(align: usize, bytes: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        return ptr::null_mut();
    }
    let found = heap::attempt_with_hook(bytes, align, |state| {
        let block = state.heap.allocate(bytes, align)?;
        state.counters.allocated(bytes);
        Some(block)
    });
    found.map_or(ptr::null_mut(), |block| block.as_ptr().cast())
}

/// See the header.
///
/// # Safety
/// `block` must be null, or a live block that is used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_free(block: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { heap::free(block, None) };
}

/// See the header.
///
/// # Safety
/// As for [`terrace_free`]; `bytes` must be the size of the request or of the last resize.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_free_sized(block: *mut c_void, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { heap::free(block, Some(bytes)) };
}

/// See the header.
///
/// # Safety
/// `block` must be null or live. Only the returned pointer may be used afterwards, unless it is null and `bytes` is not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(old) = NonNull::new(block.cast::<u8>()) else { return terrace_malloc(bytes) };
    if bytes == 0 {
        // SAFETY: the caller's promise.
        unsafe { heap::free(block, None) };
        return ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    let resized = unsafe { heap::resize(old, bytes) };
    resized.map_or(ptr::null_mut(), |block| block.as_ptr().cast())
}

/// See the header.
///
/// # Safety
/// `out` must be null, or writable for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_stats(out: *mut CStats) {
    let (usage, counters) = heap::locked(|state| (state.heap.usage(), state.counters));
    let HeapCounters { requested, peak, allocations, frees, failures, refused } = counters;
    let embedded::HeapUsage { total, live, free, largest_free, free_blocks, tables } = usage;
    let stats = CStats {
        total,
        tables,
        live,
        free,
        largest_free,
        free_blocks,
        requested,
        peak,
        allocations,
        frees,
        failures,
        refused,
    };
    if !out.is_null() {
        // SAFETY: the caller's promise.
        unsafe { out.write(stats) };
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_set_out_of_memory_hook(hook: Option<OutOfMemoryHook>) {
    heap::locked(|state| state.out_of_memory = hook);
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_set_bad_free_hook(hook: Option<BadFreeHook>) {
    heap::locked(|state| state.bad_free = hook);
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_check() -> c_int {
    c_int::from(heap::locked(|state| state.heap.check()).is_ok())
}
