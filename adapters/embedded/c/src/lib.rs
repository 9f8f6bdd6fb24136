//! `libterrace_embedded.a`: the functions that `include/terrace.h` declares and documents.
//!
//! Promises upward: what the header says; null and error codes where C passes nonsense that can be recognised.
//! Asks from below: `HeaderHeap`, whose blocks remember their size; the two lock functions.
#![cfg_attr(target_os = "none", no_std)]

mod heap;
mod lock;

use core::ffi::{c_int, c_void};
use core::ptr::{self, NonNull};

use embedded::{HeapCounters, RegionError};
use heap::{BadFreeHook, HEADER, OutOfMemoryHook};

/// Nothing here panics on purpose; what the compiler cannot prove away stops here, where a debugger finds it.
#[cfg(target_os = "none")]
#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// `enum terrace_result`; C gets it as an `int`, since the width of an enum is a compiler's option.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitResult {
    /// It was done.
    Ok = 0,
    /// The address is null.
    Null = 1,
    /// Nothing would be left beside the tables.
    TooSmall = 2,
    /// More than records can express.
    TooLarge = 3,
    /// The heap has some of it already.
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
/// The bytes are readable and writable, and nobody else's, for ever.
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
        // SAFETY: a block of so many bytes, which nobody else knows yet.
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
/// Null, or a live block that is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_free(block: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { heap::free(block, None) };
}

/// See the header.
///
/// # Safety
/// As for [`terrace_free`], and so many bytes were asked for last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn terrace_free_sized(block: *mut c_void, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { heap::free(block, Some(bytes)) };
}

/// See the header.
///
/// # Safety
/// Null, or a live block; only the pointer returned is used afterwards.
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
/// Null, or a place for the struct.
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
