//! What the fast paths leave over: a cache without blocks, a cache without room, a thread without a cache, large blocks.
//!
//! Promises upward: [`refill`] and [`overflow`] do the whole call; a class that misses often may hold more.
//! Asks from below: [`thread`] for the cache, [`depot`] for what other threads left, [`GLOBAL_SPANS`] for the rest, [`purge`].

use crate::cache::{Cache, START};
use crate::class::{self, BATCH, SLICE};
use crate::spans::GLOBAL_SPANS;
use crate::{transfer_cache, large, os, purge, settings, signal, thread};

/// A block of a class when the cache has none: a batch from another thread, or from the fullest span.
#[cold]
#[inline(never)]
pub extern "C" fn refill(class: usize) -> *mut u8 {
    // 0 bytes have a block too.
    let class = class.max(1);
    if let Some(block) = signal::allocate(class::size(class), class::align(class)) {
        return block;
    }
    // First the cache, then the mark: a thread's first call gets one.
    let own = thread::own_cache();
    let _busy = thread::enter_slow_path();
    purge::poll();
    let Some(cache) = own else { return refill_one(class) };
    let held = cache.lock_owner();
    // It has some when it was put aside.
    if let Some(block) = cache.pop(class) {
        return block;
    }
    let cap = next_cap(cache, class);
    if cap != cache.cap(class) {
        cache.set_cap(class, cap);
    }
    let mut blocks = [core::ptr::null_mut(); BATCH];
    let batch = usize::from(class::facts(class).batch).min(cap / 2 + 1);
    let taken = take(class, &mut blocks[..batch]);
    // The lowest address goes out first: what is used together lies together.
    let Some((&first, rest)) = blocks[..taken].split_first() else {
        drop(held);
        return exhausted(class);
    };
    cache.push(class, rest.iter().rev().copied());
    first
}

/// Blocks from the depot or the shelves.
fn take(class: usize, out: &mut [*mut u8]) -> usize {
    if let Some(taken) = transfer_cache::take(class, out) {
        return taken;
    }
    let mut at = 0;
    let count = out.len();
    GLOBAL_SPANS.allocate(class, count, |block| {
        if let Some(place) = out.get_mut(at) {
            *place = block;
            at += 1;
        }
    });
    purge::adjust_purgeable(-bytes(class, at));
    at
}

/// Bytes of so many blocks.
fn bytes(class: usize, count: usize) -> isize {
    (class::size(class) * count) as isize
}

/// A block for a thread without a cache.
fn refill_one(class: usize) -> *mut u8 {
    if !crate::init::ready() {
        return out_of_memory();
    }
    let mut block = [core::ptr::null_mut()];
    if take(class, &mut block) == 0 { exhausted(class) } else { block[0] }
}

/// A block when nothing was left: what is free elsewhere goes back first, also to serve another class.
#[cold]
fn exhausted(class: usize) -> *mut u8 {
    let mut block = [core::ptr::null_mut()];
    let found = purge::retry(SLICE, || (take(class, &mut block) > 0).then_some(block[0]));
    found.unwrap_or_else(out_of_memory)
}

/// The answer to a request that there is no memory for.
#[cold]
pub fn out_of_memory() -> *mut u8 {
    os::set_errno(os::ENOMEM);
    core::ptr::null_mut()
}

/// How many blocks a class that just missed may hold: twice as many as before.
fn next_cap(cache: &Cache, class: usize) -> usize {
    let facts = class::facts(class);
    let most = usize::from(facts.cap).min(settings::cache_bytes() / facts.size as usize).max(2);
    (cache.cap(class) * 2).max(START).min(most)
}

/// Takes a block back that the cache has no room for; with class 0 any block.
#[cold]
#[inline(never)]
pub extern "C" fn overflow(block: *mut u8, class: usize) {
    if class == class::NONE {
        return large::free_any(block);
    }
    if signal::free(block) {
        return;
    }
    let mut spilled = false;
    {
        let own = thread::own_cache();
        let _busy = thread::enter_slow_path();
        purge::poll();
        let Some(cache) = own else { return GLOBAL_SPANS.free(class, &[block]) };
        let _held = cache.lock_owner();
        // The thread may just have got its cache, or a tick emptied it.
        if cache.count(class) == cache.cap(class) {
            let cap = next_cap(cache, class);
            if cap > cache.cap(class) {
                cache.raise_cap(class, cap);
            } else {
                spilled = spill(cache, class, usize::from(class::facts(class).batch).min(cap));
            }
        }
        cache.push(class, [block].into_iter());
    }
    if spilled {
        purge::note_free();
        purge::watch_backlog();
    }
}

/// Passes the `most` oldest blocks of a class on: to other threads, if there are any, or to the spans they are of. Whether
/// there were any.
fn spill(cache: &Cache, class: usize, most: usize) -> bool {
    let mut blocks = [core::ptr::null_mut(); BATCH];
    let count = cache.take_oldest(class, &mut blocks[..most.min(BATCH)]);
    if count > 0 && !transfer_cache::put(class, &blocks[..count]) {
        GLOBAL_SPANS.free(class, &blocks[..count]);
        purge::adjust_purgeable(bytes(class, count));
    }
    count > 0
}

/// Gives blocks that were taken away from an idle thread back to the spans: how many.
pub fn give_stolen(class: usize, blocks: &[*mut u8]) -> usize {
    GLOBAL_SPANS.free(class, blocks);
    purge::adjust_purgeable(bytes(class, blocks.len()));
    blocks.len()
}

/// Gives all that a cache holds back to the spans: how many blocks.
pub fn flush(cache: &Cache) -> usize {
    let _held = cache.lock_owner();
    let mut given = 0;
    for class in (1..class::COUNT).filter(|&class| cache.cap(class) > 0) {
        while cache.count(class) > 0 {
            let mut blocks = [core::ptr::null_mut(); BATCH];
            let count = cache.take_oldest(class, &mut blocks);
            GLOBAL_SPANS.free(class, &blocks[..count]);
            given += count;
        }
        // What it held was not needed; it grows again when it is.
        cache.set_cap(class, START.min(usize::from(class::facts(class).cap)));
    }
    given
}
