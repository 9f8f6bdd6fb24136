//! The purge clock: memory that has been free for a while goes back to the system.
//!
//! Promises upward: what is free longer than two delays is given back by the next call that is not served by a thread's
//! cache alone, by [`trim`], or by the background thread; pages inside spans too. A tick costs O(slices mapped / 64) and what
//! it gives back.
//! Asks from below: the bits of slices, [`ground::purge`], the shelves; [`clock`](crate::clock) for what passes
//! between threads.
//!
//! ```text
//! a free marks its slice     young ──tick──> old ──tick──> ripe: lost nothing since, so it is purged
//! ```
//!
//! The deadline is set when something becomes free and there was none. A tick that comes a delay too late takes young and
//! old slices alike: nobody touched anything in between.

use crate::class;
use crate::clock::{Clock, NEVER};
use crate::shelf::SHELVES;
use crate::space::{Tables, mapped, tables};
use crate::{class::SLICE, depot, fork, ground, heap, large, os, settings, signal, slow, thread, usage};
use core::ffi::c_void;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicIsize};

static CLOCK: Clock = Clock::new();
/// Whether the background thread runs, or is about to. Made so before the bell is rung, and read after: who does not see it
/// rang before the thread began, which then reads the deadline.
static THREAD: AtomicBool = AtomicBool::new(false);

/// Milliseconds since some moment, as the clock counts them.
fn now() -> usize {
    os::milliseconds() as usize
}

/// Sets the deadline, and wakes the background thread, which may sleep without one.
fn set(deadline: usize) {
    CLOCK.set(deadline);
    if THREAD.load(Relaxed) {
        os::wake(CLOCK.bell().0, 1);
    }
}

/// Says that something became free, after it did.
pub fn note() {
    if !CLOCK.note() {
        return;
    }
    let Some(delay) = settings::purge_delay() else { return };
    let wanted = settings::background() && !signal::is_inside();
    let starts = wanted && !THREAD.swap(true, Relaxed);
    set(now() + delay as usize);
    if starts && !os::spawn(background) {
        THREAD.store(false, Relaxed);
    }
}

/// Ticks, if it is time.
#[inline]
pub fn poll() {
    if !signal::is_inside() {
        signal::settle();
    }
    if CLOCK.deadline() != NEVER {
        poll_clock();
    }
}

/// Bytes that became free since the last tick, less those that were handed out again.
static WAITING: AtomicIsize = AtomicIsize::new(0);
/// Less than this is not worth watching for: programs that fill and empty a few tables take and leave so much all the time.
const WATCHED: isize = 32 << 20;

/// Counts bytes that became free, or, below 0, were handed out: these were among those that wait, if any do.
#[inline]
pub fn waiting(bytes: isize) {
    if bytes > 0 || WAITING.load(Relaxed) > 0 {
        WAITING.fetch_add(bytes, Relaxed);
    }
}

/// Whether so much waits for the clock, a quarter of what is in use and 32 MiB, that every call should look at it: the next
/// may be the last for a long time. It costs some ten nanoseconds a call, for two delays at most.
pub fn is_watched() -> bool {
    CLOCK.deadline() != NEVER && WAITING.load(Relaxed) > WATCHED + (usage::used() / 4) as isize
}

#[cold]
fn poll_clock() {
    let now = now();
    if now >= CLOCK.deadline() {
        tick(now, false);
    }
}

/// Gives back all that is free now. `true` when anything was.
pub fn trim() -> bool {
    let _busy = thread::busy();
    let before = ground::counts().purged;
    tick(now(), true);
    ground::counts().purged > before
}

/// Everything that caches hold goes back to the spans, and empty spans to the ground.
pub fn everything() {
    if let Some(cache) = thread::current() {
        slow::empty(cache);
    }
    thread::empty_spare();
    depot::empty();
    large::empty();
}

/// Gives back what has been free long enough, or all of it. Where somebody else does so just now, all means after him.
fn tick(now: usize, all: bool) {
    while !CLOCK.begin() {
        // Before a fork nobody ticks, and the thread that forks would wait for itself.
        if !all || fork::is_forking_here() {
            return;
        }
        os::yield_now();
    }
    let due = CLOCK.take();
    let delay = settings::purge_delay().unwrap_or(0) as usize;
    everything();
    if let Some(tables) = tables() {
        let left = ripen(tables, all || now >= due.saturating_add(delay));
        ground::purge(|word| tables.ripe.get(word).map_or(0, |bits| bits.load(Relaxed)));
        purge_spans(tables);
        if left && settings::purge_delay().is_some() {
            set(now + delay);
        } else {
            WAITING.store(0, Relaxed);
        }
    }
    CLOCK.end();
}

/// Young slices become old ones, and old ones ripe; with `late` both ripe. Whether any are old now.
fn ripen(tables: &Tables, late: bool) -> bool {
    let mut left = false;
    let words = (mapped() / SLICE).div_ceil(64);
    for ((young, old), ripe) in tables.young.iter().zip(tables.old).zip(tables.ripe).take(words) {
        let fresh = if young.load(Relaxed) == 0 { 0 } else { young.swap(0, Relaxed) };
        let before = old.load(Relaxed);
        // What lost blocks again since is young once more.
        let (ready, kept) = if late { (before | fresh, 0) } else { (before & !fresh, fresh) };
        if before != kept {
            old.store(kept, Relaxed);
        }
        if ripe.load(Relaxed) != ready {
            ripe.store(ready, Relaxed);
        }
        left |= kept != 0;
    }
    left
}

/// Free pages of ripe slices that are spans go back. Not where huge pages were asked for, which that would split.
fn purge_spans(tables: &Tables) {
    if settings::huge_pages() == Some(true) {
        return;
    }
    let words = (mapped() / SLICE).div_ceil(64);
    for (word, ripe) in tables.ripe.iter().enumerate().take(words) {
        let mut bits = ripe.load(Relaxed);
        while bits != 0 {
            let slice = (word * 64) as u32 + bits.trailing_zeros();
            bits &= bits - 1;
            let span = tables.span(slice);
            if usize::from(tables.class(slice).load(Relaxed)) != class::NONE {
                SHELVES.purge(slice);
            } else if span.heap.load(Relaxed) != 0 && usize::from(span.class.load(Relaxed)) != class::NONE {
                heap::purge_span(slice, span);
            }
        }
    }
}

/// Sleeps until something is free, then until it is time.
extern "C" fn background(_: *mut c_void) -> *mut c_void {
    loop {
        let (bell, seen) = CLOCK.bell();
        let deadline = CLOCK.deadline();
        let now = now();
        if deadline == NEVER {
            os::wait(bell, seen, 0);
        } else if now >= deadline {
            tick(now, false);
        } else {
            os::wait(bell, seen, (deadline - now).min(60_000) as u32);
        }
    }
}

/// Waits until nobody ticks, and lets nobody begin: before a fork.
pub fn hold() {
    while !CLOCK.begin() {
        os::yield_now();
    }
}

/// Lets ticks happen again; in the child the background thread is gone.
pub fn release(is_child: bool) {
    if is_child {
        THREAD.store(false, Relaxed);
        CLOCK.forget();
    }
    CLOCK.end();
}
