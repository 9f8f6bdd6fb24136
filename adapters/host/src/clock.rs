//! The purge clock: a deadline between the threads that free, the one that ticks, and the one that sleeps.
//!
//! Promises upward: what a thread freed before [`note`](Clock::note) is found by a tick, or a deadline is set after it; one
//! thread ticks at a time, and sees what the last one did; a thread that sleeps on [`bell`](Clock::bell) hears of each
//! deadline. Asks from below: the core's `sync` only, so that loom runs this very file (`core/tests/loom_clock.rs`).
//!
//! ```text
//! a thread that frees:   writes what is free | fence | reads the deadline
//! the one that ticks:    takes the deadline  | fence | reads what is free
//! ```
//!
//! One of the two fences comes first, and what stands before it is seen behind the other: either the freeing thread reads that
//! there is no deadline and sets one, or the tick reads what was freed. Without them both may read what was there before.

use terrace_core::sync::{AtomicU32, AtomicUsize, Ordering, fence};

/// The deadline while nothing waits to be purged.
pub const NEVER: usize = usize::MAX;

/// Ordering of a tick's begin: it sees everything the last tick did.
#[cfg(not(terrace_seeded_bug = "clock_begin_relaxed"))]
const BEGIN: Ordering = Ordering::Acquire;
#[cfg(terrace_seeded_bug = "clock_begin_relaxed")]
const BEGIN: Ordering = Ordering::Relaxed;

/// Ordering of a tick's end: the next tick sees everything this one did.
#[cfg(not(terrace_seeded_bug = "clock_end_relaxed"))]
const END: Ordering = Ordering::Release;
#[cfg(terrace_seeded_bug = "clock_end_relaxed")]
const END: Ordering = Ordering::Relaxed;

/// The clock.
#[derive(Debug)]
pub struct Clock {
    /// When the next tick is due, in milliseconds, of which 64 bits never run out; [`NEVER`]: nothing waits for one. It orders
    /// nothing by itself: a thread that reads an old one reads the time once too often, or ticks at its next call.
    deadline: AtomicUsize,
    /// Whether a thread ticks now: a lock on which no thread sleeps.
    ticking: AtomicU32,
    /// Deadlines that were set, modulo 2^32: the word on which the purge thread sleeps.
    bell: AtomicU32,
}

impl Clock {
    /// A clock without a deadline.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { deadline: AtomicUsize::new(NEVER), ticking: AtomicU32::new(0), bell: AtomicU32::new(0) }
    }

    /// A clock without a deadline; loom's atomics are made at run time.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { deadline: AtomicUsize::new(NEVER), ticking: AtomicU32::new(0), bell: AtomicU32::new(0) }
    }

    /// The deadline; it may be old.
    #[inline]
    pub fn deadline(&self) -> usize {
        self.deadline.load(Ordering::Relaxed)
    }

    /// Notes that the caller freed something. `true`: there is no deadline, and the caller must set one.
    pub fn note(&self) -> bool {
        #[cfg(not(terrace_seeded_bug = "clock_note_unfenced"))]
        fence(Ordering::SeqCst);
        self.deadline() == NEVER
    }

    /// Sets a deadline, and rings. The caller must wake the thread that sleeps on the bell.
    pub fn set(&self, deadline: usize) {
        self.deadline.store(deadline, Ordering::Relaxed);
        // Release: the thread that reads the bell reads this deadline, or a later one. Acquire: this thread sees what was done
        // before the last ring, so that a purge thread which started before it is woken.
        #[cfg(not(terrace_seeded_bug = "clock_set_silent"))]
        self.bell.fetch_add(1, Ordering::AcqRel);
    }

    /// The word to sleep on, and its value now; must be read before the deadline.
    pub fn bell(&self) -> (&AtomicU32, u32) {
        (&self.bell, self.bell.load(Ordering::Acquire))
    }

    /// Begins a tick. `false`: another thread ticks.
    pub fn begin(&self) -> bool {
        self.ticking.swap(1, BEGIN) == 0
    }

    /// Takes the deadline; must be the first step of a tick.
    ///
    /// Memory that is freed later, and that the tick does not find, sets another deadline.
    pub fn take(&self) -> usize {
        let due = self.deadline.swap(NEVER, Ordering::Relaxed);
        #[cfg(not(terrace_seeded_bug = "clock_take_unfenced"))]
        fence(Ordering::SeqCst);
        due
    }

    /// Clears the deadline: in the child of a fork.
    pub fn forget(&self) {
        self.deadline.store(NEVER, Ordering::Relaxed);
    }

    /// Ends the tick.
    pub fn end(&self) {
        self.ticking.store(0, END);
    }
}
