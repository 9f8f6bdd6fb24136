//! Signal handlers: calls that interrupt another call of the same thread.
//!
//! Promises upward: while a [`Handler`] of the running thread lives, its calls touch neither its cache, which may be in the
//! middle of a push or a pop, nor, when the signal interrupted a slow path, any lock: blocks come from the emergency pool, and
//! frees are deferred. The fast paths pay nothing: the thread's word names a cache that is empty and full meanwhile.
//! Asks from below: [`tls`], [`emergency`].
//!
//! `libterrace_malloc` puts a `Handler` around every handler that is installed through the C library. A handler that is left by
//! `siglongjmp` never drops it, which the first slow call from a frame above the handler's, or from outside the handlers' own
//! stack, detects. A jump out of a call of the allocator itself (POSIX forbids it) cannot be mended: the locks that the call
//! held stay locked.
//!
//! A *stay* is the time from a thread's first guard to the drop of its last; a jump and the thread's end also end it. A guard
//! counts in its own stay and does nothing in any other: by then its cache may be another thread's.

use crate::thread::cache::{Cache, EMPTY, IN_SIGNAL, is_own};
use crate::thread::tls;
use crate::{emergency, os, thread};
use core::ptr::{null, null_mut};
use core::sync::atomic::{AtomicPtr, compiler_fence};
use core::sync::atomic::{Ordering::Acquire, Ordering::Relaxed, Ordering::Release, Ordering::SeqCst};
pub use thread::{has_interrupted_slow_path, is_in_handler};

/// Blocks that handlers freed while their thread was in a slow path, linked through their first word.
static DEFERRED: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// Marks the running thread as in a signal handler until this and its other guards are dropped.
///
/// # Example
/// ```
/// extern "C" fn on_signal(_: i32) {
///     let _handler = terrace_host::Handler::enter();
///     drop(vec![1, 2, 3]); // safe, whatever the signal interrupted
/// }
/// on_signal(10);
/// ```
/// It belongs to its thread:
/// ```compile_fail
/// let handler = terrace_host::Handler::enter();
/// std::thread::spawn(move || drop(handler));
/// ```
#[derive(Debug)]
pub struct Handler {
    /// The cache of its thread; null: the thread has none.
    cache: *const Cache,
    /// The stay in which the guard counts; without a cache, 0 for the first guard.
    epoch: usize,
}

impl Handler {
    /// Enters a handler; must be called in the handler itself, before it allocates or frees.
    ///
    /// The frame of the handler tells a later call whether a jump left it.
    #[inline(always)]
    pub fn enter() -> Self {
        let here = 0u8;
        Self::enter_at((&raw const here).addr())
    }

    fn enter_at(here: usize) -> Self {
        let word = tls::get();
        let Some(cache) = cache_of(word) else {
            // No guards are counted, and the thread gets no cache before the first of them is dropped.
            let epoch = usize::from(core::ptr::addr_eq(word, &raw const IN_SIGNAL));
            tls::set((&raw const IN_SIGNAL).cast());
            return Self { cache: null(), epoch };
        };
        // Counted before anything else: a signal from here on is inside of this one.
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
        // SAFETY: null, or a cache; they live as long as the process.
        let Some(cache) = (unsafe { self.cache.as_ref() }) else {
            if self.epoch == 0 {
                tls::set((&raw const EMPTY).cast());
            }
            return;
        };
        // Of another stay: a jump left it, or its thread ended and the cache is another thread's.
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
        // The word last: a signal before it begins and ends a stay of its own. The next slow call attaches the cache.
        compiler_fence(SeqCst);
        tls::set(if thread::assigned().is_some() { (&raw const EMPTY).cast() } else { self.cache });
    }
}

/// The thread's cache: the one its word names, or its detached one.
fn cache_of(word: *mut Cache) -> Option<&'static Cache> {
    if is_own(word) {
        // SAFETY: caches live as long as the process.
        return Some(unsafe { &*word });
    }
    thread::assigned()
}

/// Allocates a block for a handler that must take no lock; `None` when the usual path is safe.
#[inline]
pub fn allocate(bytes: usize, align: usize) -> Option<*mut u8> {
    if !has_interrupted_slow_path() {
        return None;
    }
    let block = emergency::allocate(bytes, align);
    Some(if block.is_null() { os::out_of_memory() } else { block })
}

/// Defers the free of a handler that must take no lock; `false` when the usual path is safe.
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

/// Calls `free` with each block that handlers freed; the thread must be outside of handlers.
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
