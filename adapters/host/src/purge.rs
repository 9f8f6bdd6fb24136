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
//! old slices alike: nobody touched anything in between. No call pays for everybody: a tick gives back 1 MiB at most, or empties
//! one or two caches, the next call goes on, and where more than 32 MiB wait the [`background`] thread does.

use crate::class::{self, SLICE};
use crate::clock::{Clock, NEVER};
use crate::settings::{self, Background};
use crate::shelf::SHELVES;
use crate::space::{Tables, mapped, tables};
use crate::thread::Search;
use crate::{background, depot, fork, ground, heap, large, os, signal, slow, thread, usage};
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
fn set(deadline: usize) {
    CLOCK.set(deadline);
    background::wake(&CLOCK);
}

/// Sets a deadline that is due.
pub fn ring() {
    CLOCK.set(0);
}

/// Says that something became free, after it did.
pub fn note() {
    if !CLOCK.note() {
        return;
    }
    let Some(delay) = settings::purge_delay() else { return };
    set(now() + delay as usize);
    start_if_wanted();
}

/// Starts the background thread where the setting, or the number of threads, wants it as soon as there is a deadline.
fn start_if_wanted() {
    let is_wanted = match settings::background() {
        Background::Auto => thread::live() >= MANY,
        Background::Never => false,
        Background::Always => true,
    };
    if is_wanted {
        background::start();
    }
}

/// So many threads may keep more than [`WATCHED`], 1 MiB each, and all of them may be idle before a tick sees it.
const MANY: usize = 32;

