//! Threads: how a thread gets its cache, and how the next thread inherits the cache when it ends.
//!
//! Promises upward: [`own_cache`] takes a few instructions. A thread that ends leaves its cache, with its blocks, to
//! the next thread that starts; calls that it still makes allocate from and free into the spans.
//! Asks from below: [`tls`]; a pthread key, whose destructor runs at a thread's end, after those of `thread_local`; the
//! page heap for the memory of caches.

mod batches;
#[cfg_attr(not(feature = "track"), allow(dead_code, reason = "only the tracker turns it on"))]
pub mod bypass;
pub mod cache;
mod check;
mod handler;
mod reclaim;
pub mod tls;

use crate::class::{self, SLICE};
use crate::lock::Lock;
use crate::os::Key;
use crate::tables::tables;
use crate::{backlog, bits, os, page_heap, process, settings};
use batches::give_stolen;
pub use batches::{allocate_one, allocate_refill, flush, free_spilled};
use cache::{Cache, EMPTY, is_own};
pub use check::check;
use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};
pub use handler::{has_interrupted_slow_path, is_in_handler};

/// Number of slices that a cache takes: 75 KiB in 2.
const SLICES: usize = size_of::<Cache>().div_ceil(SLICE);

/// The lists of caches, and the state of the search for idle ones.
#[derive(Debug)]
pub struct Caches {
    /// First of all caches, owned or spare, linked by `next`.
    all: *mut Cache,
    /// First of the caches whose threads ended, linked by `spare`; they keep their blocks.
    spare: *mut Cache,
    /// The cache at which the search for idle ones continues; null: it begins with the first.
    next: *mut Cache,
    /// Whether the present search found caches in use, which may be idle at the next search.
    again: bool,
    /// Number of caches that were made.
    count: u32,
}

// SAFETY: caches live as long as the process; the lists are changed under the lock only.
unsafe impl Send for Caches {}

static CACHES: Lock<Caches> =
    Lock::new(Caches { all: null_mut(), spare: null_mut(), next: null_mut(), again: false, count: 0 });

/// Number, plus one, of the pthread key whose values are caches; 0: there is no key.
static KEY: AtomicU32 = AtomicU32::new(0);

/// The key's value in a thread that has ended: an address at which no cache lies.
const ENDED: *mut c_void = core::ptr::without_provenance_mut(1);

/// Makes the pthread key. Without one, the cache of a thread that ends is lost.
pub fn init() {
    if let Some(key) = Key::new(thread_ended) {
        KEY.store(key.number() + 1, Relaxed);
    }
}

/// Deletes the key before the library is unloaded, so that ending threads do not call it.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn delete_key() {
    // A process may end in a handler that interrupted a holder of this lock.
    let _caches = CACHES.try_lock();
    if let Some(key) = key() {
        KEY.store(0, Relaxed);
        key.delete();
    }
}

fn key() -> Option<Key> {
    KEY.load(Relaxed).checked_sub(1).map(Key::from_number)
}

/// The lock of the lists of caches, which a fork takes.
pub fn lock() -> &'static Lock<Caches> {
    &CACHES
}

/// In the child of a fork, drops all caches but the forking thread's.
///
/// Their blocks are lost: the fork may have copied these caches in the middle of a change.
pub fn forked(caches: &mut Caches) {
    caches.spare = null_mut();
    caches.all = null_mut();
    caches.next = null_mut();
    let own = assigned();
    bypass::forked();
    if let Some(cache) = own {
        caches.all = (&raw const *cache).cast_mut();
        cache.next.store(null_mut(), Relaxed);
    }
    process::set_threads(usize::from(own.is_some()));
}

/// The running thread's cache; attaches it if it is detached, and gets one if the thread has none.
///
/// `None` before the allocator's start, in a signal handler, after the thread's end, and without memory.
#[inline]
pub fn own_cache() -> Option<&'static Cache> {
    let cache = tls::get();
    if is_own(cache) {
        // SAFETY: caches live as long as the process.
        Some(unsafe { &*cache })
    } else {
        attach()
    }
}

/// The running thread's cache, attached or detached.
///
/// `None` in a signal handler, which must not touch the cache, and for a thread without one.
pub fn current() -> Option<&'static Cache> {
    if is_in_handler() { None } else { assigned() }
}

/// What was assigned to the running thread: null, a cache, or [`ENDED`]. `None` without a key.
#[inline]
fn value() -> Option<*mut c_void> {
    tls::own().or_else(|| key().map(Key::get))
}

