//! `libterrace_embedded.a`: the functions that `include/terrace.h` declares and documents.
//!
//! Promises upward: what the header says; null or an error code for every invalid argument that can be recognised.
//! Asks from below: `HeaderHeap`, whose blocks record their size; the two lock functions.
#![cfg_attr(target_os = "none", no_std)]

#[cfg(not(feature = "small"))]
mod full;
#[cfg(not(feature = "small"))]
mod heap;
mod lock;
mod malloc;
#[cfg(feature = "small")]
mod small;

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
