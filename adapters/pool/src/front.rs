//! The slots that one thread keeps to itself: a few words that their owner uses without a fence, a lock or an atomic
//! read-modify-write, and that other threads can still take from.
//!
//! Promises upward: no slot is taken twice; the owner never waits, and nor does a thief: the owner finds its front closed
//! while a thief works in it, and a thief passes over a front whose owner is inside.
//! Asks from below: [`barrier`], whose light side the owner executes at each call; that only the owner (a thread with a
//! number of its own, `thread_number`) calls [`Front::push`] and [`Front::pop`].
//!
//! ```text
//! owner:  inside = 1 | light barrier | closed? else change the words | inside = 0
//! thief:  closed = 1 | heavy barrier | inside? else change the words | closed = 0
//! ```
//!
//! Of the two that write and then look, at least one sees the other (Dekker's algorithm), and leaves.
//!
//! Invariants:
//! - a word of `slots` is 0, or a slot that this front holds plus 1
//! - only the owner while `inside`, or the thief that closed the front and then saw no owner inside, reads or writes them
//!
//! The owner tries the words in order. So its next get mostly reads one word that its last return wrote, and nothing has to be
//! known of the others: a length would be one more word that each call waits for.

use crate::barrier;
use crate::sync::{AtomicU32, AtomicU64, Ordering, seeded};

/// Most slots that a front holds.
///
/// With their stamps and the other words they take 8 + 8 · 4 + 8 · 8 + 2 · 8 = 120 bytes of two cache lines.
pub const DEPTH: usize = 8;

/// The front of one thread in one pool.
///
/// Aligned to two cache lines, so that no two threads write the same line.
#[repr(align(128))]
#[derive(Debug)]
pub struct Front {
    /// 1 while the owner is inside.
    inside: AtomicU32,
    /// 1 while a thief is at work.
    closed: AtomicU32,
    slots: [AtomicU32; DEPTH],
    /// When each slot was put: `stamps[i]` belongs to `slots[i]`.
    stamps: [AtomicU64; DEPTH],
    /// Slots that the owner took from here. Only the owner writes this and `clock`.
    pub hits: AtomicU64,
    /// The stamp of the object that the owner returned last, here or elsewhere.
    pub clock: AtomicU64,
}

/// Release: a thief that finds the owner outside sees what the owner did inside.
#[inline(always)]
fn leave_order() -> Ordering {
    if seeded("front_leave_relaxed") { Ordering::Relaxed } else { Ordering::Release }
}

/// Release: the owner that finds its front open again sees what the thief did.
#[inline(always)]
fn open_order() -> Ordering {
    if seeded("front_open_relaxed") { Ordering::Relaxed } else { Ordering::Release }
}

impl Front {
    /// An empty front.
    pub fn new() -> Self {
        let word = || AtomicU32::new(0);
        let count = || AtomicU64::new(0);
        let (slots, stamps) = ([(); DEPTH].map(|()| word()), [(); DEPTH].map(|()| count()));
        Self { inside: word(), closed: word(), slots, stamps, hits: count(), clock: count() }
    }

    /// Adds one to a counter that only the calling thread writes.
    #[inline(always)]
    pub fn count(counter: &AtomicU64) {
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Runs `act` if no thief is at work. Only the owner may call this.
    #[inline(always)]
    fn enter<R>(&self, act: impl FnOnce() -> Option<R>) -> Option<R> {
        self.inside.store(1, Ordering::Relaxed);
        if !seeded("front_enter_unfenced") {
            barrier::light();
        }
        let result = match self.closed.load(Ordering::Acquire) {
            0 => act(),
            _ => None,
        };
        self.inside.store(0, leave_order());
        result
    }

    /// Takes a slot, mostly the one that was put last. Only the owner may call this.
    ///
    /// `None`: no slot is here, or a thief is at work.
    #[inline(always)]
    pub fn pop(&self) -> Option<u32> {
        self.enter(|| {
            self.slots.iter().find_map(|word| {
                let slot = word.load(Ordering::Relaxed).checked_sub(1)?;
                word.store(0, Ordering::Relaxed);
                Some(slot)
            })
        })
    }

    /// Puts a slot into one of the first `most` words. Only the owner may call this.
    ///
    /// Returns false, without effect, if none of them is free, or a thief is at work.
    #[inline(always)]
    pub fn push(&self, slot: u32, stamp: u64, most: u32) -> bool {
        let put = self.enter(|| {
            let mut words = self.slots.iter().zip(&self.stamps).take(most as usize);
            let (word, at) = words.find(|(word, _)| word.load(Ordering::Relaxed) == 0)?;
            word.store(slot + 1, Ordering::Relaxed);
            at.store(stamp, Ordering::Relaxed);
            Some(())
        });
        put.is_some()
    }

    /// Number of slots here. May be out of date when it is read.
    pub fn len(&self) -> u32 {
        self.slots.iter().map(|word| u32::from(word.load(Ordering::Relaxed) != 0)).sum()
    }

    /// Closes the front to its owner, the first step of a thief; `None`: another thief is at work.
    ///
    /// Between this and [`ClosedFront::take`] the caller must call [`barrier::heavy`], once for all fronts that it closed.
    pub fn close(&self) -> Option<ClosedFront<'_>> {
        let closed = self.closed.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed);
        closed.ok().map(|_| ClosedFront(self))
    }
}

/// A front that is closed to its owner until this is dropped.
#[derive(Debug)]
pub struct ClosedFront<'a>(&'a Front);

impl ClosedFront<'_> {
    /// Takes the slots for which `take`, called with stamp and slot, returns true; the oldest first.
    ///
    /// Without effect if the owner is inside.
    ///
    /// The caller must have called [`barrier::heavy`] with success since it closed the front.
    pub fn take(&self, mut take: impl FnMut(u64, u32) -> bool) {
        if self.0.inside.load(Ordering::Acquire) != 0 {
            return;
        }
        let words = self.0.slots.iter().zip(&self.0.stamps);
        let held = words.filter_map(|(word, stamp)| {
            let slot = word.load(Ordering::Relaxed).checked_sub(1)?;
            Some((stamp.load(Ordering::Relaxed), slot, word))
        });
        let mut held: Vec<_> = held.collect();
        held.sort_unstable_by_key(|&(stamp, slot, _)| (stamp, slot));
        for (stamp, slot, word) in held {
            if take(stamp, slot) {
                word.store(0, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for ClosedFront<'_> {
    fn drop(&mut self) {
        self.0.closed.store(0, open_order());
    }
}