/// The cache that is assigned to the running thread, attached or detached.
#[inline]
pub fn assigned() -> Option<&'static Cache> {
    let value = value()?;
    // SAFETY: null, the mark of an ended thread, or a cache; caches live as long as the process.
    if value == ENDED { None } else { unsafe { value.cast::<Cache>().as_ref() } }
}

/// Assigns a cache, or [`ENDED`], to the running thread; returns whether its end calls the key's destructor.
fn assign(key: Key, value: *mut c_void) -> bool {
    tls::set_own(value);
    key.set(value)
}

/// Attaches the running thread's cache, or assigns a spare or a new one to the thread.
#[cold]
fn attach() -> Option<&'static Cache> {
    if !process::is_ready() || is_in_handler() {
        return None;
    }
    if let Some(cache) = assigned() {
        if !backlog::is_for_calls() {
            bypass::attach(cache);
        }
        return Some(cache);
    }
    if value() == Some(ENDED) {
        return None;
    }
    let cache = pop_spare().or_else(new_cache)?;
    process::add_thread();
    tls::set(cache);
    // The C library may allocate in this call: the cache is already attached and serves it.
    if let Some(key) = key() {
        let ends = assign(key, (&raw const *cache).cast_mut().cast());
        bypass::begin(cache, ends);
    }
    settings::read_environment();
    Some(cache)
}

/// Takes a spare cache, which an ended thread left behind.
fn pop_spare() -> Option<&'static Cache> {
    let mut caches = CACHES.lock();
    // SAFETY: null or a cache, and caches live as long as the process.
    let cache = unsafe { caches.spare.as_ref() }?;
    caches.spare = cache.spare.swap(null_mut(), Relaxed);
    Some(cache)
}

/// Makes a cache and adds it to the list of all.
fn new_cache() -> Option<&'static Cache> {
    let slice = page_heap::allocate(SLICES, SLICE, size_of::<Cache>())?;
    let tables = tables()?;
    let mut memory = tables.address(slice).cast::<Cache>();
    // Clears slices that were used before; touches no clean page, which holds zeros already.
    page_heap::zero(tables, slice, 0, size_of::<Cache>());
    bits::mark_dirty(tables, slice, size_of::<Cache>());
    // SAFETY: no other thread knows these slices yet; they hold a cache and are never freed; zeros are valid for every
    // field.
    unsafe { memory.as_mut() }.start();
    // SAFETY: the cache was initialised above and is never freed; from here on it is only shared.
    let cache = unsafe { memory.as_ref() };
    let mut caches = CACHES.lock();
    caches.count += 1;
    cache.number.store(caches.count, Relaxed);
    cache.next.store(caches.all, Relaxed);
    caches.all = memory.as_ptr();
    Some(cache)
}

/// The key's destructor: makes an ending thread's cache spare. The C library calls it again, with [`ENDED`], if
/// destructors that ran later set values under their keys.
extern "C" fn thread_ended(value: *mut c_void) {
    // ThreadSanitizer frees its own record of the thread between these calls: setting the key again would touch it.
    if value == ENDED && cfg!(terrace_sanitizer) {
        return;
    }
    if let Some(key) = key() {
        assign(key, ENDED);
    }
    if value == ENDED {
        return;
    }
    tls::set((&raw const EMPTY).cast());
    // SAFETY: the value is the thread's cache: nothing else is set under the key but ENDED.
    let cache = unsafe { &*value.cast::<Cache>() };
    cache.end_handlers();
    let mut caches = CACHES.lock();
    bypass::end(cache);
    cache.spare.store(caches.spare, Relaxed);
    caches.spare = value.cast();
    process::remove_thread();
}

/// The cost of emptying a cache apart from freeing its blocks (a barrier, or purging its arrays), as a number of
/// blocks.
const EMPTYING: usize = 256;

/// Flushes spare caches and purges their arrays while `left`, the work still allowed, is not 0 blocks.
///
/// The first page of each cache stays.
pub fn flush_spare(left: &mut usize) {
    let caches = CACHES.lock();
    let mut at = caches.spare;
    // SAFETY: null or a cache, and caches live as long as the process.
    while let Some(cache) = unsafe { at.as_ref() }.filter(|_| *left > 0) {
        if cache.is_touched() {
            *left = left.saturating_sub(flush(cache) + EMPTYING);
            cache.reset();
            let (arrays, bytes) = cache.arrays();
            if let Some(arrays) = NonNull::new(arrays.cast_mut()) {
                // SAFETY: whole pages of a spare cache: its arrays are empty, and its tops point elsewhere.
                unsafe { os::purge(arrays, bytes) };
            }
        }
        at = cache.spare.load(Relaxed);
    }
}

