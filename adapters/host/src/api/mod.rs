//! The entry points for Rust and C: they take sizes and alignments, and return blocks.

mod large;
mod slow_path;
#[cfg(feature = "track")]
mod tracked;

use crate::thread::cache;
use crate::{class, purge, signal, tables};
use core::ptr::null_mut;
pub(crate) use large::{allocate_or_purge, free_any};

/// Allocates `bytes` bytes at a multiple of `align`; without memory sets `errno` and returns null.
///
/// Returns null too when `align` is no power of two. O(1); O(log gaps) for large blocks.
#[inline(always)]
pub fn allocate(bytes: usize, align: usize) -> *mut u8 {
    allocate_of(class::serving(bytes, align), bytes, align)
}

/// Allocates a block of the class that serves `bytes` at `align`.
#[inline(always)]
pub(crate) fn allocate_of(class: usize, bytes: usize, align: usize) -> *mut u8 {
    match class {
        class::NONE => large::allocate(bytes, align, false),
        class => allocate_class(class),
    }
}

/// Allocates `bytes` bytes at a multiple of 16; reads the class of a size up to 1 KiB from a table.
#[inline(always)]
pub fn allocate_small(bytes: usize) -> *mut u8 {
    if bytes <= class::TABLED { allocate_tabled(bytes) } else { allocate_larger(bytes) }
}

/// Stays out of line, so that `allocate_small` saves no registers on its fast path.
#[inline(never)]
extern "C" fn allocate_larger(bytes: usize) -> *mut u8 {
    allocate(bytes, 16)
}

/// Allocates `bytes` zeros at a multiple of `align`; of a large block clears only the dirty pages.
#[inline(always)]
pub fn allocate_zeroed(bytes: usize, align: usize) -> *mut u8 {
    allocate_zeroed_of(class::serving(bytes, align), bytes, align)
}

/// Allocates `bytes` zeros in a block of `class`, which must serve `bytes` at `align`.
#[inline(always)]
pub(crate) fn allocate_zeroed_of(class: usize, bytes: usize, align: usize) -> *mut u8 {
    if class == class::NONE {
        return large::allocate(bytes, align, true);
    }
    let block = allocate_class(class);
    if !block.is_null() {
        // SAFETY: a block holds at least the requested bytes.
        unsafe { block.write_bytes(0, bytes) };
    }
    block
}

/// Allocates `bytes` zeros for a size known at run time; clears up to 64 bytes without a call.
#[inline(always)]
pub fn allocate_zeroed_small(bytes: usize) -> *mut u8 {
    if bytes > 64 {
        return allocate_zeroed_larger(bytes);
    }
    // The class of a small size is its number of 16-byte steps. 0 bytes give class 0, of which a cache never has a
    // block.
    match cache::pop(bytes.div_ceil(16)) {
        Some(block) => clear(block, bytes),
        None => allocate_zeroed_larger(bytes),
    }
}

/// Clears a block of up to 64 bytes from both ends: two stores of constant length, which may overlap, cover every size.
#[inline(always)]
fn clear(block: *mut u8, bytes: usize) -> *mut u8 {
    if bytes <= 32 {
        // Blocks have at least 16 bytes.
        clear_ends::<16>(block, bytes.max(16));
    } else {
        clear_ends::<32>(block, bytes);
    }
    block
}

/// Clears the first and the last `END` bytes of a block of `bytes` bytes, which must be at least `END`.
#[inline(always)]
fn clear_ends<const END: usize>(block: *mut u8, bytes: usize) {
    // SAFETY: the block has at least `END` bytes.
    unsafe { block.write_bytes(0, END) };
    let last = block.wrapping_add(bytes).wrapping_sub(END);
    // SAFETY: `last` lies `END` bytes before the end of the block.
    unsafe { last.write_bytes(0, END) };
}

/// Stays out of line for the same reason as `allocate_larger`.
#[inline(never)]
extern "C" fn allocate_zeroed_larger(bytes: usize) -> *mut u8 {
    allocate_zeroed(bytes, 16)
}

/// Allocates `bytes` bytes at a multiple of `align`, which is known at run time.
#[inline(always)]
pub fn allocate_aligned(bytes: usize, align: usize) -> *mut u8 {
    if !align.is_power_of_two() {
        return allocate_aligned_larger(bytes, align);
    }
    let align = align.max(16);
    // Rounds up as `class::padded` does, but for 0 bytes and sums that wrap, which fail the test below.
    let padded = bytes.wrapping_add(align - 1) & align.wrapping_neg();
    if padded.wrapping_sub(1) < class::TABLED { allocate_tabled(padded) } else { allocate_aligned_larger(bytes, align) }
}

