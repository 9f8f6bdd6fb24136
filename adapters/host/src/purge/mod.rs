//! Purging: memory that has been free for a while goes back to the system.
//!
//! Promises upward: memory that is free longer than two delays is purged by the next call that its thread's cache alone cannot
//! serve, by [`trim`], or by the purge thread; free pages inside spans too. A tick costs O(slices mapped / 64) and what it
//! purges.
//! Asks from below: the bits of slices, [`page_heap::purge`], the spans; the purge clock; what lower layers counted in
//! [`backlog`].
//!
//! ```text
//! a free marks its slice     young ──tick──> old ──tick──> due: nothing was freed in it since, so it is purged
//! ```
//!
//! The deadline is set when something becomes free and there is none. A tick that comes a delay too late takes young and old
//! slices alike: no thread freed anything in between. A tick purges 1 MiB at most, or flushes one or two caches; the next call
//! goes on, and where more than 32 MiB wait the purge thread ([`background`]) does.

mod background;

use crate::backlog::{self, DONE, FLUSHING, SEARCHING};
use crate::class::{self, SLICE};
use crate::clock::NEVER;
use crate::page_heap::slice_cache;
use crate::purge_clock::{self, clock, now, set_deadline};
use crate::settings::{self, Background};
use crate::spans::GLOBAL_SPANS;
use crate::tables::{Tables, mapped, tables};
use crate::thread::Search;
use crate::{heaps, os, page_heap, process, thread, transfer_cache, usage};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use background::stop;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Sets the deadline if there is none: the caller has freed something.
pub fn note_free() {
    if !clock().note() {
        return;
    }
    let Some(delay) = settings::purge_delay() else { return };
    set_deadline(now() + delay as usize);
    start_if_wanted();
}

/// Starts the purge thread where the setting, or the number of threads, wants it as soon as there is a deadline.
fn start_if_wanted() {
    let is_wanted = match settings::background() {
        Background::Auto => process::threads() >= MANY_THREADS,
        Background::Never => false,
        Background::Always => true,
    };
    if is_wanted {
        background::start();
    }
}

/// So many threads may keep more than 32 MiB, 1 MiB each, and all of them may be idle before a tick sees it.
const MANY_THREADS: usize = 32;

/// Ticks if it is time.
///
/// Of several threads each may be idle from here on with blocks in its cache, so there is a deadline.
#[inline]
pub fn poll() {
    if clock().deadline() != NEVER {
        poll_clock();
    } else if !process::is_single_threaded() {
        note_free();
    }
}

/// Has a pressing backlog purged: by the purge thread, or by each call of the running thread.
pub fn watch_backlog() {
    if backlog::is_pressing() && (settings::background() == Background::Never || !background::start()) {
        thread::detach();
    }
}

#[cold]
fn poll_clock() {
    /// Milliseconds after the deadline at which the purge thread gets no processor: then calls tick too.
    const LATE: usize = 200;
    start_if_wanted();
    let (now, deadline) = (now(), clock().deadline());
    if now < deadline || purge_clock::thread_works() && now - deadline < LATE {
        return;
    }
    // Without the thread a call purges three times as much: a thousand of them 3 GiB.
    let is_alone = settings::background() == Background::Never || background::is_refused();
    if tick(now, if is_alone { 3 * PIECE } else { PIECE }) && !is_alone {
        background::start();
    }
}

/// Ticks on the purge thread, which purges four times as much as a call.
pub fn tick_on_thread(now: usize) {
    tick(now, 4 * PIECE);
}

/// Purges all free memory, idle threads' caches included. `true` when there was any.
pub fn trim() -> bool {
    let _busy = thread::enter_slow_path();
    let before = page_heap::purged_bytes();
    reclaim_all();
    tick(now(), ALL);
    page_heap::purged_bytes() > before
}

/// Repeats a failed attempt to get `bytes` bytes, after caches are flushed.
///
/// If the limit refused the attempt, free pages inside spans are purged first, and idle threads' caches if they hold as much as
/// is missing. A refusal costs a few microseconds, and what became free since the last one.
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

/// Flushes the running thread's cache and the cache of slices, then the transfer cache and the spare caches, as long as work is
/// `left`.
fn flush_caches(left: &mut usize) {
    if let Some(cache) = thread::current() {
        thread::flush(cache);
    }
    slice_cache::flush();
    transfer_cache::flush(left);
    thread::flush_spare(left);
}

/// Bytes that a call purges at most: 256 pages, at half a microsecond each.
const PIECE: usize = 1 << 20;
/// Everything at once, young slices too.
const ALL: usize = usize::MAX;
/// Blocks that one tick flushes from caches before it leaves the rest to the next: 0.1 microseconds each where every block lies
/// in another span. With two caches of 3,300 blocks on top, an idle thread's and the running thread's own, that is 0.9
/// milliseconds.
const BLOCKS: usize = 2048;

/// Whether another round must follow. Only the thread that ticks writes it.
static ANOTHER_ROUND: AtomicBool = AtomicBool::new(false);

