//! The functions of the whole library: regions with capabilities, hooks, statistics.
//!
//! Promises upward: what the header says of them.
//! Asks from below: the one heap, behind its lock.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr::{self, NonNull};

use embedded::{HeapCounters, MemoryCaps, RegionError};

use crate::InitResult;
use crate::heap::{self, BadFreeHook, OutOfMemoryHook, Want};
use crate::malloc::HEADER;

/// `struct terrace_stats`.
#[repr(C)]
#[derive(Debug)]
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
    pub peak_live: usize,
}

/// See the header.
///
/// # Safety
/// From now on the bytes must be readable and writable, and only the heap and the users of its blocks may access them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_init(start: *mut c_void, bytes: usize) -> InitResult {
    // SAFETY: the caller's promise.
    unsafe { add_region(start, bytes, MemoryCaps::ANY, true) }
}

/// See the header.
///
/// # Safety
/// As for [`terrace_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_add_region(start: *mut c_void, bytes: usize) -> InitResult {
    // SAFETY: the caller's promise.
    unsafe { add_region(start, bytes, MemoryCaps::ANY, false) }
}

/// See the header.
///
/// # Safety
/// As for [`terrace_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_add_region_with(start: *mut c_void, bytes: usize, has: c_uint) -> InitResult {
    // SAFETY: the caller's promise.
    unsafe { add_region(start, bytes, MemoryCaps::from_bits(has), false) }
}

/// Adds a region; `first`: refuses if there is one.
///
/// # Safety
/// As for [`terrace_init`].
unsafe fn add_region(start: *mut c_void, bytes: usize, has: MemoryCaps, first: bool) -> InitResult {
    let Some(start) = NonNull::new(start.cast()) else { return InitResult::Null };
    heap::locked(|state| {
        if first && state.regions.count() > 0 {
            return InitResult::AlreadyInitialised;
        }
        // SAFETY: the caller's promise.
        match unsafe { state.regions.add(start, bytes, has) } {
            Ok(()) => InitResult::Ok,
            Err(RegionError::TooSmall) => InitResult::TooSmall,
            Err(RegionError::TooLarge { .. }) => InitResult::TooLarge,
            Err(RegionError::Overlaps) => InitResult::Overlaps,
            Err(RegionError::TooMany) => InitResult::TooMany,
        }
    })
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_set_preference(first: c_uint, fallback: c_uint) {
    heap::locked(|state| state.preference = [first, fallback].map(MemoryCaps::from_bits));
}

/// A wish and its fallback.
fn want(first: c_uint, fallback: c_uint) -> Want {
    Some([first, fallback].map(MemoryCaps::from_bits))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_memalign(align: usize, bytes: usize) -> *mut c_void {
    allocate(align, bytes, None)
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_malloc_with(bytes: usize, first: c_uint, fallback: c_uint) -> *mut c_void {
    allocate(HEADER, bytes, want(first, fallback))
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn terrace_memalign_with(align: usize, bytes: usize, first: c_uint, fallback: c_uint) -> *mut c_void {
    allocate(align, bytes, want(first, fallback))
}

/// Allocates a block; null without room, or for an alignment that is no power of two.
fn allocate(align: usize, bytes: usize, want: Want) -> *mut c_void {
    let found = align.is_power_of_two().then(|| heap::allocate(bytes, align, want)).flatten();
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
    // SAFETY: the caller's promise.
    unsafe { reallocate(block, bytes, None) }
}

/// See the header.
///
/// # Safety
/// As for [`terrace_realloc`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_realloc_with(
    block: *mut c_void,
    bytes: usize,
    first: c_uint,
    fallback: c_uint,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { reallocate(block, bytes, want(first, fallback)) }
}

/// Allocates, resizes or frees, as C's `realloc`.
///
/// # Safety
/// As for [`terrace_realloc`].
unsafe fn reallocate(block: *mut c_void, bytes: usize, want: Want) -> *mut c_void {
    let Some(old) = NonNull::new(block.cast::<u8>()) else { return allocate(HEADER, bytes, want) };
    if bytes == 0 {
        // SAFETY: the caller's promise.
        unsafe { heap::free(block, None) };
        return ptr::null_mut();
    }
    // SAFETY: the caller's promise.
    let resized = unsafe { heap::resize(old, bytes, want) };
    resized.map_or(ptr::null_mut(), |block| block.as_ptr().cast())
}

/// See the header.
///
/// # Safety
/// `out` must be null, or writable for the struct.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_stats(out: *mut CStats) {
    let (usage, counters) = heap::locked(|state| (state.regions.usage(MemoryCaps::ANY), state.counters));
    let HeapCounters { requested, peak, peak_live, allocations, frees, failures, refused, .. } = counters;
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
        peak_live,
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
    c_int::from(heap::locked(|state| state.regions.check()).is_ok())
}
