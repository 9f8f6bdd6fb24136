//! Signal handlers: calls that interrupt another call of the same thread.
//!
//! Promises upward: while a [`Handler`] lives, the running thread's calls touch neither its cache, which may be in the middle of
//! a push or a pop, nor, when it was in a slow path, any lock: they are served from the reserve, and what they free waits.
//! The fast paths know nothing of it: the thread's word names a cache that is empty and full meanwhile.
//! Asks from below: [`tls`], [`emergency`].
//!
//! `libterrace_malloc` puts a `Handler` around every handler that is installed through the C library. A handler that is left by
//! `siglongjmp` never drops it: the first slow call from a frame above the handler's sees that. What cannot be mended is a
//! jump out of a call of the allocator itself (POSIX forbids it): the locks that call held stay locked.

use crate::cache::{Cache, IN_SIGNAL, is_own};
use crate::{emergency, slow, thread, tls};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Blocks that handlers freed while their thread was in a slow path, linked through their first word.
static DEFERRED: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// The running thread is in a signal handler until this is dropped.
///
/// # Example
/// ```
/// extern "C" fn on_signal(_: i32) {
///     let _handler = terrace_host::Handler::enter();
///     drop(vec![1, 2, 3]); // safe, whatever the signal interrupted
/// }
/// on_signal(10);
/// ```
#[derive(Debug)]
pub struct Handler {
    /// The thread's word before.
    before: *mut Cache,
    /// The frame of the handler around this one, if any.
    outer: usize,
}

impl Handler {
    /// To be called before the handler's first allocation or free, in the handler itself: its frame tells when it was left.
    #[inline(always)]
    pub fn enter() -> Self {
        let before = tls::get();
        let here = 0u8;
        let outer = match cache_of(before) {
            Some(cache) => cache.handler.swap((&raw const here).addr(), Relaxed),
            None => 0,
        };
        tls::set((&raw const IN_SIGNAL).cast());
        Self { before, outer }
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        tls::set(self.before);
        if let Some(cache) = cache_of(self.before) {
            cache.handler.store(self.outer, Relaxed);
        }
    }
}

/// The thread's cache: what its word names, or what it put aside.
fn cache_of(word: *mut Cache) -> Option<&'static Cache> {
    if is_own(word) {
        // SAFETY: caches live as long as the process.
        return Some(unsafe { &*word });
    }
    thread::kept()
}

/// Whether the running thread is in a handler. Takes its cache up again when the handler was left by a jump.
#[inline]
pub fn is_inside() -> bool {
    core::ptr::addr_eq(tls::get(), &raw const IN_SIGNAL) && !was_left()
}

/// A jump out of a handler ends in a frame above it. (On a stack of the handler's own that lies above the thread's,
/// this is never seen, and the thread goes the slow way from then on.)
#[cold]
#[inline(never)]
fn was_left() -> bool {
    let here = 0u8;
    match thread::kept() {
        Some(cache) if (&raw const here).addr() > cache.handler.load(Relaxed) => {
            cache.handler.store(0, Relaxed);
            cache.busy.store(false, Relaxed);
            tls::set(cache);
            true
        }
        _ => false,
    }
}

/// Whether the handler interrupted a slow path, so that locks may be held by its own thread. A thread that has no cache yet may
/// be getting one.
pub fn is_in_the_way() -> bool {
    is_inside() && thread::kept().is_none_or(|cache| cache.busy.load(Relaxed))
}

/// A block for a handler that must touch no lock; `None` when the usual way is safe.
#[inline]
pub fn allocate(bytes: usize, align: usize) -> Option<*mut u8> {
    if !is_in_the_way() {
        return None;
    }
    let block = emergency::allocate(bytes, align);
    Some(if block.is_null() { slow::out_of_memory() } else { block })
}

/// Takes a block from a handler that must touch no lock; `false` when the usual way is safe.
#[inline]
pub fn free(block: *mut u8) -> bool {
    if !is_in_the_way() {
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

/// Frees what handlers left, now that the thread is outside of them.
#[inline]
pub fn settle() {
    if !DEFERRED.load(Relaxed).is_null() {
        settle_all();
    }
}

#[cold]
fn settle_all() {
    let mut block = DEFERRED.swap(null_mut(), Acquire);
    while !block.is_null() {
        // SAFETY: a block of the list, whose first word `free` wrote.
        let next = unsafe { block.cast::<*mut u8>().read() };
        // SAFETY: the handler's promise when it freed the block.
        unsafe { crate::calls::free(block) };
        block = next;
    }
}
