//! Moves batches of blocks between a thread's cache and the transfer cache or, if that has none or no room, the spans.
//!
//! Promises upward: a cache may hold more blocks of a class that misses often ([`allocate_refill`], [`free_spilled`]);
//! bytes that leave a cache for their spans count as purgeable.
//! Asks from below: [`transfer_cache`], [`GLOBAL_SPANS`], [`backlog`].

use super::cache::{Cache, START};
use crate::class::{self, BATCH};
use crate::spans::GLOBAL_SPANS;
use crate::{backlog, settings, transfer_cache};
use core::ptr::null_mut;

/// Allocates a block of a class of which the cache has none, and refills the cache with a batch.
///
/// Null without memory.
pub fn allocate_refill(cache: &Cache, class: usize) -> *mut u8 {
    let _held = cache.lock_owner();
    // The cache was detached, so the fast path missed although the cache has blocks.
    if let Some(block) = cache.pop(class) {
        return block;
    }
    let cap = next_cap(cache, class);
    if cap != cache.cap(class) {
        cache.set_cap(class, cap);
    }
    let mut blocks = [null_mut(); BATCH];
    let batch = usize::from(class::facts(class).batch).min(cap / 2 + 1);
    let taken = take(class, &mut blocks[..batch]);
    // Returns the lowest address, and pushes the rest so that the next lowest is on top: blocks used together lie
    // together.
    let Some((&first, rest)) = blocks[..taken].split_first() else { return null_mut() };
    cache.push(class, rest.iter().rev().copied());
    first
}

/// Allocates one block for a thread without a cache. Null without memory.
pub fn allocate_one(class: usize) -> *mut u8 {
    let mut block = [null_mut()];
    take(class, &mut block);
    block[0]
}

/// Takes blocks from the transfer cache or, if it has none, from the spans; returns how many.
fn take(class: usize, out: &mut [*mut u8]) -> usize {
    if let Some(taken) = transfer_cache::take(class, out) {
        return taken;
    }
    let mut at = 0;
    let count = out.len();
    GLOBAL_SPANS.allocate(class, count, |block| {
        if let Some(entry) = out.get_mut(at) {
            *entry = block;
            at += 1;
        }
    });
    backlog::adjust_purgeable(-bytes(class, at));
    at
}

/// Bytes of `count` blocks of a class.
fn bytes(class: usize, count: usize) -> isize {
    (class::size(class) * count) as isize
}

/// The new cap of a class that just missed: twice its cap, within the bounds of the class and the settings.
fn next_cap(cache: &Cache, class: usize) -> usize {
    let facts = class::facts(class);
    let most = usize::from(facts.cap).min(settings::cache_bytes() / facts.size as usize).max(2);
    (cache.cap(class) * 2).max(START).min(most)
}

/// Frees a block into a cache that had no room for it; returns whether it spilled other blocks.
///
/// Raises the class's cap; if that is at its bound, spills the class's oldest blocks.
pub fn free_spilled(cache: &Cache, class: usize, block: *mut u8) -> bool {
    let _held = cache.lock_owner();
    let mut spilled = false;
    // Otherwise there is room: the thread has just got its cache, or a tick flushed it.
    if cache.count(class) == cache.cap(class) {
        let cap = next_cap(cache, class);
        if cap > cache.cap(class) {
            cache.raise_cap(class, cap);
        } else {
            spilled = spill(cache, class, usize::from(class::facts(class).batch).min(cap));
        }
    }
    cache.push(class, [block].into_iter());
    spilled
}

/// Moves the `most` oldest blocks of a class to the transfer cache, or to their spans if it accepts none. Returns
/// whether there were any.
fn spill(cache: &Cache, class: usize, most: usize) -> bool {
    let mut blocks = [null_mut(); BATCH];
    let count = cache.take_oldest(class, &mut blocks[..most.min(BATCH)]);
    if count > 0 && !transfer_cache::put(class, &blocks[..count]) {
        GLOBAL_SPANS.free(class, &blocks[..count]);
        backlog::adjust_purgeable(bytes(class, count));
    }
    count > 0
}

/// Frees blocks that were stolen from an idle thread's cache into their spans; returns how many.
pub(super) fn give_stolen(class: usize, blocks: &[*mut u8]) -> usize {
    GLOBAL_SPANS.free(class, blocks);
    backlog::adjust_purgeable(bytes(class, blocks.len()));
    blocks.len()
}

/// Flushes a cache: frees all its blocks into their spans. Returns how many there were.
pub fn flush(cache: &Cache) -> usize {
    let _held = cache.lock_owner();
    let mut freed = 0;
    for class in (1..class::COUNT).filter(|&class| cache.cap(class) > 0) {
        while cache.count(class) > 0 {
            let mut blocks = [null_mut(); BATCH];
            let count = cache.take_oldest(class, &mut blocks);
            GLOBAL_SPANS.free(class, &blocks[..count]);
            freed += count;
        }
        // The blocks were not needed, so the cap shrinks; the next misses raise it again.
        cache.set_cap(class, START.min(usize::from(class::facts(class).cap)));
    }
    freed
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::thread::own_cache;
    use crate::{api, process};
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn a_full_cache_raises_its_cap_or_spills_and_says_which() {
        let _alone = crate::check::ALONE.lock();
        let class = class::of(100);
        let blocks = [(); 300].map(|()| api::allocate(100, 1));
        let cache = own_cache().expect("this thread allocated");
        let mut spills = 0;
        for block in blocks {
            if cache.count(class) < cache.cap(class) {
                cache.push(class, [block].into_iter());
                continue;
            }
            let before = cache.cap(class);
            let spilled = free_spilled(cache, class, block);
            assert_eq!(spilled, cache.cap(class) == before, "a cap of {before}");
            spills += usize::from(spilled);
        }
        assert!(spills > 0);
    }

    #[test]
    fn a_refill_fills_half_the_cap_beside_the_block_it_returns() {
        let _alone = crate::check::ALONE.lock();
        let class = class::of(1000);
        assert!(!api::allocate(1000, 1).is_null());
        let cache = own_cache().expect("this thread allocated");
        assert_eq!((cache.count(class), cache.cap(class)), (START / 2, START));
    }

    #[test]
    fn what_one_thread_spills_another_takes() {
        let _alone = crate::check::ALONE.lock();
        let class = class::of(200);
        let (send, receive) = mpsc::channel();
        thread::scope(|scope| {
            let other = scope.spawn(move || {
                assert!(!api::allocate(100, 1).is_null());
                receive.recv().expect("the other thread has spilled");
                let before = transfer_cache::count(class);
                assert!(!api::allocate(200, 1).is_null());
                (before, transfer_cache::count(class))
            });
            let blocks = [(); 1000].map(|()| api::allocate(200, 1));
            while process::is_single_threaded() {
                thread::yield_now();
            }
            let cache = own_cache().expect("this thread allocated");
            for block in blocks {
                if cache.count(class) < cache.cap(class) {
                    cache.push(class, [block].into_iter());
                } else {
                    free_spilled(cache, class, block);
                }
            }
            send.send(()).expect("the other thread waits");
            let (before, after) = other.join().expect("it ends well");
            assert!(0 < before && after < before, "{before} blocks spilled, {after} of them left");
        });
    }
}
