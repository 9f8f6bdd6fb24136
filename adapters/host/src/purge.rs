//! The purge clock: memory that has been free for a while goes back to the system.
//!
//! Promises upward: what is free longer than two delays is given back by the next call that is not served by a thread's
//! cache alone, by [`trim`], or by the background thread; pages inside spans too. A tick costs O(slices mapped / 64) and what
//! it gives back.
//! Asks from below: the bits of slices, [`page_heap::purge`], the shelves; [`clock`](crate::clock) for what passes
//! between threads.
//!
//! ```text
//! a free marks its slice     young ──tick──> old ──tick──> due: lost nothing since, so it is purged
//! ```
//!
//! The deadline is set when something becomes free and there was none. A tick that comes a delay too late takes young and
//! old slices alike: nobody touched anything in between. No call pays for everybody: a tick gives back 1 MiB at most, or empties
//! one or two caches, the next call goes on, and where more than 32 MiB wait the [`background`] thread does.

use crate::class::{self, SLICE};
use crate::clock::{Clock, NEVER};
use crate::settings::{self, Background};
use crate::spans::GLOBAL_SPANS;
use crate::tables::{Tables, mapped, tables};
use crate::thread::Search;
use crate::{purge_thread, transfer_cache, fork, page_heap, heap, large, os, signal, slow_path, thread, usage};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicIsize, AtomicUsize};

static CLOCK: Clock = Clock::new();

/// The clock, for the background thread.
pub fn clock() -> &'static Clock {
    &CLOCK
}

/// Milliseconds since some moment, as the clock counts them.
pub fn now() -> usize {
    os::milliseconds() as usize
}

/// Sets the deadline, and wakes the background thread, which may sleep without one.
fn set_deadline(deadline: usize) {
    CLOCK.set(deadline);
    purge_thread::wake(&CLOCK);
}

/// Sets a deadline that is due.
pub fn ring() {
    CLOCK.set(0);
}

/// Says that something became free, after it did.
pub fn note_free() {
    if !CLOCK.note() {
        return;
    }
    let Some(delay) = settings::purge_delay() else { return };
    set_deadline(now() + delay as usize);
    start_if_wanted();
}

/// Starts the background thread where the setting, or the number of threads, wants it as soon as there is a deadline.
fn start_if_wanted() {
    let is_wanted = match settings::background() {
        Background::Auto => thread::live_threads() >= MANY_THREADS,
        Background::Never => false,
        Background::Always => true,
    };
    if is_wanted {
        purge_thread::start();
    }
}

/// So many threads may keep more than [`BACKLOG`], 1 MiB each, and all of them may be idle before a tick sees it.
const MANY_THREADS: usize = 32;

/// Ticks, if it is time. Of several threads each may be idle from here on and keep what is in its cache, so there is a deadline.
#[inline]
pub fn poll() {
    if !signal::is_in_handler() {
        signal::free_deferred();
    }
    if CLOCK.deadline() != NEVER {
        poll_clock();
    } else if !thread::is_single_threaded() {
        note_free();
    }
}

/// Bytes that became free since the last tick, less those that were handed out again.
static PURGEABLE: AtomicIsize = AtomicIsize::new(0);
/// Less than this is not worth watching for: programs that fill and empty a few tables take and leave so much all the time.
const BACKLOG: isize = 32 << 20;

/// Counts bytes that became free, or, below 0, were handed out: these were among those that wait, if any do.
#[inline]
pub fn adjust_purgeable(bytes: isize) {
    if bytes > 0 || PURGEABLE.load(Relaxed) > 0 {
        PURGEABLE.fetch_add(bytes, Relaxed);
    }
}

/// Whether so much waits for the clock, a quarter of what is in use and 32 MiB, or caches of other threads, that every call
/// should look at it: the next may be the last for a long time. It costs some ten nanoseconds a call, for two delays at most.
/// Never while the background thread looks.
pub fn is_backlogged() -> bool {
    !purge_thread::runs() && has_backlog()
}

/// Has what waits looked at when it is so much: by the background thread, or by each call of this one.
pub fn watch_backlog() {
    if has_backlog() && (settings::background() == Background::Never || !purge_thread::start()) {
        thread::detach();
    }
}

fn has_backlog() -> bool {
    let is_waiting = || PURGEABLE.load(Relaxed) > BACKLOG + (usage::used() / 4) as isize;
    CLOCK.deadline() != NEVER && (is_flushing_caches() || is_waiting())
}

#[cold]
fn poll_clock() {
    /// When the background thread is so late, it gets no processor: then calls do their part too. In milliseconds.
    const LATE: usize = 200;
    start_if_wanted();
    let (now, deadline) = (now(), CLOCK.deadline());
    if now < deadline || purge_thread::runs() && now - deadline < LATE {
        return;
    }
    // Where no thread will, a call does three times as much: a thousand of them give 3 GiB back.
    let is_alone = settings::background() == Background::Never || purge_thread::is_refused();
    if tick(now, if is_alone { 3 * PIECE } else { PIECE }) && !is_alone {
        purge_thread::start();
    }
}

