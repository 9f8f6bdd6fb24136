//! The word of a lock: Drepper's mutex 2 ("Futexes Are Tricky"). FREE, HELD, or CONTENDED: held, and a thread may sleep.
//!
//! Promises upward: one holder at a time, which sees what the last one did; a thread that sleeps is woken once the word is
//! free. Asks from below: the core's `sync` only, so that loom runs this very file (`core/tests/loom_word.rs`); the caller
//! sleeps and wakes.

use terrace_core::sync::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// Ordering of locking: the holder sees everything the last holder did.
#[cfg(not(terrace_seeded_bug = "word_lock_relaxed"))]
const LOCK: Ordering = Ordering::Acquire;
#[cfg(terrace_seeded_bug = "word_lock_relaxed")]
const LOCK: Ordering = Ordering::Relaxed;

/// Ordering of unlocking: the next holder sees everything this holder did.
#[cfg(not(terrace_seeded_bug = "word_unlock_relaxed"))]
const UNLOCK: Ordering = Ordering::Release;
#[cfg(terrace_seeded_bug = "word_unlock_relaxed")]
const UNLOCK: Ordering = Ordering::Relaxed;

/// What a thread that may have slept sets the word to: others may sleep still, so that it must wake one of them.
#[cfg(not(terrace_seeded_bug = "word_sleeper_forgets"))]
const SLEPT: u32 = CONTENDED;
#[cfg(terrace_seeded_bug = "word_sleeper_forgets")]
const SLEPT: u32 = HELD;

/// The word.
#[derive(Debug)]
pub struct Futex(AtomicU32);

impl Futex {
    /// A free lock.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// A free lock; loom's atomics are made at run time.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Whether the lock is free now, which orders nothing.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.0.load(Ordering::Relaxed) == FREE
    }

    /// Acquires the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, LOCK, Ordering::Relaxed).is_ok()
    }

    /// Acquires the lock.
    ///
    /// While another thread holds the lock, calls `sleep` with the word and the value to sleep on.
    pub fn lock(&self, sleep: impl Fn(&AtomicU32, u32)) {
        while self.0.swap(SLEPT, LOCK) != FREE {
            sleep(&self.0, SLEPT);
        }
    }

    /// Releases the lock. Returns the word if a thread may sleep on it: the caller must wake one.
    #[inline]
    pub fn unlock(&self) -> Option<&AtomicU32> {
        Some(&self.0).filter(|word| word.swap(FREE, UNLOCK) == CONTENDED)
    }
}
