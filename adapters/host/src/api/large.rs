//! Large requests as they come in: the way around signal handlers, the purge clock, one more attempt when memory is short.
//!
//! Promises upward: [`allocate`], [`free_any`] and [`resize`] do the whole call.
//! Asks from below: [`large`] for the blocks, [`signal`] inside handlers, [`purge`].

use super::poll;
use crate::class::PAGE;
use crate::large::{self, allocate_slices};
use crate::tables::tables;
use crate::{class, emergency, init, os, purge, signal, thread, usage};
use core::ptr::null_mut;

/// Allocates `bytes` bytes at a multiple of `align`.
///
/// Null when there is no memory, or `align` is no power of two.
#[cold]
#[inline(never)]
pub extern "C" fn allocate(bytes: usize, align: usize, zeroed: bool) -> *mut u8 {
    if !align.is_power_of_two() {
        return os::out_of_memory();
    }
    if let Some(block) = signal::allocate(bytes, align) {
        if zeroed && !block.is_null() {
            // SAFETY: a block of at least so many bytes.
            unsafe { block.write_bytes(0, bytes) };
        }
        return block;
    }
    let _busy = thread::enter_slow_path();
    poll();
    match allocate_or_purge(bytes, align, zeroed) {
        Some(slice) => tables().map_or(null_mut(), |tables| tables.address(slice).as_ptr()),
        None => os::out_of_memory(),
    }
}

/// Allocates the slices of a block; purges what is free elsewhere when there is no memory at first.
pub fn allocate_or_purge(bytes: usize, align: usize, zeroed: bool) -> Option<u32> {
    if !large::is_possible(bytes, align) || !init::ready() {
        return None;
    }
    let attempt = || allocate_slices(bytes, align, zeroed);
    attempt().or_else(|| purge::retry(bytes, attempt))
}

/// Frees any block: null, large ones, those of heaps, and those of the emergency pool.
#[cold]
#[inline(never)]
pub extern "C" fn free_any(block: *mut u8) {
    if block.is_null() || signal::free(block) || emergency::free(block) {
        return;
    }
    let _busy = thread::enter_slow_path();
    let is_large = large::free(block);
    purge::note_free();
    poll();
    if is_large {
        purge::watch_backlog();
    }
}

/// Resizes a large block in place or by moving its pages, and returns its address.
///
/// The contents stay up to the smaller size. Returns null and changes nothing if the caller must copy the block.
pub fn resize(block: *mut u8, bytes: usize, align: usize) -> *mut u8 {
    if bytes <= class::LARGEST || !large::is_possible(bytes, align) || signal::is_in_handler() {
        return null_mut();
    }
    let _busy = thread::enter_slow_path();
    let Some(growth) = large::growth(block, bytes, align) else { return null_mut() };
    if !usage::claim(growth) && purge::retry(growth, || usage::claim(growth).then_some(())).is_none() {
        return null_mut();
    }
    let shrinks = bytes.next_multiple_of(PAGE) < large::usable(block);
    let resized = large::resize(block, bytes, growth);
    if !resized.is_null() && shrinks {
        purge::note_free();
    }
    resized
}