/// What the background thread does between two looks at the clock.
pub fn tick_on_thread(now: usize) {
    tick(now, 4 * PIECE);
}

/// Gives back all that is free now, in caches of idle threads too. `true` when anything was.
pub fn trim() -> bool {
    let _busy = thread::enter_slow_path();
    let before = page_heap::purged_bytes();
    reclaim_all();
    tick(now(), ALL);
    page_heap::purged_bytes() > before
}

/// Repeats an attempt to take `bytes` bytes that was refused: when the spans have back what caches hold, and, if the limit is
/// what refuses it, when free pages inside spans are back too, and idle threads' caches if they hold as much as is missing. A
/// refusal costs a few microseconds, and what became free since the last one.
pub fn retry<T>(bytes: usize, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let mut all = usize::MAX;
    flush_caches(&mut all);
    attempt().or_else(|| {
        let missing = usage::missing(bytes);
        if missing == 0 || bytes > settings::limit() {
            return None;
        }
        if thread::cached_bytes() >= missing {
            reclaim_all();
        }
        tick(now(), ALL);
        attempt()
    })
}

/// Gives what the running thread's cache and the stash hold back to the spans and the ground, then what the depot and the caches
/// hold that no thread has, as long as work is `left`.
fn flush_caches(left: &mut usize) {
    if let Some(cache) = thread::current() {
        slow_path::flush(cache);
    }
    large::flush_cached();
    transfer_cache::flush(left);
    thread::flush_spare(left);
}

/// What a call gives back at most: 256 pages, at half a microsecond each.
const PIECE: usize = 1 << 20;
/// All at once, also what is young.
const ALL: usize = usize::MAX;
/// Blocks that one tick takes from caches before it leaves the rest to the next: 0.1 microseconds each where every block lies in
/// another span. With two caches of 3,300 blocks on top, one of an idle thread and the running thread's own, that is 0.9
/// milliseconds.
const BLOCKS: usize = 2048;

/// The word of due slices at which the next tick goes on; [`DONE`]: it begins a round; [`SEARCHING`]: it goes on with the search
/// for idle threads' caches; [`EMPTYING`]: that is done, and other caches are left. Written by the thread that ticks.
static CURSOR: AtomicUsize = AtomicUsize::new(DONE);
const DONE: usize = usize::MAX;
const EMPTYING: usize = usize::MAX - 1;
const SEARCHING: usize = usize::MAX - 2;

/// Whether a round has begun, and caches are left for its beginning.
fn is_flushing_caches() -> bool {
    (SEARCHING..DONE).contains(&CURSOR.load(Relaxed))
}

/// Whether another round is to follow. Written as `CURSOR` is.
static ANOTHER_ROUND: AtomicBool = AtomicBool::new(false);

/// Begins to give back what has been free long enough, or goes on with it: `most` bytes, or [`ALL`]. Where another thread
/// does so just now, all means after it. Whether the background thread should go on: so much is left, or other threads may be idle
/// before the next call.
fn tick(now: usize, most: usize) -> bool {
    while !CLOCK.begin() {
        // Before a fork nobody ticks, and the thread that forks would wait for itself.
        if most != ALL || fork::is_forking_here() {
            return false;
        }
        os::yield_now();
    }
    let due = CLOCK.take();
    let delay = settings::purge_delay().map(|delay| delay as usize);
    let begins = most == ALL || CURSOR.load(Relaxed) >= SEARCHING;
    // Beginning is work enough for one call.
    let search =
        if begins { begin_round(most == ALL, now >= due.saturating_add(delay.unwrap_or(0))) } else { Search::Done };
    if most == ALL || !begins {
        purge_due(most);
    }
    if !begins {
        // A thread that freed memory during this round saw the deadline and set none; its slices are young, or its blocks lie in
        // its cache. Another round looks at them.
        ANOTHER_ROUND.store(true, Relaxed);
    }
    match delay {
        // The old deadline, so that a round that comes late still does.
        Some(_) if is_flushing_caches() => set_deadline(due.min(now)),
        Some(_) if CURSOR.load(Relaxed) != DONE => set_deadline(now),
        Some(delay) if ANOTHER_ROUND.load(Relaxed) => set_deadline(now + delay),
        _ => PURGEABLE.store(0, Relaxed),
    }
    let is_much = is_flushing_caches() || CURSOR.load(Relaxed) != DONE && PURGEABLE.load(Relaxed) > BACKLOG;
    CLOCK.end();
    is_much || search == Search::Again
}

