//! When free memory is looked at next: what passes between threads that free, the one that ticks, and the one that sleeps.
//!
//! Promises upward: what a thread freed before [`note`](Clock::note) is found by a tick, or a deadline is set after it; one
//! thread ticks at a time, and sees what the last one did; a thread that sleeps on [`bell`](Clock::bell) hears of each deadline.
//! Asks from below: the core's `sync` only, so that loom runs this very file (`core/tests/loom_clock.rs`).
//!
//! ```text
//! a thread that frees:   writes what is free | fence | reads the deadline
//! the one that ticks:    takes the deadline  | fence | reads what is free
//! ```
//!
//! One of the two fences is the first, and what stands before it is seen behind the other: the thread reads that there is no
//! deadline and sets one, or the tick reads what it freed. Without them both may read what was there before.

use terrace_core::sync::{AtomicU32, AtomicUsize, Ordering, fence};

/// The deadline of a clock that waits for nothing.
pub const NEVER: usize = usize::MAX;

/// What beginning asks: to see everything the last tick did.
#[cfg(not(terrace_seeded_bug = "clock_begin_relaxed"))]
const BEGIN: Ordering = Ordering::Acquire;
#[cfg(terrace_seeded_bug = "clock_begin_relaxed")]
const BEGIN: Ordering = Ordering::Relaxed;

/// What ending gives: everything this tick did, to the next.
#[cfg(not(terrace_seeded_bug = "clock_end_relaxed"))]
const END: Ordering = Ordering::Release;
#[cfg(terrace_seeded_bug = "clock_end_relaxed")]
const END: Ordering = Ordering::Relaxed;

/// See the file's comment.
#[derive(Debug)]
pub struct Clock {
    /// When the next tick is due, in milliseconds, which 64 bits count for ever; [`NEVER`] when nothing waits for one. It orders
    /// nothing by itself: a thread that reads an old one looks at the time once too often, or at its next call.
    deadline: AtomicUsize,
    /// Whether a thread ticks now: a lock that nobody sleeps on.
    ticking: AtomicU32,
    /// Deadlines that were set, modulo 2^32: what the background thread sleeps on.
    bell: AtomicU32,
}

impl Clock {
    /// A clock that waits for nothing.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { deadline: AtomicUsize::new(NEVER), ticking: AtomicU32::new(0), bell: AtomicU32::new(0) }
    }

    /// The same; loom's atomics are made at run time.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { deadline: AtomicUsize::new(NEVER), ticking: AtomicU32::new(0), bell: AtomicU32::new(0) }
    }

    /// The deadline, as of late.
    #[inline]
    pub fn deadline(&self) -> usize {
        self.deadline.load(Ordering::Relaxed)
    }

    /// Says that something became free, after it did. `true`: there was no deadline, and the caller sets one.
    pub fn note(&self) -> bool {
        #[cfg(not(terrace_seeded_bug = "clock_note_unfenced"))]
        fence(Ordering::SeqCst);
        self.deadline() == NEVER
    }

    /// Sets a deadline, and rings. The caller wakes the thread that sleeps on the bell.
    pub fn set(&self, deadline: usize) {
        self.deadline.store(deadline, Ordering::Relaxed);
        // Release: who hears it reads this deadline, or a later one. Acquire: this thread sees what was done before the last
        // ring, so that a background thread which started before that is woken.
        #[cfg(not(terrace_seeded_bug = "clock_set_silent"))]
        self.bell.fetch_add(1, Ordering::AcqRel);
    }

    /// What a thread sleeps on, and what it must still be then, read before the deadline.
    pub fn bell(&self) -> (&AtomicU32, u32) {
        (&self.bell, self.bell.load(Ordering::Acquire))
    }

    /// Begins a tick. `false`: another thread ticks.
    pub fn begin(&self) -> bool {
        self.ticking.swap(1, BEGIN) == 0
    }

    /// Takes the deadline, first of all in a tick: what is freed from here on and not found by it gets another.
    pub fn take(&self) -> usize {
        let due = self.deadline.swap(NEVER, Ordering::Relaxed);
        #[cfg(not(terrace_seeded_bug = "clock_take_unfenced"))]
        fence(Ordering::SeqCst);
        due
    }

    /// Forgets the deadline: in the child of a fork.
    pub fn forget(&self) {
        self.deadline.store(NEVER, Ordering::Relaxed);
    }

    /// Ends the tick.
    pub fn end(&self) {
        self.ticking.store(0, END);
    }
}
