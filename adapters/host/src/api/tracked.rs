//! Calls while the tracker is on: as the slow paths, with a word to the tracker.
//!
//! Promises upward: an allocation is told once it is done, a free before the memory can be another caller's. While only counters are
//! kept, a call takes blocks from the thread's cache as the fast path does.
//! Asks from below: [`track`], the slow paths, [`thread::bypass`].

use super::{large, slow_path};
use crate::thread::bypass;
use crate::track::CallStack;
use crate::{class, track};

/// Allocates a block of a class, and counts it.
#[inline(never)]
pub extern "C" fn refill_counted(class: usize) -> *mut u8 {
    if let Some(cache) = bypass::detached()
        && let Some(block) = bypass::pop(cache, class.max(1))
    {
        track::count_allocated(cache, class::size(class.max(1)));
        return block;
    }
    refill(class)
}

/// Frees a block, and counts it; class 0 accepts any block.
#[inline(never)]
pub extern "C" fn overflow_counted(block: *mut u8, class: usize) {
    if class != class::NONE
        && let Some(cache) = bypass::detached()
        && bypass::push(cache, block, class)
    {
        return track::count_freed(cache, class::size(class));
    }
    overflow(block, class);
}

/// Allocates a block of a class.
#[inline(never)]
pub extern "C" fn refill(class: usize) -> *mut u8 {
    let class = class.max(1);
    let cache = bypass::detached();
    let block = cache.and_then(|cache| bypass::pop(cache, class)).unwrap_or_else(|| slow_path::refill_now(class));
    track::allocated(block, class::size(class));
    block
}

/// As [`refill`], with the caller's call stack.
#[inline(never)]
pub extern "C" fn refill_with_stack(class: usize) -> *mut u8 {
    let stack = CallStack::read();
    let class = class.max(1);
    let block = slow_path::refill_now(class);
    track::allocated_from(&stack, block, class::size(class));
    block
}

/// Frees a block; class 0 accepts any block.
#[inline(never)]
pub extern "C" fn overflow(block: *mut u8, class: usize) {
    if class != class::NONE {
        track::freed(block, class::size(class));
        if bypass::detached().is_some_and(|cache| bypass::push(cache, block, class)) {
            return;
        }
    }
    slow_path::overflow_now(block, class);
}

/// Allocates a large block.
pub extern "C" fn allocate_large(bytes: usize, align: usize, zeroed: bool) -> *mut u8 {
    let block = large::allocate_now(bytes, align, zeroed);
    if !block.is_null() {
        track::allocated(block, large::usable(block));
    }
    block
}

/// As [`allocate_large`], with the caller's call stack.
#[inline(never)]
pub extern "C" fn allocate_large_with_stack(bytes: usize, align: usize, zeroed: bool) -> *mut u8 {
    let stack = CallStack::read();
    let block = large::allocate_now(bytes, align, zeroed);
    if !block.is_null() {
        track::allocated_from(&stack, block, large::usable(block));
    }
    block
}
