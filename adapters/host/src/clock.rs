//! The purge clock: a deadline shared by threads that free memory, the thread that ticks, and the purge thread that
//! sleeps.
//!
//! Promises upward: a tick finds memory that a thread freed before [`note`](Clock::note), or a deadline is set after
//! the tick; one thread ticks at a time, and sees the writes of the last tick; setting a deadline wakes a thread that
//! sleeps on [`bell`](Clock::bell). Asks from below: the core's `sync` only, so that loom runs this very file
//! (`core/tests/loom_clock.rs`).
//!
//! ```text
//! a thread that frees:   marks freed memory   | fence | reads the deadline
//! the thread that ticks: takes the deadline   | fence | reads the marks
//! ```
//!
//! Both fences are sequentially consistent, so one comes first, and the thread that passes the second sees the writes
//! before the first. Either the freeing thread reads that there is no deadline and sets one, or the tick reads the
//! marks. Without fences both threads may read old values, and the freed memory would have no deadline.

use terrace_core::sync::{AtomicU32, AtomicUsize, Ordering, fence, seeded};

/// Value of the deadline while no memory waits to be purged.
pub const NEVER: usize = usize::MAX;

/// Ordering with which a purge tick begins: Acquire, so that it sees every write of the last tick.
#[inline(always)]
fn begin_order() -> Ordering {
    if seeded("clock_begin_relaxed") { Ordering::Relaxed } else { Ordering::Acquire }
}

/// Ordering with which a purge tick ends: Release, so that the next tick sees every write of this one.
#[inline(always)]
fn end_order() -> Ordering {
    if seeded("clock_end_relaxed") { Ordering::Relaxed } else { Ordering::Release }
}

/// The purge clock's deadline, and the words by which threads tick and sleep.
#[derive(Debug)]
pub struct Clock {
    /// When the next tick is due, in milliseconds, which 64 bits never overflow; [`NEVER`]: no tick is needed. Reads
    /// are relaxed: a thread that reads an old deadline reads the time once in vain, or ticks one call later.
    deadline: AtomicUsize,
    /// 1 while a thread ticks: a lock that is only tried, so no thread sleeps on it.
    ticking: AtomicU32,
    /// Counts the deadlines set, modulo 2^32: the futex word on which the purge thread sleeps.
    bell: AtomicU32,
}

impl Clock {
    /// Makes a clock without a deadline.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self { deadline: AtomicUsize::new(NEVER), ticking: AtomicU32::new(0), bell: AtomicU32::new(0) }
    }

    /// Makes a clock without a deadline; not `const`, since loom creates its atomics at run time.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self { deadline: AtomicUsize::new(NEVER), ticking: AtomicU32::new(0), bell: AtomicU32::new(0) }
    }

    /// Reads the deadline, relaxed: another thread may just have changed it.
    #[inline]
    pub fn deadline(&self) -> usize {
        self.deadline.load(Ordering::Relaxed)
    }

    /// Must be called after memory was freed. `true`: there is no deadline, and the caller must set one.
    pub fn note(&self) -> bool {
        if !seeded("clock_note_unfenced") {
            fence(Ordering::SeqCst);
        }
        self.deadline() == NEVER
    }

    /// Sets a deadline and increments the bell. The caller must wake the thread that sleeps on the bell.
    pub fn set(&self, deadline: usize) {
        self.deadline.store(deadline, Ordering::Relaxed);
        // Release: a thread that reads the new value of the bell reads this deadline or a later one. Acquire: this
        // thread sees the writes that came before the last increment, so it knows a purge thread started before then,
        // and wakes it.
        if !seeded("clock_set_silent") {
            self.bell.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// The word to sleep on and its present value; must be read before the deadline, or a wake-up is lost.
    pub fn bell(&self) -> (&AtomicU32, u32) {
        (&self.bell, self.bell.load(Ordering::Acquire))
    }

    /// Begins a tick. `false`: another thread is ticking.
    pub fn begin(&self) -> bool {
        self.ticking.swap(1, begin_order()) == 0
    }

    /// Takes the deadline and leaves [`NEVER`]; must be the first step of a tick.
    ///
    /// A thread that frees memory which this tick misses then sees no deadline, and sets one.
    pub fn take(&self) -> usize {
        let due = self.deadline.swap(NEVER, Ordering::Relaxed);
        if !seeded("clock_take_unfenced") {
            fence(Ordering::SeqCst);
        }
        due
    }

    /// Clears the deadline, in the child of a fork.
    pub fn forget(&self) {
        self.deadline.store(NEVER, Ordering::Relaxed);
    }

    /// Ends the tick.
    pub fn end(&self) {
        self.ticking.store(0, end_order());
    }
}
