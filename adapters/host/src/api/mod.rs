//! Where calls come in, from Rust and from C: sizes and alignments in, blocks out.

mod large;
mod slow_path;

use crate::thread::cache;
use crate::{class, purge, signal, tables};
use core::ptr::null_mut;
pub(crate) use large::{allocate_or_purge, free_any};

/// Allocates `bytes` bytes at a multiple of `align`; null, and `errno`, without memory.
///
/// Null too when `align` is no power of two. O(1); large blocks O(log gaps).
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

/// Allocates `bytes` bytes at a multiple of 16; classes of sizes up to 1 KiB come from a table.
#[inline(always)]
pub fn allocate_small(bytes: usize) -> *mut u8 {
    if bytes <= class::TABLED { allocate_tabled(bytes) } else { allocate_larger(bytes) }
}

/// Out of line, so that the path of small sizes saves no register.
#[inline(never)]
extern "C" fn allocate_larger(bytes: usize) -> *mut u8 {
    allocate(bytes, 16)
}

/// Allocates `bytes` zeros at a multiple of `align`; of a large block only dirty pages are written.
#[inline(always)]
pub fn allocate_zeroed(bytes: usize, align: usize) -> *mut u8 {
    allocate_zeroed_of(class::serving(bytes, align), bytes, align)
}

/// Allocates zeros in a block of the class that serves `bytes` at `align`.
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

/// Allocates `bytes` zeros, a size known at run time: up to 64 bytes are cleared without a call.
#[inline(always)]
pub fn allocate_zeroed_small(bytes: usize) -> *mut u8 {
    if bytes > 64 {
        return allocate_zeroed_larger(bytes);
    }
    // The class is the number of 16-byte steps; for 0 bytes class 0, of which the cache never has a block.
    match cache::pop(bytes.div_ceil(16)) {
        Some(block) => clear(block, bytes),
        None => allocate_zeroed_larger(bytes),
    }
}

/// Clears a block of up to 64 bytes, from both ends, so that few stores of constant length suffice for every size.
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

/// Clears the first and the last `END` of `bytes` bytes, which must be at least as many.
#[inline(always)]
fn clear_ends<const END: usize>(block: *mut u8, bytes: usize) {
    // SAFETY: the first bytes of the block.
    unsafe { block.write_bytes(0, END) };
    let last = block.wrapping_add(bytes).wrapping_sub(END);
    // SAFETY: its last bytes.
    unsafe { last.write_bytes(0, END) };
}

/// Out of line, as in `allocate_larger`.
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
    // Rounded up as `class::padded` does; sizes up to 1 KiB are in the table. 0 bytes, and sums that wrap, take the other path.
    let padded = bytes.wrapping_add(align - 1) & align.wrapping_neg();
    if padded.wrapping_sub(1) < class::TABLED { allocate_tabled(padded) } else { allocate_aligned_larger(bytes, align) }
}

/// Out of line, as in `allocate_larger`.
#[inline(never)]
extern "C" fn allocate_aligned_larger(bytes: usize, align: usize) -> *mut u8 {
    allocate(bytes, align)
}

/// Allocates a block of a class. Null when there is no memory.
#[inline(always)]
pub(crate) fn allocate_class(class: usize) -> *mut u8 {
    match cache::pop(class) {
        Some(block) => block,
        None => slow_path::refill(class),
    }
}

/// Allocates a block of at most 1 KiB; the class comes from the table in the cache.
#[inline(always)]
fn allocate_tabled(bytes: usize) -> *mut u8 {
    allocate_class(cache::small_class(bytes))
}

/// Frees a block of a class; with class 0, any block.
#[inline(always)]
pub(crate) fn free_class(block: *mut u8, class: usize) {
    if !cache::push(block, class) {
        slow_path::overflow(block, class);
    }
}

/// Frees the blocks that signal handlers freed, and ticks the purge clock if it is due.
#[inline]
pub(crate) fn poll() {
    if !signal::is_in_handler() {
        // SAFETY: the handler's promise when it freed the block.
        signal::drain_deferred(|block| unsafe { free(block) });
    }
    purge::poll();
}

/// Frees a block that any call here allocated, or null; looks its class up.
///
/// # Safety
/// The block is live, or null, and the caller uses it no more.
#[inline(always)]
pub unsafe fn free(block: *mut u8) {
    match tables::class_at(block) {
        Some(class) => free_class(block, class),
        None => free_any(block),
    }
}

/// The bytes that a live block holds, at least as many as were requested.
///
/// # Safety
/// The block is live.
#[inline]
pub unsafe fn usable(block: *mut u8) -> usize {
    match tables::class_at(block).unwrap_or(class::NONE) {
        class::NONE => large::usable(block),
        class => class::size(class),
    }
}

/// Resizes a live block to `bytes` bytes, in place or elsewhere; null without memory.
///
/// The contents are kept up to the smaller size; when the answer is null, the block is as it was.
///
/// # Safety
/// The block is live, and no other thread uses it meanwhile.
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
        // SAFETY: two blocks, each at least so long; a new block overlaps no live one.
        unsafe { core::ptr::copy_nonoverlapping(block, target, kept) };
        free_class(block, before);
    }
    target
}

/// Resizes a block where one of the sizes has no class.
///
/// # Safety
/// As for [`resize`].
#[inline(never)]
unsafe fn resize_large(block: *mut u8, before: usize, bytes: usize, align: usize) -> *mut u8 {
    let held = if before == class::NONE { large::usable(block) } else { class::size(before) };
    // SAFETY: the caller's promise.
    unsafe { move_block(block, before, held, bytes, align) }
}

/// Moves a block of a class, which holds `held` bytes, to one of `bytes` bytes.
///
/// # Safety
/// The block is live, of that class, holds at least `held` bytes, and no other thread uses it meanwhile.
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
        // SAFETY: two blocks, each at least so long.
        unsafe { large::copy(block, target, kept) };
    } else {
        // SAFETY: two blocks, each at least so long; a new block overlaps no live one.
        unsafe { core::ptr::copy_nonoverlapping(block, target, kept) };
    }
    free_class(block, class);
    target
}
