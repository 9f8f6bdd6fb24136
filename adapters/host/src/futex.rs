//! The word of a lock: Drepper's mutex 2 ("Futexes Are Tricky"). FREE, HELD, or CONTENDED: held, and somebody may sleep.
//!
//! Promises upward: one holder at a time, who sees what the last one did; whoever sleeps is woken once the word is free.
//! Asks from below: the core's `sync` only, so that loom runs this very file (`core/tests/loom_word.rs`); how to sleep and to
//! wake, the caller says.

use terrace_core::sync::{AtomicU32, Ordering};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// What locking asks: to see everything the last holder did.
#[cfg(not(terrace_seeded_bug = "word_lock_relaxed"))]
const LOCK: Ordering = Ordering::Acquire;
#[cfg(terrace_seeded_bug = "word_lock_relaxed")]
const LOCK: Ordering = Ordering::Relaxed;

/// What unlocking gives: everything this holder did, to the next.
#[cfg(not(terrace_seeded_bug = "word_unlock_relaxed"))]
const UNLOCK: Ordering = Ordering::Release;
#[cfg(terrace_seeded_bug = "word_unlock_relaxed")]
const UNLOCK: Ordering = Ordering::Relaxed;

/// What a thread that may have slept makes of the word. Others may sleep still, so that it must wake one of them.
#[cfg(not(terrace_seeded_bug = "word_sleeper_forgets"))]
const SLEPT: u32 = CONTENDED;
#[cfg(terrace_seeded_bug = "word_sleeper_forgets")]
const SLEPT: u32 = HELD;

/// See the file's comment.
#[derive(Debug)]
pub struct Futex(AtomicU32);

impl Futex {
    /// A free lock.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// The same; loom's atomics are made at run time.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// Whether it is free just now, which orders nothing.
    #[inline]
    pub fn is_free(&self) -> bool {
        self.0.load(Ordering::Relaxed) == FREE
    }

    /// Takes it if it is free.
    #[inline]
    pub fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, HELD, LOCK, Ordering::Relaxed).is_ok()
    }

    /// Takes it, and calls `sleep` with the word and what it must still be then as long as another thread holds it.
    pub fn lock(&self, sleep: impl Fn(&AtomicU32, u32)) {
        while self.0.swap(SLEPT, LOCK) != FREE {
            sleep(&self.0, SLEPT);
        }
    }

    /// Lets it go. Somebody may sleep: the word by which one of them is to be woken.
    #[inline]
    pub fn unlock(&self) -> Option<&AtomicU32> {
        Some(&self.0).filter(|word| word.swap(FREE, UNLOCK) == CONTENDED)
    }
}
