//! Threads: which cache a thread has, how it gets one and what becomes of it when the thread ends.
//!
//! Promises upward: [`own_cache`] in a few instructions; a thread that ends leaves its cache, with all in it, to the next that
//! starts; what it allocates and frees after that goes to the spans directly.
//! Asks from below: [`tls`], a pthread key for the end of a thread (it runs after the destructors of `thread_local`), the
//! ground for the memory of caches.

mod batches;
mod check;
pub mod cache;
mod handler;
mod reclaim;
pub mod tls;

use crate::class::{self, SLICE};
use crate::lock::Lock;
use crate::os::Key;
use crate::tables::tables;
use crate::{backlog, bits, os, page_heap, process, settings};
use batches::give_stolen;
pub use check::check;
pub use batches::{allocate_one, allocate_refill, flush, free_spilled};
use cache::{Cache, EMPTY, is_own};
use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed, Ordering::SeqCst, compiler_fence};
pub use handler::{has_interrupted_slow_path, is_in_handler};

/// Slices of a cache: 73 KiB in 2.
const SLICES: usize = size_of::<Cache>().div_ceil(SLICE);

/// All caches.
#[derive(Debug)]
pub struct Caches {
    /// Of threads and of none, through `next`.
    all: *mut Cache,
    /// Of none, through `spare`; what they hold is theirs still.
    spare: *mut Cache,
    /// Where the search for idle ones goes on, in `all`; null: at its beginning.
    next: *mut Cache,
    /// Whether that search saw any that may be idle when it comes by again.
    again: bool,
}

// SAFETY: caches live as long as the process; lists are changed under the lock only.
unsafe impl Send for Caches {}

static CACHES: Lock<Caches> = Lock::new(Caches { all: null_mut(), spare: null_mut(), next: null_mut(), again: false });

/// The key's number plus one; 0: none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// A thread's value under the key after its end: no address of a cache.
const ENDED: *mut c_void = core::ptr::without_provenance_mut(1);

/// Makes the key. Without one, caches of threads that end stay as they are.
pub fn init() {
    if let Some(key) = Key::new(thread_ended) {
        KEY.store(key.number() + 1, Relaxed);
    }
}

/// Takes the key out of use: the library is unloaded.
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

/// The lock, for a fork.
pub fn lock() -> &'static Lock<Caches> {
    &CACHES
}

/// In the child of a fork one thread is left, that which forked. What the caches of the others hold is lost: they may have
/// been copied in the middle of a change.
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

/// The running thread's cache; `None` when it can have none: before the start, after the thread's end.
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

/// The running thread's cache, in use or put aside; `None` in a signal handler, which must not touch it.
pub fn current() -> Option<&'static Cache> {
    if is_in_handler() { None } else { assigned() }
}

/// The cache that the thread's key names, if it has one.
pub fn assigned() -> Option<&'static Cache> {
    let kept = key()?.get();
    // SAFETY: null, the mark of an ended thread, or a cache; they live as long as the process.
    if kept == ENDED { None } else { unsafe { kept.cast::<Cache>().as_ref() } }
}

/// Takes up the cache that was put aside, or gets one.
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

/// A cache that a thread left behind.
fn pop_spare() -> Option<&'static Cache> {
    let mut caches = CACHES.lock();
    // SAFETY: null, or a cache; they live as long as the process.
    let cache = unsafe { caches.spare.as_ref() }?;
    caches.spare = cache.spare.swap(null_mut(), Relaxed);
    Some(cache)
}

/// A new cache.
fn new_cache() -> Option<&'static Cache> {
    let slice = page_heap::allocate(SLICES, SLICE, size_of::<Cache>())?;
    let tables = tables()?;
    let mut memory = tables.address(slice).cast::<Cache>();
    // Slices that were in use before may hold anything; fresh ones are not touched.
    page_heap::zero(tables, slice, 0, size_of::<Cache>());
    bits::mark_dirty(tables, slice, size_of::<Cache>());
    // SAFETY: the slices are ours alone, as long as a cache and never given back; zeros are a value of every field.
    unsafe { memory.as_mut() }.start();
    // SAFETY: see above; from here on it is shared.
    let cache = unsafe { memory.as_ref() };
    let mut caches = CACHES.lock();
    cache.next.store(caches.all, Relaxed);
    caches.all = memory.as_ptr();
    Some(cache)
}

/// A thread ends: its cache waits for the next. Called again when destructors that ran later set something under their keys.
extern "C" fn thread_ended(value: *mut c_void) {
    // ThreadSanitizer's own record of the thread goes between the rounds: no mark is left behind there.
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

/// What emptying a cache takes besides its blocks, in blocks: a barrier, or the pages of its arrays.
const EMPTYING: usize = 256;

/// Empties the caches that no thread has, as long as work is `left`, in blocks: a page of each stays.
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
                // SAFETY: whole pages of a cache that nobody has, whose arrays are empty and whose tops point elsewhere.
                unsafe { os::purge(arrays, bytes) };
            }
        }
        at = cache.spare.load(Relaxed);
    }
}

/// What a search for idle caches came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// It goes on at the next call.
    Unfinished,
    /// Some were in use: another is worth while.
    Again,
    /// No other thread holds anything.
    Done,
}

/// Takes back what the caches of threads hold that made no call since the last search, as long as work is `left`, in blocks, and
/// with a look at 256 caches.
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

/// Bytes in all caches, about.
pub fn cached_bytes() -> usize {
    let mut sum = 0;
    each_cache(|cache| sum += (1..class::COUNT).map(|class| cache.count(class) * class::size(class)).sum::<usize>());
    sum
}

/// Calls `each` with every cache. Counts in caches of running threads are about right.
pub fn each_cache(mut each: impl FnMut(&Cache)) {
    let caches = CACHES.lock();
    let mut at = caches.all;
    // SAFETY: null, or a cache; they live as long as the process.
    while let Some(cache) = unsafe { at.as_ref() } {
        each(cache);
        at = cache.next.load(Relaxed);
    }
}

/// Puts the running thread's cache aside: its next calls go the slow way, which looks at the clock and takes it up again.
pub fn detach() {
    // A thread in a signal handler has put it aside already.
    if is_own(tls::get()) && assigned().is_some() {
        tls::set((&raw const EMPTY).cast());
    }
}

/// The running thread is in a slow path until the guard is dropped: its signal handlers keep away from locks.
#[inline]
pub fn enter_slow_path() -> SlowPath {
    let word = tls::get();
    // SAFETY: the thread's own cache.
    let cache = if is_own(word) { Some(unsafe { &*word }) } else { assigned() };
    let before = cache.is_some_and(|cache| cache.in_slow_path.swap(true, Relaxed));
    compiler_fence(SeqCst);
    SlowPath { cache, before }
}

/// Ends what a forgotten [`enter_slow_path`] began.
pub fn leave_slow_path() {
    if let Some(cache) = assigned() {
        cache.in_slow_path.store(false, Relaxed);
    }
}

/// See [`enter_slow_path`].
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