/// The result of a search for idle caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// The next call continues the search.
    Unfinished,
    /// Some caches were in use: another search may find them idle.
    Again,
    /// No cache was in use, so another search would find nothing.
    Done,
}

/// Frees the blocks in the caches of threads that did not allocate or free since the last search.
///
/// Stops when `left` is 0, from which each freed block takes 1 and each emptied cache [`EMPTYING`] more, or when it has
/// looked at 256 caches.
pub fn reclaim(left: &mut usize) -> Search {
    const LOOKS: usize = 256;
    // A thread that forks must not change caches (see `Cache::lock_owner`).
    if process::is_single_threaded() || process::is_forking_here() {
        return Search::Done;
    }
    let own = assigned().map_or(null_mut(), |cache| (&raw const *cache).cast_mut());
    let mut looks = 0;
    let mut caches = CACHES.lock();
    if caches.next.is_null() {
        (caches.next, caches.again) = (caches.all, false);
    }
    // SAFETY: null or a cache, and caches live as long as the process.
    while let Some(cache) = unsafe { caches.next.as_ref() } {
        if *left == 0 {
            return Search::Unfinished;
        }
        if looks == LOOKS {
            return Search::Unfinished;
        }
        looks += 1;
        if caches.next != own {
            if cache.is_idle() {
                let mut taken = 0;
                if cache.steal_all(|class, blocks| taken += give_stolen(class, blocks)) {
                    *left = left.saturating_sub(taken + EMPTYING);
                }
            } else {
                caches.again = true;
            }
        }
        caches.next = cache.next.load(Relaxed);
    }
    if caches.again { Search::Again } else { Search::Done }
}

/// Bytes of the blocks in all threads' caches; approximate.
pub fn cached_bytes() -> usize {
    let mut sum = 0;
    each_cache(|cache| sum += (1..class::COUNT).map(|class| cache.count(class) * class::size(class)).sum::<usize>());
    sum
}

/// Calls `each` with every cache. Counts in caches of running threads are approximate.
pub fn each_cache(mut each: impl FnMut(&Cache)) {
    let caches = CACHES.lock();
    let mut at = caches.all;
    // SAFETY: null or a cache, and caches live as long as the process.
    while let Some(cache) = unsafe { at.as_ref() } {
        each(cache);
        at = cache.next.load(Relaxed);
    }
}

/// Detaches the running thread's cache, so that its next calls take the slow path.
///
/// The slow path polls the purge clock, and attaches the cache again once no large backlog waits to be purged.
pub fn detach() {
    // In a signal handler the guard has already detached the cache.
    if is_own(tls::get()) && assigned().is_some() {
        tls::set((&raw const EMPTY).cast());
    }
}

/// Marks the running thread as in a slow path until the returned guard is dropped.
///
/// Signal handlers that interrupt the thread meanwhile take no lock.
#[inline]
pub fn enter_slow_path() -> SlowPath {
    let word = tls::get();
    // SAFETY: `word` names the thread's own cache, which lives as long as the process.
    let cache = if is_own(word) { Some(unsafe { &*word }) } else { assigned() };
    SlowPath::enter(cache)
}

/// Clears the mark of [`enter_slow_path`] when its guard was forgotten.
pub fn leave_slow_path() {
    if let Some(cache) = assigned() {
        cache.in_slow_path.store(false, Relaxed);
    }
}

/// The guard of a slow path (see [`enter_slow_path`]).
#[derive(Debug)]
pub struct SlowPath {
    cache: Option<&'static Cache>,
    before: bool,
}

impl SlowPath {
    /// Marks the running thread, whose cache this is. A signal handler between the load and the store restores what it found.
    #[inline]
    fn enter(cache: Option<&'static Cache>) -> Self {
        let before = cache.is_some_and(|cache| cache.in_slow_path.load(Relaxed));
        if let Some(cache) = cache {
            cache.in_slow_path.store(true, Relaxed);
        }
        compiler_fence(SeqCst);
        Self { cache, before }
    }
}

impl Drop for SlowPath {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        if let Some(cache) = self.cache {
            cache.in_slow_path.store(self.before, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;

    #[test]
    fn a_detached_cache_is_still_its_thread_s() {
        let _alone = crate::check::ALONE.lock();
        api::allocate(100, 1);
        let own = own_cache().expect("this thread allocated");
        assert!(core::ptr::eq(tls::get(), own) && is_own(tls::get()));
        detach();
        assert!(!is_own(tls::get()), "calls take the slow path");
        assert!(assigned().is_some_and(|cache| core::ptr::eq(cache, own)));
        assert!(own_cache().is_some_and(|cache| core::ptr::eq(cache, own)), "no second one");
    }
}
