//! Checks caches against their own invariants, and their blocks against the spans.

use super::cache::Cache;
use super::{assigned, each_cache};
use crate::class::{self, COUNT};
use crate::spans::GLOBAL_SPANS;
use core::sync::atomic::Ordering::Relaxed;
use terrace_core::Violation;

/// Checks the counts of every cache, and every block of the running thread's cache.
///
/// Other threads may change their caches during the check, so their blocks are not checked.
///
/// # Errors
/// The first invariant that is broken, and the address of the cache or the block.
pub fn check() -> Result<(), Violation> {
    let mut result = Ok(());
    each_cache(|cache| {
        if result.is_ok() {
            result = check_counts(cache);
        }
    });
    result?;
    match assigned() {
        Some(cache) => check_blocks(cache),
        None => Ok(()),
    }
}

fn at(cache: &Cache, clause: &'static str) -> Violation {
    Violation { clause, at: (&raw const *cache).addr() as u64 }
}

/// Checks the invariants that hold at every moment, even while the owner pushes and pops.
fn check_counts(cache: &Cache) -> Result<(), Violation> {
    // The owner changes caps only in slow paths, where it holds this lock.
    let _guard = cache.lock.lock();
    let is_sound = |class| cache.cap(class) <= usize::from(class::facts(class).cap);
    if cache.cap(class::NONE) != 0 {
        return Err(at(cache, "caches: class 0 has no room"));
    }
    if !(1..COUNT).all(is_sound) {
        return Err(at(cache, "caches: a class holds no more than its cap"));
    }
    let is_inside = |class| cache.cap(class) == 0 || cache.is_top_inside(class);
    if (1..COUNT).all(is_inside) { Ok(()) } else { Err(at(cache, "caches: a top lies between floor and end")) }
}

/// Checks the arrays of the running thread's cache.
fn check_blocks(cache: &Cache) -> Result<(), Violation> {
    let _held = cache.lock_owner();
    for class in (1..COUNT).filter(|&class| cache.cap(class) > 0) {
        let cap = cache.cap(class);
        if !cache.entry(class, cap + 1).load(Relaxed).is_null() {
            return Err(at(cache, "caches: the entry at the floor is null"));
        }
        for below in (0..cache.count(class)).map(|count| cap - count) {
            GLOBAL_SPANS.check_live(class, cache.entry(class, below).load(Relaxed))?;
        }
    }
    Ok(())
}
