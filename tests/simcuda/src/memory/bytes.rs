//! Bytes of device and host memory, by address.
//!
//! Upward: what operations do to them. All functions are unsafe for one reason: the address is a number. Device ranges
//! are open while an operation on them runs; host ranges are the callers' promise.

use core::ptr;

/// Copies; the ranges may overlap.
///
/// # Safety
/// Both ranges are usable while this runs.
pub unsafe fn copy(to: u64, from: u64, bytes: u64) {
    // SAFETY: the caller's promise; `copy` allows overlap.
    unsafe { ptr::copy(from as *const u8, to as *mut u8, bytes as usize) };
}

/// Sets bytes.
///
/// # Safety
/// The range is usable while this runs.
pub unsafe fn fill(to: u64, value: u8, bytes: u64) {
    // SAFETY: the caller's promise.
    unsafe { ptr::write_bytes(to as *mut u8, value, bytes as usize) };
}

/// Sets words.
///
/// # Safety
/// `count` words from `to` on are usable while this runs.
pub unsafe fn fill_words(to: u64, value: u32, count: u64) {
    for at in 0..count {
        // SAFETY: the caller's promise; the address may be odd.
        unsafe { ptr::write_unaligned((to as *mut u32).wrapping_add(at as usize), value) };
    }
}

/// Adds floats, one by one.
///
/// # Safety
/// `count` floats from each address on are usable while this runs.
pub unsafe fn add(a: u64, b: u64, out: u64, count: u64) {
    for at in 0..count as usize {
        // SAFETY: the caller's promise; the address may be odd.
        let left = unsafe { ptr::read_unaligned((a as *const f32).wrapping_add(at)) };
        // SAFETY: as above.
        let right = unsafe { ptr::read_unaligned((b as *const f32).wrapping_add(at)) };
        // SAFETY: as above.
        unsafe { ptr::write_unaligned((out as *mut f32).wrapping_add(at), left + right) };
    }
}

/// Adds `a` times `x` to `y`, rounded once for each element as a GPU does.
///
/// # Safety
/// `count` floats from each address on are usable while this runs.
pub unsafe fn axpy(y: u64, x: u64, a: f32, count: u64) {
    for at in 0..count as usize {
        let place = (y as *mut f32).wrapping_add(at);
        // SAFETY: the caller's promise; the address may be odd.
        let left = unsafe { ptr::read_unaligned((x as *const f32).wrapping_add(at)) };
        // SAFETY: as above.
        let right = unsafe { ptr::read_unaligned(place) };
        // SAFETY: as above.
        unsafe { ptr::write_unaligned(place, a.mul_add(left, right)) };
    }
}

/// Adds words up, modulo 2^32.
///
/// # Safety
/// `count` words from `from` on, and one at `out`, are usable while this runs.
pub unsafe fn sum(from: u64, out: u64, count: u64) {
    let mut sum = 0_u32;
    for at in 0..count as usize {
        // SAFETY: the caller's promise; the address may be odd.
        sum = sum.wrapping_add(unsafe { ptr::read_unaligned((from as *const u32).wrapping_add(at)) });
    }
    // SAFETY: the caller's promise.
    unsafe { ptr::write_unaligned(out as *mut u32, sum) };
}
