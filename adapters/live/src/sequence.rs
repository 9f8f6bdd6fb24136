//! The sequence lock of a row: one word that is odd while the row's owner writes.
//!
//! Promises upward: what [`read`] returns was copied while no write was under way. The writer never waits; a reader gives up.
//! Asks from below: atomics of [`sync`](crate::sync). One thread writes at a time; the words behind the lock are atomics
//! themselves, which both sides access with relaxed order.

use crate::sync::{AtomicU64, Ordering, fence, seeded, spin_hint};

/// Changes what the lock guards.
pub fn write(sequence: &AtomicU64, change: impl FnOnce()) {
    let before = sequence.load(Ordering::Relaxed);
    // An owner that was killed inside a write left the sequence odd.
    let odd = before.wrapping_add(1) | 1;
    sequence.store(odd, Ordering::Relaxed);
    // A reader that sees a store of `change` also sees the odd sequence, at the latest when it looks again.
    if !seeded("live_begin_unfenced") {
        fence(Ordering::Release);
    }
    change();
    let order = if seeded("live_end_relaxed") { Ordering::Relaxed } else { Ordering::Release };
    sequence.store(odd.wrapping_add(1), order);
}

/// Copies what the lock guards; `None` if each of `tries` attempts met a write.
pub fn read<T>(sequence: &AtomicU64, tries: usize, mut copy: impl FnMut() -> T) -> Option<T> {
    for _ in 0..tries {
        // Relaxed with a fence: the memory may be read-only, where only relaxed loads are defined.
        let before = sequence.load(Ordering::Relaxed);
        // What is loaded below was stored before this sequence, or later.
        if !seeded("live_look_unfenced") {
            fence(Ordering::Acquire);
        }
        if before % 2 == 1 {
            spin_hint();
            continue;
        }
        let copied = copy();
        // If a load of `copy` saw a later write, the load below sees its odd sequence, or a later one.
        if !seeded("live_confirm_unfenced") {
            fence(Ordering::Acquire);
        }
        if sequence.load(Ordering::Relaxed) == before {
            return Some(copied);
        }
    }
    None
}
