//! Threads: how a thread gets its cache, and what becomes of the cache when the thread ends.
//!
//! Promises upward: [`own_cache`] in a few instructions; a thread that ends leaves its cache, blocks included, to the next that
//! starts, and allocates from and frees to the spans directly from then on.
//! Asks from below: [`tls`], a pthread key for the end of a thread (it runs after the destructors of `thread_local`), the page
//! heap for the memory of caches.

mod batches;
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

/// Slices of a cache: 73 KiB in 2.
const SLICES: usize = size_of::<Cache>().div_ceil(SLICE);

/// The caches that exist.
#[derive(Debug)]
pub struct Caches {
    /// All caches, owned or spare, through `next`.
    all: *mut Cache,
    /// Caches whose threads ended, through `spare`; they keep their blocks.
    spare: *mut Cache,
    /// The cache at which the search for idle ones goes on; null: at the first.
    next: *mut Cache,
    /// Whether that search saw caches in use, which may be idle at the next search.
    again: bool,
}

// SAFETY: caches live as long as the process; lists are changed under the lock only.
unsafe impl Send for Caches {}

static CACHES: Lock<Caches> = Lock::new(Caches { all: null_mut(), spare: null_mut(), next: null_mut(), again: false });

/// The pthread key's number plus one; 0: there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// A thread's value under the key after its end: no address of a cache.
const ENDED: *mut c_void = core::ptr::without_provenance_mut(1);

/// Makes the key. Without one, the caches of threads that end are lost.
pub fn init() {
    if let Some(key) = Key::new(thread_ended) {
        KEY.store(key.number() + 1, Relaxed);
    }
}

/// Deletes the key: the library is unloaded.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn delete_key() {
    if let Some(key) = key() {
        KEY.store(0, Relaxed);
        key.delete();
    }
}

fn key() -> Option<Key> {
    KEY.load(Relaxed).checked_sub(1).map(Key::from_number)
}

/// The lock of all caches, for a fork.
pub fn lock() -> &'static Lock<Caches> {
    &CACHES
}

/// Drops all caches but the forking thread's, in the child.
///
/// What the others hold is lost: they may have been copied in the middle of a change.
pub fn forked(caches: &mut Caches) {
    caches.spare = null_mut();
    caches.all = null_mut();
    caches.next = null_mut();
    let own = assigned();
    if let Some(cache) = own {
        caches.all = (&raw const *cache).cast_mut();
        cache.next.store(null_mut(), Relaxed);
    }
    process::set_threads(usize::from(own.is_some()));
}

/// The running thread's cache, attached or made if need be.
///
/// `None` before the start and after the thread's end.
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
/// `None` in a signal handler, which must not touch it.
pub fn current() -> Option<&'static Cache> {
    if is_in_handler() { None } else { assigned() }
}

/// The cache assigned to the running thread by the key, attached or detached.
pub fn assigned() -> Option<&'static Cache> {
    let value = key()?.get();
    // SAFETY: null, the mark of an ended thread, or a cache; they live as long as the process.
    if value == ENDED { None } else { unsafe { value.cast::<Cache>().as_ref() } }
}

/// Attaches the running thread's cache, or assigns one to the thread.
#[cold]
fn attach() -> Option<&'static Cache> {
    if !process::is_ready() || is_in_handler() {
        return None;
    }
    if let Some(cache) = assigned() {
        if !backlog::is_for_calls() {
            tls::set(cache);
        }
        return Some(cache);
    }
    if key().is_some_and(|key| key.get() == ENDED) {
        return None;
    }
    let cache = pop_spare().or_else(new_cache)?;
    process::add_thread();
    tls::set(cache);
    // May allocate, which works from here on.
    if let Some(key) = key() {
        key.set((&raw const *cache).cast_mut().cast());
    }
    settings::read_environment();
    Some(cache)
}

/// Takes a spare cache, which a thread left behind.
fn pop_spare() -> Option<&'static Cache> {
    let mut caches = CACHES.lock();
    // SAFETY: null, or a cache; they live as long as the process.
    let cache = unsafe { caches.spare.as_ref() }?;
    caches.spare = cache.spare.swap(null_mut(), Relaxed);
    Some(cache)
}

/// Makes a cache.
fn new_cache() -> Option<&'static Cache> {
    let slice = page_heap::allocate(SLICES, SLICE, size_of::<Cache>())?;
    let tables = tables()?;
    let mut memory = tables.address(slice).cast::<Cache>();
    // Slices that were in use before may hold anything; fresh ones are not touched.
    page_heap::zero(tables, slice, 0, size_of::<Cache>());
    bits::mark_dirty(tables, slice, size_of::<Cache>());
    // SAFETY: the slices are ours alone, as long as a cache and never freed; zeros are a value of every field.
    unsafe { memory.as_mut() }.start();
    // SAFETY: see above; from here on it is shared.
    let cache = unsafe { memory.as_ref() };
    let mut caches = CACHES.lock();
    cache.next.store(caches.all, Relaxed);
    caches.all = memory.as_ptr();
    Some(cache)
}