/// Ticks, if it is time. Of several threads each may be idle from here on and keep what is in its cache, so there is a deadline.
#[inline]
pub fn poll() {
    if !signal::is_inside() {
        signal::settle();
    }
    if CLOCK.deadline() != NEVER {
        poll_clock();
    } else if !thread::is_alone() {
        note();
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

/// Whether so much waits for the clock, a quarter of what is in use and 32 MiB, or caches of other threads, that every call
/// should look at it: the next may be the last for a long time. It costs some ten nanoseconds a call, for two delays at most.
/// Never while the background thread looks.
pub fn is_watched() -> bool {
    !background::runs() && is_much()
}

/// Has what waits looked at when it is so much: by the background thread, or by each call of this one.
pub fn watch() {
    if is_much() && (settings::background() == Background::Never || !background::start()) {
        thread::put_aside();
    }
}

fn is_much() -> bool {
    let is_waiting = || WAITING.load(Relaxed) > WATCHED + (usage::used() / 4) as isize;
    CLOCK.deadline() != NEVER && (is_beginning() || is_waiting())
}

#[cold]
fn poll_clock() {
    /// When the background thread is so late, it gets no processor: then calls do their part too. In milliseconds.
    const LATE: usize = 200;
    start_if_wanted();
    let (now, deadline) = (now(), CLOCK.deadline());
    if now < deadline || background::runs() && now - deadline < LATE {
        return;
    }
    // Where no thread will, a call does three times as much: a thousand of them give 3 GiB back.
    let is_alone = settings::background() == Background::Never || background::is_refused();
    if tick(now, if is_alone { 3 * PIECE } else { PIECE }) && !is_alone {
        background::start();
    }
}

/// What the background thread does between two looks at the clock.
pub fn tick_in_background(now: usize) {
    tick(now, 4 * PIECE);
}

/// Gives back all that is free now, in caches of idle threads too. `true` when anything was.
pub fn trim() -> bool {
    let _busy = thread::busy();
    let before = ground::purged_bytes();
    reclaim_all();
    tick(now(), ALL);
    ground::purged_bytes() > before
}

/// Repeats an attempt to take `bytes` bytes that was refused: when the spans have back what caches hold, and, if the limit is
/// what refuses it, when free pages inside spans are back too, and idle threads' caches if they hold as much as is missing. A
/// refusal costs a few microseconds, and what became free since the last one.
pub fn retry<T>(bytes: usize, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let mut all = usize::MAX;
    empty_caches(&mut all);
    attempt().or_else(|| {
        let missing = usage::missing(bytes);
        if missing == 0 || bytes > settings::limit() {
            return None;
        }
        if thread::cached() >= missing {
            reclaim_all();
        }
        tick(now(), ALL);
        attempt()
    })
}

/// Gives what the running thread's cache and the stash hold back to the spans and the ground, then what the depot and the caches
/// hold that no thread has, as long as work is `left`.
fn empty_caches(left: &mut usize) {
    if let Some(cache) = thread::current() {
        slow::empty(cache);
    }
    large::empty();
    depot::empty(left);
    thread::empty_spare(left);
}

/// What a call gives back at most: 256 pages, at half a microsecond each.
const PIECE: usize = 1 << 20;
/// All at once, also what is young.
const ALL: usize = usize::MAX;
/// Blocks that one tick takes from caches before it leaves the rest to the next: 0.1 microseconds each where every block lies in
/// another span. With two caches of 3,300 blocks on top, one of an idle thread and the running thread's own, that is 0.9
/// milliseconds.
const BLOCKS: usize = 2048;

/// The word of ripe slices at which the next tick goes on; [`DONE`]: it begins a round; [`SEARCHING`]: it goes on with the search
/// for idle threads' caches; [`EMPTYING`]: that is done, and other caches are left. Written by the thread that ticks.
static WORD: AtomicUsize = AtomicUsize::new(DONE);
const DONE: usize = usize::MAX;
const EMPTYING: usize = usize::MAX - 1;
const SEARCHING: usize = usize::MAX - 2;

/// Whether a round has begun, and caches are left for its beginning.
fn is_beginning() -> bool {
    (SEARCHING..DONE).contains(&WORD.load(Relaxed))
}

/// Whether another round is to follow. Written as `WORD` is.
static LEFT: AtomicBool = AtomicBool::new(false);

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
    let begins = most == ALL || WORD.load(Relaxed) >= SEARCHING;
    // Beginning is work enough for one call.
    let search =
        if begins { begin_round(most == ALL, now >= due.saturating_add(delay.unwrap_or(0))) } else { Search::Done };
    if most == ALL || !begins {
        purge_ripe(most);
    }
    if !begins {
        // A thread that freed memory during this round saw the deadline and set none; its slices are young, or its blocks lie in
        // its cache. Another round looks at them.
        LEFT.store(true, Relaxed);
    }
    match delay {
        // The old deadline, so that a round that comes late still does.
        Some(_) if is_beginning() => set(due.min(now)),
        Some(_) if WORD.load(Relaxed) != DONE => set(now),
        Some(delay) if LEFT.load(Relaxed) => set(now + delay),
        _ => WAITING.store(0, Relaxed),
    }
    let is_much = is_beginning() || WORD.load(Relaxed) != DONE && WAITING.load(Relaxed) > WATCHED;
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

/// Empties caches, those of idle threads first, and lets what came back ripen with the rest; `late` as for [`ripen`]. What the
/// search came to.
fn begin_round(all: bool, late: bool) -> Search {
    let mut left = if all { usize::MAX } else { BLOCKS };
    let search = match WORD.load(Relaxed) {
        // The next search tells whether they hold something.
        _ if all && !thread::is_alone() => Search::Again,
        _ if all => Search::Done,
        EMPTYING => Search::Done,
        _ => thread::reclaim(&mut left),
    };
    if search == Search::Unfinished {
        WORD.store(SEARCHING, Relaxed);
        return search;
    }
    if all || WORD.load(Relaxed) != EMPTYING {
        LEFT.store(search == Search::Again, Relaxed);
    }
    empty_caches(&mut left);
    if left == 0 {
        WORD.store(EMPTYING, Relaxed);
        return search;
    }
    let Some(tables) = tables() else { return search };
    let (is_ripe, is_old) = ripen(tables, all || late);
    LEFT.fetch_or(is_old, Relaxed);
    WORD.store(if is_ripe { 0 } else { DONE }, Relaxed);
    search
}

/// Young slices become old ones, and old ones ripe; with `late` both ripe. Whether any are ripe now, and any old.
fn ripen(tables: &Tables, late: bool) -> (bool, bool) {
    let (mut is_ripe, mut left) = (false, false);
    let words = (mapped() / SLICE).div_ceil(64);
    for ((young, old), ripe) in tables.young.iter().zip(tables.old).zip(tables.ripe).take(words) {
        let fresh = if young.load(Relaxed) == 0 { 0 } else { young.swap(0, Relaxed) };
        let before = old.load(Relaxed);
        // What lost blocks again since is young once more.
        let (ready, kept) = if late { (before | fresh, 0) } else { (before & !fresh, fresh) };
        if before != kept {
            old.store(kept, Relaxed);
        }
        // A round that was not ended leaves some.
        let ready = ready | ripe.load(Relaxed);
        if ready != 0 {
            ripe.store(ready, Relaxed);
        }
        is_ripe |= ready != 0;
        left |= kept != 0;
    }
    (is_ripe, left)
}

/// Gives back what is free in ripe slices, until it is `most` bytes.
fn purge_ripe(most: usize) {
    /// Slices that go back under one lock at most: 1 MiB, so that nobody waits for long.
    const RUN: usize = 16;
    /// What a look at a span costs, in bytes that could go back meanwhile.
    const LOOK: usize = 2048;
    let Some(tables) = tables() else { return };
    let words = (mapped() / SLICE).div_ceil(64);
    let mut spent = 0;
    for word in WORD.load(Relaxed)..words {
        let Some(ripe) = tables.ripe.get(word) else { break };
        while ripe.load(Relaxed) != 0 {
            if spent >= most {
                return WORD.store(word, Relaxed);
            }
            let bits = ripe.load(Relaxed);
            let idle = bits & tables.idle.get(word).map_or(0, |idle| idle.load(Relaxed));
            let before = ground::purged_bytes();
            if idle == 0 {
                let low = bits.trailing_zeros();
                ripe.store(bits & (bits - 1), Relaxed);
                purge_span(tables, (word * 64) as u32 + low);
            } else {
                let low = idle.trailing_zeros();
                let room = ((most - spent) / SLICE).clamp(1, RUN);
                let count = (idle >> low).trailing_ones().min(room as u32);
                ripe.store(bits & !(u64::MAX >> (64 - count) << low), Relaxed);
                ground::purge(tables, (word * 64) as u32 + low, count);
            }
            let given = ground::purged_bytes() - before;
            waiting(-(given as isize));
            spent += given.max(LOOK);
        }
    }
    WORD.store(DONE, Relaxed);
}

/// Free pages of a slice that is a span go back. Not where huge pages were asked for, which that would split.
fn purge_span(tables: &Tables, slice: u32) {
    if settings::huge_pages() == Some(true) {
        return;
    }
    let span = tables.span(slice);
    if usize::from(tables.class(slice).load(Relaxed)) != class::NONE {
        SHELVES.purge(slice);
    } else if span.heap.load(Relaxed) != 0 && usize::from(span.class.load(Relaxed)) != class::NONE {
        heap::purge_span(slice, span);
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
        background::forked();
        CLOCK.forget();
    }
    CLOCK.end();
}
