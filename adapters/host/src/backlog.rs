//! How much free memory waits to be purged, and how far the current round of purging is.
//!
//! Promises upward: the layers that free count here ([`adjust_purgeable`]) and never call `purge`, which reads the counts; a
//! count is one relaxed addition.
//! Asks from below: [`purge_clock`], [`usage`].

use crate::clock::NEVER;
use crate::{purge_clock, usage};
use core::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

/// Bytes freed since the last round, less those that were allocated again.
static PURGEABLE: AtomicIsize = AtomicIsize::new(0);
/// Programs that fill and empty a few tables free and allocate so much all the time: less is no backlog.
const LEAST: isize = 32 << 20;

/// Where a round of purging stands: the word of due slices at which the next tick goes on, or one of the three below. Written
/// by the thread that ticks only.
static CURSOR: AtomicUsize = AtomicUsize::new(DONE);
/// The round is done; the next tick begins another.
pub const DONE: usize = usize::MAX;
/// Idle threads' caches are searched; the others wait to be flushed.
pub const FLUSHING: usize = usize::MAX - 1;
/// The search for idle threads' caches goes on.
pub const SEARCHING: usize = usize::MAX - 2;

/// Adds freed bytes to what can be purged; negative on reuse, which counts only while something waits.
#[inline]
pub fn adjust_purgeable(bytes: isize) {
    if bytes > 0 || PURGEABLE.load(Relaxed) > 0 {
        PURGEABLE.fetch_add(bytes, Relaxed);
    }
}

/// Counts nothing as purgeable any more: a round has looked at all of it.
pub fn reset() {
    PURGEABLE.store(0, Relaxed);
}

/// The position of the round.
pub fn cursor() -> usize {
    CURSOR.load(Relaxed)
}

/// Moves the round on. Only the thread that ticks may call it.
pub fn set_cursor(cursor: usize) {
    CURSOR.store(cursor, Relaxed);
}

/// Whether a round has begun, and caches are left to be flushed before it goes on with slices.
pub fn is_flushing_caches() -> bool {
    (SEARCHING..DONE).contains(&cursor())
}

/// Whether a tick leaves more than 32 MiB, or caches, to the next.
pub fn is_large() -> bool {
    is_flushing_caches() || cursor() != DONE && PURGEABLE.load(Relaxed) > LEAST
}

/// Whether a deadline waits for so much that purging must not depend on rare calls.
///
/// So much is 32 MiB and a quarter of what is in use, or caches of other threads.
pub fn is_pressing() -> bool {
    let is_waiting = || PURGEABLE.load(Relaxed) > LEAST + (usage::used() / 4) as isize;
    purge_clock::clock().deadline() != NEVER && (is_flushing_caches() || is_waiting())
}

/// Whether every call must look at the clock, because no purge thread works.
///
/// The call may be the last for a long time. That costs some ten nanoseconds a call, for two delays at most.
pub fn is_for_calls() -> bool {
    !purge_clock::thread_works() && is_pressing()
}
