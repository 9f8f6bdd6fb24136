//! The calls that both faces make: sizes and alignments in, blocks out.

use crate::{cache, class, large, space};
use core::ptr::null_mut;

/// A block of `bytes` bytes at a multiple of `align`, a power of two. Null, and the thread's `errno` says so, when there is no
/// memory. O(1); large blocks O(log gaps).
#[inline(always)]
pub fn allocate(bytes: usize, align: usize) -> *mut u8 {
    match class::serving(bytes, align) {
        class::NONE => large::allocate(bytes, align, false),
        class => cache::allocate(class),
    }
}

/// The same at the alignment of every block, 16; classes of sizes up to 1 KiB come from a table.
#[inline(always)]
pub fn allocate_small(bytes: usize) -> *mut u8 {
    match class::SMALL.get(bytes.wrapping_add(15) >> 4) {
        // A size near the last address wraps around to a small one.
        Some(&class) if bytes <= 1024 => cache::allocate(usize::from(class)),
        _ => allocate_larger(bytes),
    }
}

/// Out of line, so that the path of small sizes saves no register.
#[inline(never)]
extern "C" fn allocate_larger(bytes: usize) -> *mut u8 {
    allocate(bytes, 16)
}

/// The same, its bytes all 0: of a large block, only pages that may hold something else are written.
#[inline(always)]
pub fn allocate_zeroed(bytes: usize, align: usize) -> *mut u8 {
    let class = class::serving(bytes, align);
    if class == class::NONE {
        return large::allocate(bytes, align, true);
    }
    let block = cache::allocate(class);
    if !block.is_null() {
        // SAFETY: a block holds at least what was asked for.
        unsafe { block.write_bytes(0, bytes) };
    }
    block
}

/// The same for C, where a size is known only now: up to 128 bytes are cleared here, which
/// costs less than a call.
#[inline(always)]
pub fn allocate_zeroed_small(bytes: usize) -> *mut u8 {
    if bytes > 128 {
        return allocate_zeroed_larger(bytes);
    }
    let class = class::of(bytes);
    let block = cache::allocate(class);
    if !block.is_null() {
        clear(block, class::size(class));
    }
    block
}

/// Clears a block of 16, 32, .. or 128 bytes: from both ends, so that few stores of constant length do for every size.
#[inline(always)]
fn clear(block: *mut u8, bytes: usize) {
    let half = match bytes {
        0..=16 => 16,
        17..=64 => 32,
        _ => 64,
    };
    let last = block.wrapping_add(bytes - half);
    match half {
        // SAFETY: the block's 16 bytes.
        16 => unsafe { block.write_bytes(0, 16) },
        32 => {
            // SAFETY: a block of 32 to 64 bytes: its first 32.
            unsafe { block.write_bytes(0, 32) };
            // SAFETY: its last 32.
            unsafe { last.write_bytes(0, 32) };
        }
        _ => {
            // SAFETY: a block of 80 to 128 bytes: its first 64.
            unsafe { block.write_bytes(0, 64) };
            // SAFETY: its last 64.
            unsafe { last.write_bytes(0, 64) };
        }
    }
}

/// Out of line, as in `allocate_larger`.
#[inline(never)]
extern "C" fn allocate_zeroed_larger(bytes: usize) -> *mut u8 {
    allocate_zeroed(bytes, 16)
}

/// A block at an alignment that is known only now.
#[inline(always)]
pub fn allocate_aligned(bytes: usize, align: usize) -> *mut u8 {
    // Rounded up as `class::padded` does; sizes up to 1 KiB are in the table. 0 bytes, and sums that wrap around, go on below.
    let padded = bytes.wrapping_add(align - 1) & align.wrapping_neg();
    match class::SMALL.get(padded >> 4) {
        Some(&class) if padded.wrapping_sub(1) >= bytes.wrapping_sub(1) && align >= 16 => cache::allocate(usize::from(class)),
        _ => allocate_aligned_larger(bytes, align),
    }
}

/// Out of line, as in `allocate_larger`.
#[inline(never)]
extern "C" fn allocate_aligned_larger(bytes: usize, align: usize) -> *mut u8 {
    allocate(bytes, align)
}

/// Takes back a block that any of the calls here handed out, or null. Its class is looked up.
#[inline(always)]
pub fn free(block: *mut u8) {
    cache::free(block, space::class_at(block));
}

/// Bytes that a live block holds, at least as many as were asked for.
#[inline]
pub fn usable(block: *mut u8) -> usize {
    match space::class_at(block) {
        class::NONE => large::usable(block),
        class => class::size(class),
    }
}

/// Makes a live block `bytes` long, in place or elsewhere, keeping what it holds up to the smaller size. Null, and the block as
/// it was, when there is no memory.
///
/// # Safety
/// The block is live, and nobody else uses it meanwhile.
#[inline]
pub unsafe fn resize(block: *mut u8, bytes: usize, align: usize) -> *mut u8 {
    let before = space::class_at(block);
    if before != class::NONE && before == class::serving(bytes, align) {
        return block;
    }
    let held = if before == class::NONE { large::usable(block) } else { class::size(before) };
    // SAFETY: the caller's promise.
    unsafe { move_block(block, before, held, bytes, align) }
}

/// Makes a block of another size: `class` and `held` bytes are what it has now.
///
/// # Safety
/// The block is live, of that class, holds at least `held` bytes, and nobody else uses it meanwhile.
pub unsafe fn move_block(block: *mut u8, class: usize, held: usize, bytes: usize, align: usize) -> *mut u8 {
    if class == class::NONE {
        let resized = large::resize(block, bytes, align);
        if !resized.is_null() {
            return resized;
        }
    }
    let target = allocate(bytes, align);
    if target.is_null() {
        return null_mut();
    }
    // SAFETY: two blocks, each at least so long; a new block overlaps no live one.
    unsafe { core::ptr::copy_nonoverlapping(block, target, held.min(bytes)) };
    cache::free(block, class);
    target
}