/// Takes back what all idle threads hold: one search sees which caches change, another empties those that did not.
fn reclaim_all() {
    let mut all = usize::MAX;
    for _ in 0..2 {
        while thread::reclaim(&mut all) == Search::Unfinished {}
    }
}

/// Empties caches, those of idle threads first, and lets what came back ripen with the rest; `late` as for [`age`]. What the
/// search came to.
fn begin_round(all: bool, late: bool) -> Search {
    let mut left = if all { usize::MAX } else { BLOCKS };
    let search = match CURSOR.load(Relaxed) {
        // The next search tells whether they hold something.
        _ if all && !thread::is_single_threaded() => Search::Again,
        _ if all => Search::Done,
        EMPTYING => Search::Done,
        _ => thread::reclaim(&mut left),
    };
    if search == Search::Unfinished {
        CURSOR.store(SEARCHING, Relaxed);
        return search;
    }
    if all || CURSOR.load(Relaxed) != EMPTYING {
        ANOTHER_ROUND.store(search == Search::Again, Relaxed);
    }
    flush_caches(&mut left);
    if left == 0 {
        CURSOR.store(EMPTYING, Relaxed);
        return search;
    }
    let Some(tables) = tables() else { return search };
    let (is_due, is_old) = age(tables, all || late);
    ANOTHER_ROUND.fetch_or(is_old, Relaxed);
    CURSOR.store(if is_due { 0 } else { DONE }, Relaxed);
    search
}

/// Young slices become old ones, and old ones due; with `late` both due. Whether any are due now, and any old.
fn age(tables: &Tables, late: bool) -> (bool, bool) {
    let (mut is_due, mut left) = (false, false);
    let words = (mapped() / SLICE).div_ceil(64);
    for ((young, old), due) in tables.young.iter().zip(tables.old).zip(tables.due).take(words) {
        let fresh = if young.load(Relaxed) == 0 { 0 } else { young.swap(0, Relaxed) };
        let before = old.load(Relaxed);
        // What lost blocks again since is young once more.
        let (ready, kept) = if late { (before | fresh, 0) } else { (before & !fresh, fresh) };
        if before != kept {
            old.store(kept, Relaxed);
        }
        // A round that was not ended leaves some.
        let ready = ready | due.load(Relaxed);
        if ready != 0 {
            due.store(ready, Relaxed);
        }
        is_due |= ready != 0;
        left |= kept != 0;
    }
    (is_due, left)
}

/// Gives back what is free in due slices, until it is `most` bytes.
fn purge_due(most: usize) {
    /// Slices that go back under one lock at most: 1 MiB, so that nobody waits for long.
    const RUN: usize = 16;
    /// What a look at a span costs, in bytes that could go back meanwhile.
    const LOOK: usize = 2048;
    let Some(tables) = tables() else { return };
    let words = (mapped() / SLICE).div_ceil(64);
    let mut spent = 0;
    for word in CURSOR.load(Relaxed)..words {
        let Some(due) = tables.due.get(word) else { break };
        while due.load(Relaxed) != 0 {
            if spent >= most {
                return CURSOR.store(word, Relaxed);
            }
            let bits = due.load(Relaxed);
            let idle = bits & tables.free_backed.get(word).map_or(0, |idle| idle.load(Relaxed));
            let before = page_heap::purged_bytes();
            if idle == 0 {
                let low = bits.trailing_zeros();
                due.store(bits & (bits - 1), Relaxed);
                purge_span(tables, (word * 64) as u32 + low);
            } else {
                let low = idle.trailing_zeros();
                let room = ((most - spent) / SLICE).clamp(1, RUN);
                let count = (idle >> low).trailing_ones().min(room as u32);
                due.store(bits & !(u64::MAX >> (64 - count) << low), Relaxed);
                page_heap::purge(tables, (word * 64) as u32 + low, count);
            }
            let given = page_heap::purged_bytes() - before;
            adjust_purgeable(-(given as isize));
            spent += given.max(LOOK);
        }
    }
    CURSOR.store(DONE, Relaxed);
}

/// Free pages of a slice that is a span go back. Not where huge pages were asked for, which that would split.
fn purge_span(tables: &Tables, slice: u32) {
    if settings::huge_pages() == Some(true) {
        return;
    }
    let span = tables.span(slice);
    if usize::from(tables.class(slice).load(Relaxed)) != class::NONE {
        GLOBAL_SPANS.purge(slice);
    } else if span.heap.load(Relaxed) != 0 && usize::from(span.class.load(Relaxed)) != class::NONE {
        heap::purge_span(slice, span);
    }
}

/// Waits until nobody ticks, and lets nobody begin: before a fork.
pub fn suspend() {
    while !CLOCK.begin() {
        os::yield_now();
    }
}

/// Lets ticks happen again; in the child the background thread is gone.
pub fn resume(is_child: bool) {
    if is_child {
        purge_thread::forked();
        CLOCK.forget();
    }
    CLOCK.end();
}