/// Ends a thread: its cache becomes spare. The C library calls it again when later destructors set a value under their keys.
extern "C" fn thread_ended(value: *mut c_void) {
    // ThreadSanitizer's own record of the thread is freed between the rounds: no mark may be set then.
    if value == ENDED && cfg!(terrace_sanitizer) {
        return;
    }
    if let Some(key) = key() {
        key.set(ENDED);
    }
    if value == ENDED {
        return;
    }
    tls::set((&raw const EMPTY).cast());
    // SAFETY: the value is the thread's cache: nothing else is set under the key but ENDED.
    let cache = unsafe { &*value.cast::<Cache>() };
    cache.end_handlers();
    let mut caches = CACHES.lock();
    cache.spare.store(caches.spare, Relaxed);
    caches.spare = value.cast();
    process::remove_thread();
}

/// The work of emptying a cache besides its blocks, in blocks: a barrier, or the pages of its arrays.
const EMPTYING: usize = 256;

/// Flushes the spare caches, as long as work is `left`, in blocks, and purges their arrays.
///
/// One page of each stays.
pub fn flush_spare(left: &mut usize) {
    let caches = CACHES.lock();
    let mut at = caches.spare;
    // SAFETY: null, or a cache; they live as long as the process.
    while let Some(cache) = unsafe { at.as_ref() }.filter(|_| *left > 0) {
        if cache.is_touched() {
            *left = left.saturating_sub(flush(cache) + EMPTYING);
            cache.reset();
            let (arrays, bytes) = cache.arrays();
            if let Some(arrays) = NonNull::new(arrays.cast_mut()) {
                // SAFETY: whole pages of a spare cache, whose arrays are empty and whose tops point elsewhere.
                unsafe { os::purge(arrays, bytes) };
            }
        }
        at = cache.spare.load(Relaxed);
    }
}

/// The result of a search for idle caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// The search goes on at the next call.
    Unfinished,
    /// Some caches were in use: another search is worth while.
    Again,
    /// No other thread holds anything.
    Done,
}

/// Steals the blocks in the caches of threads that made no call since the last search.
///
/// Goes on as long as work is `left`, in blocks, and looks at 256 caches at most.
pub fn reclaim(left: &mut usize) -> Search {
    const LOOKS: usize = 256;
    // A thread that forks must leave caches as they are (see `Cache::lock_owner`).
    if process::is_single_threaded() || process::is_forking_here() {
        return Search::Done;
    }
    let own = assigned().map_or(null_mut(), |cache| (&raw const *cache).cast_mut());
    let mut looks = 0;
    let mut caches = CACHES.lock();
    if caches.next.is_null() {
        (caches.next, caches.again) = (caches.all, false);
    }
    // SAFETY: null, or a cache; they live as long as the process.
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

/// Bytes in all caches; approximate.
pub fn cached_bytes() -> usize {
    let mut sum = 0;
    each_cache(|cache| sum += (1..class::COUNT).map(|class| cache.count(class) * class::size(class)).sum::<usize>());
    sum
}

/// Calls `each` with every cache. Counts in caches of running threads are approximate.
pub fn each_cache(mut each: impl FnMut(&Cache)) {
    let caches = CACHES.lock();
    let mut at = caches.all;
    // SAFETY: null, or a cache; they live as long as the process.
    while let Some(cache) = unsafe { at.as_ref() } {
        each(cache);
        at = cache.next.load(Relaxed);
    }
}

/// Detaches the running thread's cache.
///
/// Its next calls take the slow path, which looks at the clock and attaches the cache.
pub fn detach() {
    // A handler's guard has detached it already.
    if is_own(tls::get()) && assigned().is_some() {
        tls::set((&raw const EMPTY).cast());
    }
}

/// Marks the running thread as in a slow path until the guard is dropped.
///
/// Its signal handlers take no lock.
#[inline]
pub fn enter_slow_path() -> SlowPath {
    let word = tls::get();
    // SAFETY: the thread's own cache.
    let cache = if is_own(word) { Some(unsafe { &*word }) } else { assigned() };
    let before = cache.is_some_and(|cache| cache.in_slow_path.swap(true, Relaxed));
    compiler_fence(SeqCst);
    SlowPath { cache, before }
}

/// Ends the mark of a guard that was forgotten.
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

impl Drop for SlowPath {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(SeqCst);
        if let Some(cache) = self.cache {
            cache.in_slow_path.store(self.before, Relaxed);
        }
    }
}
