//! Signal handlers: calls that interrupt another call of the same thread.
//!
//! Promises upward: while a thread has a live guard ([`Handler`]), its calls do not touch its cache, which the signal
//! may have interrupted in the middle of a push or a pop. If the signal interrupted a slow path, they also take no
//! lock: blocks come from the emergency pool, and frees are deferred. The fast paths make no test for this: meanwhile
//! the thread-local pointer names a cache that is both empty and full, so every call takes the slow path.
//! Asks from below: [`tls`], [`emergency`].
//!
//! `libterrace_malloc` puts a guard around every handler that is installed through the C library. A handler that
//! `siglongjmp` leaves never drops its guard. The thread's next slow call detects this if its frame lies above the
//! handler's, or outside the alternate signal stack on which the handler ran. A jump out of a call of the allocator
//! itself (POSIX forbids it) cannot be repaired: the locks that the call held stay locked.
//!
//! A *stay* is the time from a thread's first guard to the drop of its last; a detected jump and the thread's end also
//! end it. A guard counts only in the stay in which it was made. Dropped after that stay, it does nothing, since its
//! cache may belong to another thread by then.

use crate::thread::cache::{Cache, EMPTY, IN_SIGNAL, is_own};
use crate::thread::tls;
use crate::{emergency, os, thread};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicPtr, compiler_fence};
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};
pub use thread::{has_interrupted_slow_path, is_in_handler};

/// Blocks that signal handlers freed after interrupting a slow path: a list linked through each block's first word.
static DEFERRED: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// Marks the running thread as in a signal handler until all of the thread's guards are dropped.
///
/// # Example
/// ```
/// extern "C" fn on_signal(_: i32) {
///     let _handler = terrace_host::Handler::enter();
///     drop(vec![1, 2, 3]); // safe, whatever the signal interrupted
/// }
/// on_signal(10);
/// ```
/// A guard must stay on its thread:
/// ```compile_fail
/// let handler = terrace_host::Handler::enter();
/// std::thread::spawn(move || drop(handler));
/// ```
#[derive(Debug)]
pub struct Handler {
    /// The cache of the guard's thread; null: the thread has none.
    cache: *const Cache,
    /// The number of the stay in which the guard counts. For a thread without a cache: 0 for its first guard, 1 for
    /// others.
    epoch: usize,
}

impl Handler {
    /// Makes a guard; the signal handler itself must call this before it allocates or frees.
    ///
    /// Records the address of the handler's stack frame. By it a later call of the thread detects that `siglongjmp`
    /// left the handler.
    #[inline(always)]
    pub fn enter() -> Self {
        let here = 0u8;
        Self::enter_at((&raw const here).addr())
    }

    fn enter_at(here: usize) -> Self {
        let word = tls::get();
        let Some(cache) = cache_of(word) else {
            // Without a cache there is no count of guards: dropping the first guard ends the stay. The thread gets no
            // cache before.
            let epoch = usize::from(core::ptr::addr_eq(word, &raw const IN_SIGNAL));
            tls::set((&raw const IN_SIGNAL).cast());
            return Self { cache: null(), epoch };
        };
        // Counts the guard first: a second signal from here on nests in this stay.
        let first = cache.guards.fetch_add(1, Relaxed) == 0;
        compiler_fence(SeqCst);
        if first {
            let (low, end) = os::handler_stack(here).unwrap_or_default();
            cache.stack[0].store(low, Relaxed);
            cache.stack[1].store(end, Relaxed);
            cache.handler.store(here, Relaxed);
        }
        let epoch = cache.handler_epoch.load(Relaxed);
        tls::set((&raw const IN_SIGNAL).cast());
        Self { cache, epoch }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        // SAFETY: null or a cache, and caches live as long as the process.
        let Some(cache) = (unsafe { self.cache.as_ref() }) else {
            if self.epoch == 0 {
                tls::set((&raw const EMPTY).cast());
            }
            return;
        };
        // The guard's stay is over: a jump left the handler, or the thread ended and another thread owns the cache.
        if cache.handler_epoch.load(Relaxed) != self.epoch {
            return;
        }
        let guards = cache.guards.load(Relaxed);
        if guards > 1 {
            cache.guards.store(guards - 1, Relaxed);
            return;
        }
        cache.handler.store(0, Relaxed);
        cache.guards.store(0, Relaxed);
        // Writes the thread-local pointer last: a signal just before makes and ends a stay of its own. A cache that the
        // thread's key names stays detached; the next slow call attaches it.
        compiler_fence(SeqCst);
        tls::set(if thread::assigned().is_some() { (&raw const EMPTY).cast() } else { self.cache });
    }
}

/// The running thread's cache, attached (`word` names it) or detached.
fn cache_of(word: *mut Cache) -> Option<&'static Cache> {
    if is_own(word) {
        // SAFETY: caches live as long as the process.
        return Some(unsafe { &*word });
    }
    thread::assigned()
}

/// Allocates from the emergency pool if a signal handler must take no lock; `None`: it may take one.
#[inline]
pub fn allocate(bytes: usize, align: usize) -> Option<*mut u8> {
    if !has_interrupted_slow_path() {
        return None;
    }
    let block = emergency::allocate(bytes, align);
    Some(if block.is_null() { os::out_of_memory() } else { block })
}

/// Defers a free if a signal handler must take no lock; `false`: it may take one.
#[inline]
pub fn free(block: *mut u8) -> bool {
    if !has_interrupted_slow_path() {
        return false;
    }
    if emergency::free(block) {
        return true;
    }
    let link = block.cast::<*mut u8>();
    let mut first = DEFERRED.load(Relaxed);
    loop {
        // SAFETY: the block is free and holds at least a word.
        unsafe { link.write(first) };
        match DEFERRED.compare_exchange_weak(first, block, Release, Relaxed) {
            Ok(_) => return true,
            Err(now) => first = now,
        }
    }
}

/// Calls `free` with each block whose free was deferred. The thread must not be in a signal handler.
#[inline]
pub fn drain_deferred(free: impl Fn(*mut u8)) {
    if !DEFERRED.load(Relaxed).is_null() {
        drain_all(free);
    }
}

#[cold]
fn drain_all(free: impl Fn(*mut u8)) {
    let mut block = DEFERRED.swap(null_mut(), Acquire);
    while !block.is_null() {
        // SAFETY: a block of the list, whose first word `free` wrote.
        let next = unsafe { block.cast::<*mut u8>().read() };
        free(block);
        block = next;
    }
}
