//! Purging: returns pages that have been free for a while to the system.
//!
//! Promises upward: memory that is free for longer than two purge delays, free pages inside spans included, is purged
//! by the next call that takes a slow path, by [`trim`], or by the purge thread. A tick costs O(slices mapped / 64),
//! and the purging itself.
//! Asks from below: the bits of slices, [`page_heap::purge`], the spans; the purge clock; the counts of [`backlog`], to
//! which lower layers add.
//!
//! ```text
//! a free marks its slice     young ──tick──> old ──tick──> due: nothing was freed in it since, so it is purged
//! ```
//!
//! A thread that frees memory sets the deadline if there is none. A tick that comes a whole delay after the deadline
//! purges young and old slices alike: no call has ticked in between, so hardly anything was freed. A tick purges at
//! most 1 MiB, or flushes one or two caches; the next call continues, and if more than 32 MiB wait, the purge thread
//! ([`background`]) does.

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

/// Sets the deadline if there is none; must be called after memory was freed.
pub fn note_free() {
    if !clock().note() {
        return;
    }
    let Some(delay) = settings::purge_delay() else { return };
    set_deadline(now() + delay as usize);
    start_if_wanted();
}

/// Starts the purge thread, once a deadline is set, if the setting or the number of threads requires it.
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

/// Number of threads whose caches may together hold more than 32 MiB, 1 MiB each, and may all become idle before a tick
/// runs.
const MANY_THREADS: usize = 32;

/// Ticks if the deadline has passed; with several threads, sets a deadline if there is none.
///
/// Each of several threads may become idle after this call with blocks in its cache, which only a later tick can free.
#[inline]
pub fn poll() {
    if clock().deadline() != NEVER {
        poll_clock();
    } else if !process::is_single_threaded() {
        note_free();
    }
}

/// If too much memory waits, starts the purge thread, or makes the running thread poll at every call.
pub fn watch_backlog() {
    if backlog::is_pressing() && (settings::background() == Background::Never || !background::start()) {
        thread::detach();
    }
}

#[cold]
fn poll_clock() {
    /// Milliseconds past the deadline after which calls tick too, since the purge thread seems to get no processor
    /// time.
    const LATE: usize = 200;
    start_if_wanted();
    let (now, deadline) = (now(), clock().deadline());
    if now < deadline || purge_clock::thread_works() && now - deadline < LATE {
        return;
    }
    // Without a purge thread a call purges three times as much, so that a thousand calls purge 3 GiB.
    let is_alone = settings::background() == Background::Never || background::is_refused();
    if tick(now, if is_alone { 3 * PIECE } else { PIECE }) && !is_alone {
        background::start();
    }
}

/// Ticks on the purge thread, and purges at most four times as many bytes as a call.
pub fn tick_on_thread(now: usize) {
    tick(now, 4 * PIECE);
}

/// Purges all free memory, also that in idle threads' caches. `true`: some was purged.
pub fn trim() -> bool {
    let _busy = thread::enter_slow_path();
    let before = page_heap::purged_bytes();
    reclaim_all();
    tick(now(), ALL);
    page_heap::purged_bytes() > before
}

/// Repeats a failed attempt to allocate `bytes` bytes, after flushing caches.
///
/// If the attempt fails again and the limit is the reason, purges all free memory first, and empties idle threads'
/// caches if they hold as many bytes as are missing. A request that stays refused costs a few microseconds, plus the
/// purging of memory freed since the last refusal.
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

/// Flushes the running thread's cache and the cache of slices; then the transfer cache and spare caches, while `left`,
/// the number of blocks this call may still free, is not 0.
fn flush_caches(left: &mut usize) {
    if let Some(cache) = thread::current() {
        thread::flush(cache);
    }
    slice_cache::flush();
    transfer_cache::flush(left);
    thread::flush_spare(left);
}

/// The most bytes that one call purges: 256 pages, at half a microsecond each.
const PIECE: usize = 1 << 20;
/// Passed instead of a number of bytes to purge everything at once, young slices too.
const ALL: usize = usize::MAX;
/// Number of blocks after which a tick stops flushing and leaves other caches to the next tick. A block costs at most
/// 0.1 microseconds, if each lies in a different span. A cache is flushed whole, so an idle thread's and the running
/// thread's own may add 3,300 blocks each: 0.9 milliseconds for a tick.
const BLOCKS: usize = 2048;

/// Whether another round of purging must follow this one. Only the thread that ticks writes it.
static ANOTHER_ROUND: AtomicBool = AtomicBool::new(false);