/// Stays out of line for the same reason as `allocate_larger`.
#[inline(never)]
extern "C" fn allocate_aligned_larger(bytes: usize, align: usize) -> *mut u8 {
    allocate(bytes, align)
}

/// Allocates a block of a class. Null without memory.
#[inline(always)]
pub(crate) fn allocate_class(class: usize) -> *mut u8 {
    match cache::pop(class) {
        Some(block) => block,
        None => slow_path::refill(class),
    }
}

/// Allocates a block for at most 1 KiB; reads the class from the table in the thread's cache.
#[inline(always)]
fn allocate_tabled(bytes: usize) -> *mut u8 {
    allocate_class(cache::small_class(bytes))
}

/// Frees a block of `class`; class 0 accepts any block.
#[inline(always)]
pub(crate) fn free_class(block: *mut u8, class: usize) {
    if !cache::push(block, class) {
        slow_path::overflow(block, class);
    }
}

/// Frees the blocks whose free signal handlers deferred, and purges if the purge clock's deadline has passed.
#[inline]
pub(crate) fn poll() {
    if !signal::is_in_handler() {
        // SAFETY: the signal handler that freed the block promised that it is live and not used any more.
        signal::drain_deferred(|block| unsafe { free(block) });
    }
    purge::poll();
}

/// Frees null, or a block that any function here allocated; looks up the block's class.
///
/// # Safety
/// The block must be live, or null, and the caller must not use it any more.
#[inline(always)]
pub unsafe fn free(block: *mut u8) {
    match tables::class_at(block) {
        Some(class) => free_class(block, class),
        None => free_any(block),
    }
}

/// Returns the bytes that fit in a live block: at least as many as were requested.
///
/// # Safety
/// The block must be live.
#[inline]
pub unsafe fn usable(block: *mut u8) -> usize {
    match tables::class_at(block).unwrap_or(class::NONE) {
        class::NONE => large::usable(block),
        class => class::size(class),
    }
}

/// Resizes a live block to `bytes` bytes, in place or elsewhere; null without memory.
///
/// Keeps the contents up to the smaller size; when the result is null, the block is unchanged.
///
/// # Safety
/// The block must be live, and no other thread may use it during the call.
#[inline]
pub unsafe fn resize(block: *mut u8, bytes: usize, align: usize) -> *mut u8 {
    let before = tables::class_at(block).unwrap_or(class::NONE);
    let after = class::serving(bytes, align);
    if before == class::NONE || after == class::NONE {
        // SAFETY: the caller's promise.
        return unsafe { resize_large(block, before, bytes, align) };
    }
    if before == after {
        return block;
    }
    let target = allocate_class(after);
    if !target.is_null() {
        let kept = class::size(before).min(bytes);
        // SAFETY: both blocks hold at least `kept` bytes, and a new block overlaps no live one.
        unsafe { core::ptr::copy_nonoverlapping(block, target, kept) };
        free_class(block, before);
    }
    target
}

/// Resizes a block when its old or its new size has no class.
///
/// # Safety
/// As for [`resize`].
#[inline(never)]
unsafe fn resize_large(block: *mut u8, before: usize, bytes: usize, align: usize) -> *mut u8 {
    let held = if before == class::NONE { large::usable(block) } else { class::size(before) };
    // SAFETY: the caller's promise.
    unsafe { move_block(block, before, held, bytes, align) }
}

/// Resizes a block of `class`, which holds `held` bytes, to `bytes` bytes.
///
/// A large block stays where it is if it can; any other block is copied to a new one.
///
/// # Safety
/// The block must be live, of that class, and have at least `held` bytes; no other thread may use it during the call.
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
    let kept = held.min(bytes);
    if class == class::NONE && kept > class::LARGEST {
        // SAFETY: both blocks hold at least `kept` bytes.
        unsafe { large::copy(block, target, kept) };
    } else {
        // SAFETY: both blocks hold at least `kept` bytes, and a new block overlaps no live one.
        unsafe { core::ptr::copy_nonoverlapping(block, target, kept) };
    }
    free_class(block, class);
    target
}
