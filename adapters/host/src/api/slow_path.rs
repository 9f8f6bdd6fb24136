//! The slow paths of small blocks: the thread's cache has no block, has no room, or does not exist.
//!
//! Promises upward: [`refill`] and [`overflow`] do the whole call.
//! Asks from below: [`thread`] for caches and their batches, [`signal`] inside handlers, [`purge`].

#[cfg(feature = "track")]
use super::tracked;
use super::{free_any, poll};
use crate::class::{self, SLICE};
use crate::spans::GLOBAL_SPANS;
#[cfg(feature = "track")]
use crate::track::Calls;
use crate::{init, live, os, purge, signal, thread, track};

/// Allocates a block of a class of which the thread's cache has none.
///
/// Only jumps: a call stack that the tracker reads begins with the caller of the fast path.
#[cold]
#[inline(never)]
pub extern "C" fn refill(class: usize) -> *mut u8 {
    #[cfg(feature = "track")]
    match track::calls() {
        Calls::Untracked => {}
        Calls::Counted => return tracked::refill_counted(class),
        Calls::Recorded => return tracked::refill(class),
        Calls::WithStack => return tracked::refill_with_stack(class),
    }
    refill_now(class)
}

/// Refills the thread's cache, and allocates a block.
///
/// Takes the batch from the transfer cache, which holds blocks that other threads freed, or from the fullest span.
#[inline(never)]
pub extern "C" fn refill_now(class: usize) -> *mut u8 {
    // A request of 0 bytes arrives as class 0 and gets a block of class 1.
    let class = class.max(1);
    if let Some(block) = signal::allocate(class::size(class), class::align(class)) {
        return block;
    }
    let is_ready = init::ready();
    // `enter_slow_path` marks the thread's cache, so the thread's first call must make the cache before.
    let own = thread::own_cache();
    // The environment may have been read just now, when the thread got its cache.
    track::poll();
    let _busy = thread::enter_slow_path();
    poll();
    if !is_ready {
        return os::out_of_memory();
    }
    let block = match own {
        Some(cache) => thread::allocate_refill(cache, class),
        None => thread::allocate_one(class),
    };
    live::poll();
    if block.is_null() { exhausted(class) } else { block }
}

/// Allocates a block after a refill failed: first flushes and purges free memory, also that of other classes.
#[cold]
fn exhausted(class: usize) -> *mut u8 {
    let attempt = || Some(thread::allocate_one(class)).filter(|block| !block.is_null());
    purge::retry(SLICE, attempt).unwrap_or_else(os::out_of_memory)
}

/// Frees a block for which the thread's cache has no room; class 0 accepts any block.
#[cold]
#[inline(never)]
pub extern "C" fn overflow(block: *mut u8, class: usize) {
    #[cfg(feature = "track")]
    match track::calls() {
        Calls::Untracked => {}
        Calls::Counted => return tracked::overflow_counted(block, class),
        Calls::Recorded | Calls::WithStack => return tracked::overflow(block, class),
    }
    overflow_now(block, class);
}

/// Frees a block into the thread's cache, which spills others.
#[inline(never)]
pub extern "C" fn overflow_now(block: *mut u8, class: usize) {
    if class == class::NONE {
        return free_any(block);
    }
    if signal::free(block) {
        return;
    }
    init::ready();
    let spilled = {
        let own = thread::own_cache();
        let _busy = thread::enter_slow_path();
        poll();
        match own {
            Some(cache) => thread::free_spilled(cache, class, block),
            None => return GLOBAL_SPANS.free(class, &[block]),
        }
    };
    live::poll();
    if spilled {
        purge::note_free();
        purge::watch_backlog();
    }
}
