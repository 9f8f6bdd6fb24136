//! The word of a lock: Drepper's mutex 2 ("Futexes Are Tricky"). FREE; HELD; or CONTENDED: held, and threads may sleep
//! on it.
//!
//! Promises upward: one holder at a time, which sees the writes of the last holder; once the word is free, a thread
//! that sleeps on it is woken. Asks from below: the core's `sync` only, so that loom runs this very file
//! (`core/tests/loom_word.rs`); the caller does the sleeping and the waking.

use terrace_core::sync::{AtomicU32, Ordering, seeded};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// Ordering of locking: Acquire, so that the holder sees every write of the last holder.
#[inline(always)]
fn lock_order() -> Ordering {
    if seeded("word_lock_relaxed") { Ordering::Relaxed } else { Ordering::Acquire }
}

/// Ordering of unlocking: Release, so that the next holder sees every write of this one.
#[inline(always)]
fn unlock_order() -> Ordering {
    if seeded("word_unlock_relaxed") { Ordering::Relaxed } else { Ordering::Release }
}

/// The value that [`lock`](Futex::lock) writes: other threads may sleep on the word, so unlocking must wake one of
/// them.
#[inline(always)]
fn slept() -> u32 {
    if seeded("word_sleeper_forgets") { HELD } else { CONTENDED }
}

/// A lock that is one word, on which threads sleep by futex calls.
#[derive(Debug)]
pub struct Futex(AtomicU32);

impl Futex {
    /// Makes a lock that is free.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Makes a lock that is free; not `const`, since loom creates its atomics at run time.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Whether the lock is free now. A relaxed read: it orders no other access.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.0.load(Ordering::Relaxed) == FREE
    }

    /// Acquires the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, lock_order(), Ordering::Relaxed).is_ok()
    }

    /// Acquires the lock.
    ///
    /// While another thread holds the lock, calls `sleep` with the word and the value that it must still have for the
    /// thread to sleep.
    pub fn lock(&self, sleep: impl Fn(&AtomicU32, u32)) {
        while self.0.swap(slept(), lock_order()) != FREE {
            sleep(&self.0, slept());
        }
    }

    /// Releases the lock. Returns the word if a thread may sleep on it: the caller must wake one.
    #[inline]
    pub fn unlock(&self) -> Option<&AtomicU32> {
        Some(&self.0).filter(|word| word.swap(FREE, unlock_order()) == CONTENDED)
    }
}