/// Begins a round of purging or continues it, and purges at most `most` bytes, or [`ALL`]. If another thread is
/// ticking, returns at once, but with [`ALL`] waits for that tick's end. Returns whether the purge thread should
/// continue: much is left, or other threads may become idle before the next call.
fn tick(now: usize, most: usize) -> bool {
    while !clock().begin() {
        // During a fork the forking thread itself suspends ticks, and would wait forever.
        if most != ALL || process::is_forking_here() {
            return false;
        }
        os::yield_now();
    }
    let due = clock().take();
    let delay = settings::purge_delay().map(|delay| delay as usize);
    let begins = most == ALL || backlog::cursor() >= SEARCHING;
    // A call that begins a round purges no slices, unless it purges all: beginning is work enough for one call.
    let search =
        if begins { begin_round(most == ALL, now >= due.saturating_add(delay.unwrap_or(0))) } else { Search::Done };
    if most == ALL || !begins {
        purge_due(most);
    }
    if !begins {
        // A thread that freed memory during this round saw the deadline and set none. Its slices are young, or the
        // blocks are still in its cache: another round must purge them.
        ANOTHER_ROUND.store(true, Relaxed);
    }
    match delay {
        // Keeps the old deadline, so that the next tick still finds the round late if it is.
        Some(_) if backlog::is_flushing_caches() => set_deadline(due.min(now)),
        Some(_) if backlog::cursor() != DONE => set_deadline(now),
        Some(delay) if ANOTHER_ROUND.load(Relaxed) => set_deadline(now + delay),
        _ => backlog::reset(),
    }
    let is_much = backlog::is_large();
    clock().end();
    is_much || search == Search::Again
}

/// Steals the blocks of all idle threads: one search records each cache's state, the next empties those that did not
/// change.
fn reclaim_all() {
    let mut all = usize::MAX;
    for _ in 0..2 {
        while thread::reclaim(&mut all) == Search::Unfinished {}
    }
}

/// Flushes caches, those of idle threads first, and then ages the slices (`late` as for [`age`]). Returns the result of
/// the search for idle threads' caches.
fn begin_round(all: bool, late: bool) -> Search {
    let mut left = if all { usize::MAX } else { BLOCKS };
    let search = match backlog::cursor() {
        // No search is made, so other threads' caches may hold blocks: another search must find out.
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

/// Makes old slices due and young slices old; with `late`, makes both due. Returns whether any are due, and whether any
/// are old.
fn age(tables: &Tables, late: bool) -> (bool, bool) {
    let (mut is_due, mut left) = (false, false);
    let words = (mapped() / SLICE).div_ceil(64);
    for ((young, old), due) in tables.young.iter().zip(tables.old).zip(tables.due).take(words) {
        let fresh = if young.load(Relaxed) == 0 { 0 } else { young.swap(0, Relaxed) };
        let before = old.load(Relaxed);
        // An old slice in which blocks were freed since counts as young again: it stays old for another round.
        let (ready, kept) = if late { (before | fresh, 0) } else { (before & !fresh, fresh) };
        if before != kept {
            old.store(kept, Relaxed);
        }
        // An unfinished round leaves due slices behind.
        let ready = ready | due.load(Relaxed);
        if ready != 0 {
            due.store(ready, Relaxed);
        }
        is_due |= ready != 0;
        left |= kept != 0;
    }
    (is_due, left)
}

/// Purges due slices until `most` bytes are purged; records where the next tick continues.
fn purge_due(most: usize) {
    /// The most slices purged while the page heap's lock is held once: 1 MiB, so that other threads wait only briefly.
    const RUN: usize = 16;
    /// The cost of examining a span that has nothing to purge, as the bytes that could be purged in the same time.
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

/// Purges the free pages of a span, unless the settings request huge pages: purging parts would split those.
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

/// Suspends ticks for a fork or a check; waits for the end of a running tick.
pub fn suspend() {
    while !clock().begin() {
        os::yield_now();
    }
}

/// Resumes ticks; in a forked child also records that it has no purge thread and no deadline.
pub fn resume(is_child: bool) {
    if is_child {
        background::forked();
        clock().forget();
    }
    clock().end();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api;

    #[test]
    fn old_slices_become_due_and_what_was_due_stays_so() {
        let _alone = crate::check::ALONE.lock();
        assert!(!api::allocate(100, 1).is_null());
        let tables = tables().expect("a block was allocated");
        suspend();
        let words = [&tables.young[0], &tables.old[0], &tables.due[0]];
        let before = words.map(|word| word.load(Relaxed));
        let aged = |bits: [u64; 3], late| {
            words.iter().zip(bits).for_each(|(word, bits)| word.store(bits, Relaxed));
            age(tables, late);
            words.map(|word| word.load(Relaxed))
        };
        // Slice 0 was freed again, 1 was not, 2 is due and old: it was freed, and freed again, before a round reached it.
        let (young, old, due) = (0b0001, 0b0111, 0b1100);
        assert_eq!(aged([young, old, due], false), [0, 0b0001, 0b1110]);
        assert_eq!(aged([young, old, due], true), [0, 0, 0b1111]);
        words.iter().zip(before).for_each(|(word, bits)| word.store(bits, Relaxed));
        resume(false);
    }
}
