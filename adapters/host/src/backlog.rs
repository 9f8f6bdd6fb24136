//! Counts free memory that waits to be purged, and records how far the current round of purging has come.
//!
//! Promises upward: layers that free memory count it here ([`adjust_purgeable`]), one relaxed addition, and so need not
//! call `purge`, which reads the counts.
//! Asks from below: [`purge_clock`], [`usage`].

use crate::clock::NEVER;
use crate::{purge_clock, usage};
use core::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

/// Bytes freed since the last round of purging, less those that were allocated again.
static PURGEABLE: AtomicIsize = AtomicIsize::new(0);
/// Purgeable bytes that make no backlog: a program that fills and empties a few tables keeps freeing and reusing as
/// much.
const LEAST: isize = 32 << 20;

/// How far the round of purging has come: the index of the word in `due` at which the next tick continues, or one of
/// the three constants below. Only the thread that ticks writes it.
static CURSOR: AtomicUsize = AtomicUsize::new(DONE);
/// The round is done; the next tick begins a new one.
pub const DONE: usize = usize::MAX;
/// The search for idle threads' caches is done, but the transfer cache or a spare cache is not flushed.
pub const FLUSHING: usize = usize::MAX - 1;
/// The search for idle threads' caches is not finished.
pub const SEARCHING: usize = usize::MAX - 2;

/// Adds freed bytes to the purgeable ones. Bytes allocated again count negative, while any are left.
#[inline]
pub fn adjust_purgeable(bytes: isize) {
    if bytes > 0 || PURGEABLE.load(Relaxed) > 0 {
        PURGEABLE.fetch_add(bytes, Relaxed);
    }
}

/// Sets the purgeable bytes to 0: a round has visited all free memory.
pub fn reset() {
    PURGEABLE.store(0, Relaxed);
}

/// Returns how far the round has come.
pub fn cursor() -> usize {
    CURSOR.load(Relaxed)
}

/// Records how far the round has come. Only the thread that ticks may call this.
pub fn set_cursor(cursor: usize) {
    CURSOR.store(cursor, Relaxed);
}

/// Whether a round has begun and must still flush caches before it purges slices.
pub fn is_flushing_caches() -> bool {
    (SEARCHING..DONE).contains(&cursor())
}

/// Whether the last tick left caches to flush, or due slices and more than 32 MiB of purgeable bytes.
pub fn is_large() -> bool {
    is_flushing_caches() || cursor() != DONE && PURGEABLE.load(Relaxed) > LEAST
}

/// Whether so much memory waits to be purged that the next slow call may come too late.
///
/// True for caches still to be flushed, and above 32 MiB plus a quarter of the bytes in use.
pub fn is_pressing() -> bool {
    let is_waiting = || PURGEABLE.load(Relaxed) > LEAST + (usage::used() / 4) as isize;
    purge_clock::clock().deadline() != NEVER && (is_flushing_caches() || is_waiting())
}

/// Whether every call must read the clock, because much memory waits and no purge thread works.
///
/// Any call may be the last for a long time. Reading the clock costs some ten nanoseconds a call, for two purge delays
/// at most.
pub fn is_for_calls() -> bool {
    !purge_clock::thread_works() && is_pressing()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_what_was_freed_and_not_allocated_again() {
        const MIB: isize = 1 << 20;
        let _alone = crate::check::ALONE.lock();
        reset();
        set_cursor(0);
        adjust_purgeable(-LEAST);
        assert!(!is_large(), "nothing was freed");
        adjust_purgeable(LEAST + MIB);
        assert!(is_large());
        adjust_purgeable(-2 * MIB);
        assert!(!is_large());
        set_cursor(DONE);
        reset();
    }
}
