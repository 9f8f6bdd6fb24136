//! The bypass: while it is on, no thread's pointer names its cache, so every call of every thread takes the slow path.
//!
//! Promises upward: off, it costs the fast paths nothing, and a thread nothing but a store when it gets its cache. [`set`] reaches
//! every thread at once where the pointer has an address (Linux on x86-64 and AArch64, without `dynamic-tls`), and others at their
//! next slow call; a call that is under way ends as it began. Switched off, each thread takes its cache back at its next call.
//! Asks from below: the lists of caches and their lock; [`tls::word`].
//!
//! A thread stores its pointer first and looks at the bypass then; [`set`] stores the bypass first and the pointers then. With a
//! fence between the two on either side, one of them sees the other.

use super::cache::{Cache, EMPTY, IN_SIGNAL, push_to};
use super::reclaim::ClassArray;
use super::{CACHES, SlowPath, assigned, enter_slow_path, key, tls};
use crate::steal;
use core::sync::atomic::Ordering::{Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicPtr, fence};

static ON: AtomicBool = AtomicBool::new(false);

/// Whether every call takes the slow path.
#[inline(always)]
pub fn is_on() -> bool {
    ON.load(Relaxed)
}

/// Turns the bypass on or off for all threads.
///
/// `false`: on is not possible, since threads have no key to find their caches by.
pub fn set(on: bool) -> bool {
    let _busy = enter_slow_path();
    let caches = CACHES.lock();
    if on && key().is_none() {
        return false;
    }
    ON.store(on, Relaxed);
    fence(SeqCst);
    let mut at = caches.all;
    // SAFETY: null or a cache, and caches live as long as the process.
    while let Some(cache) = unsafe { at.as_ref() }.filter(|_| on) {
        // SAFETY: null or the variable of a thread that lives: its end takes the lock and clears the pointer first.
        if let Some(word) = unsafe { cache.word.load(Relaxed).as_ref() } {
            detach(word);
        }
        at = cache.next.load(Relaxed);
    }
    drop(caches);
    if on {
        detached();
    }
    true
}

/// Has a thread's pointer name the empty cache, unless it names neither that nor the thread's own.
fn detach(word: &AtomicPtr<Cache>) {
    let own = word.load(Relaxed);
    if super::is_own(own) {
        // A thread that enters or leaves a signal handler meanwhile has stored another pointer, which stays.
        _ = word.compare_exchange(own, (&raw const EMPTY).cast_mut().cast(), Relaxed, Relaxed);
    }
}

/// Has the running thread's pointer name its cache, unless the bypass is on.
pub fn attach(cache: &Cache) {
    if !is_on() {
        tls::set(cache);
        fence(SeqCst);
    }
    if is_on() {
        tls::set((&raw const EMPTY).cast());
    }
}

/// The running thread got its cache, which its pointer names: from here on the bypass reaches it.
///
/// `ends`: whether its end will be seen, which takes the pointer back.
pub fn begin(cache: &Cache, ends: bool) {
    if ends {
        cache.word.store(tls::word().cast_mut(), Relaxed);
    }
    attach(cache);
}

/// The running thread ends. The caller must hold the lock of all caches.
pub fn end(cache: &Cache) {
    cache.word.store(core::ptr::null_mut(), Relaxed);
    cache.mapping.iter().for_each(|bound| bound.store(0, Relaxed));
    cache.untracked.store(false, Relaxed);
}

/// A forked child begins without the bypass.
pub fn forked() {
    ON.store(false, Relaxed);
}

/// Detaches the running thread's cache and returns it.
///
/// `None` in a signal handler, which may have interrupted a pop or a push.
#[inline]
pub fn detached() -> Option<&'static Cache> {
    let word = tls::get();
    if core::ptr::addr_eq(word, &raw const EMPTY) {
        return assigned();
    }
    if core::ptr::addr_eq(word, &raw const IN_SIGNAL) {
        return None;
    }
    // Where the bypass cannot write the pointer, the thread does so itself.
    let cache = assigned();
    if cache.is_some() {
        tls::set((&raw const EMPTY).cast());
    }
    cache
}

/// As [`enter_slow_path`], for a thread whose cache this is.
#[inline]
pub fn enter(cache: &'static Cache) -> SlowPath {
    SlowPath::enter(Some(cache))
}

/// Pops a block from the running thread's detached cache as the fast path does.
#[inline]
pub fn pop(cache: &Cache, class: usize) -> Option<*mut u8> {
    steal::pop(&ClassArray { head: &cache.head, class })
}

/// Pushes a freed block into the running thread's detached cache as the fast path does.
///
/// `false`: the class has no room.
#[inline]
pub fn push(cache: &Cache, block: *mut u8, class: usize) -> bool {
    push_to(&cache.head, block, class)
}