/// Begins a round of purging, or goes on with it: `most` bytes, or [`ALL`]. Where another thread ticks just now, [`ALL`] waits
/// for its end. Returns whether the purge thread should go on: much is left, or other threads may be idle before the next call.
fn tick(now: usize, most: usize) -> bool {
    while !clock().begin() {
        // Before a fork ticks are suspended, and the thread that forks would wait for itself.
        if most != ALL || process::is_forking_here() {
            return false;
        }
        os::yield_now();
    }
    let due = clock().take();
    let delay = settings::purge_delay().map(|delay| delay as usize);
    let begins = most == ALL || backlog::cursor() >= SEARCHING;
    // Beginning is work enough for one call.
    let search =
        if begins { begin_round(most == ALL, now >= due.saturating_add(delay.unwrap_or(0))) } else { Search::Done };
    if most == ALL || !begins {
        purge_due(most);
    }
    if !begins {
        // A thread that freed memory during this round saw the deadline and set none; its slices are young, or its blocks are
        // in its cache. Another round purges them.
        ANOTHER_ROUND.store(true, Relaxed);
    }
    match delay {
        // The old deadline, so that a round that comes late still does.
        Some(_) if backlog::is_flushing_caches() => set_deadline(due.min(now)),
        Some(_) if backlog::cursor() != DONE => set_deadline(now),
        Some(delay) if ANOTHER_ROUND.load(Relaxed) => set_deadline(now + delay),
        _ => backlog::reset(),
    }
    let is_much = backlog::is_large();
    clock().end();
    is_much || search == Search::Again
}

/// Steals what all idle threads hold: one search sees which caches change, another empties those that did not.
fn reclaim_all() {
    let mut all = usize::MAX;
    for _ in 0..2 {
        while thread::reclaim(&mut all) == Search::Unfinished {}
    }
}

/// Flushes caches, those of idle threads first, and ages the slices; `late` as for [`age`]. Returns the result of the search
/// for idle caches.
fn begin_round(all: bool, late: bool) -> Search {
    let mut left = if all { usize::MAX } else { BLOCKS };
    let search = match backlog::cursor() {
        // The next search tells whether they hold something.
        _ if all && !process::is_single_threaded() => Search::Again,
        _ if all => Search::Done,
        FLUSHING => Search::Done,
        _ => thread::reclaim(&mut left),
    };
    if search == Search::Unfinished {
        backlog::set_cursor(SEARCHING);
        return search;
    }
    if all || backlog::cursor() != FLUSHING {
        ANOTHER_ROUND.store(search == Search::Again, Relaxed);
    }
    flush_caches(&mut left);
    if left == 0 {
        backlog::set_cursor(FLUSHING);
        return search;
    }
    let Some(tables) = tables() else { return search };
    let (is_due, is_old) = age(tables, all || late);
    ANOTHER_ROUND.fetch_or(is_old, Relaxed);
    backlog::set_cursor(if is_due { 0 } else { DONE });
    search
}

/// Makes young slices old and old ones due; with `late` both due. Returns whether any are due now, and whether any are old.
fn age(tables: &Tables, late: bool) -> (bool, bool) {
    let (mut is_due, mut left) = (false, false);
    let words = (mapped() / SLICE).div_ceil(64);
    for ((young, old), due) in tables.young.iter().zip(tables.old).zip(tables.due).take(words) {
        let fresh = if young.load(Relaxed) == 0 { 0 } else { young.swap(0, Relaxed) };
        let before = old.load(Relaxed);
        // Slices in which blocks were freed since are young once more.
        let (ready, kept) = if late { (before | fresh, 0) } else { (before & !fresh, fresh) };
        if before != kept {
            old.store(kept, Relaxed);
        }
        // A round that was not finished leaves some.
        let ready = ready | due.load(Relaxed);
        if ready != 0 {
            due.store(ready, Relaxed);
        }
        is_due |= ready != 0;
        left |= kept != 0;
    }
    (is_due, left)
}

/// Purges due slices, until it is `most` bytes.
fn purge_due(most: usize) {
    /// Slices that are purged under one lock at most: 1 MiB, so that no thread waits long for it.
    const RUN: usize = 16;
    /// What a look at a span costs, in bytes that could be purged meanwhile.
    const LOOK: usize = 2048;
    let Some(tables) = tables() else { return };
    let words = (mapped() / SLICE).div_ceil(64);
    let mut spent = 0;
    for word in backlog::cursor()..words {
        let Some(due) = tables.due.get(word) else { break };
        while due.load(Relaxed) != 0 {
            if spent >= most {
                return backlog::set_cursor(word);
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
            backlog::adjust_purgeable(-(given as isize));
            spent += given.max(LOOK);
        }
    }
    backlog::set_cursor(DONE);
}

/// Purges the free pages of a span. Not where huge pages were requested, which that would split.
fn purge_span(tables: &Tables, slice: u32) {
    if settings::huge_pages() == Some(true) {
        return;
    }
    let span = tables.span(slice);
    if usize::from(tables.class(slice).load(Relaxed)) != class::NONE {
        GLOBAL_SPANS.purge(slice);
    } else if span.heap.load(Relaxed) != 0 && usize::from(span.class.load(Relaxed)) != class::NONE {
        heaps::purge_span(slice, span);
    }
}

/// Suspends ticks, after the one under way: before a fork or a check.
pub fn suspend() {
    while !clock().begin() {
        os::yield_now();
    }
}

/// Resumes ticks; records in a forked child that the purge thread is gone.
pub fn resume(is_child: bool) {
    if is_child {
        background::forked();
        clock().forget();
    }
    clock().end();
}
