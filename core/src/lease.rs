//! An atomic word for each buffer: a lease keeps the mover, which copies buffers between tiers, away from the buffer's
//! bytes.
//!
//! Promises upward: leases and the mover exclude each other. The mover and the next exclusive holder see the writes of
//! earlier holders; every later holder sees the writes of the mover. Acquiring or releasing a lease of a resident buffer
//! costs one read-modify-write. No call waits.
//! Asks from below: `sync`, a compare-and-swap of 32 bits.
//!
//! ```text
//!   31       30         29       28      27 26    25 ....... 16   15 ........ 0
//! [CLOSED][EXCLUSIVE][COUNTED][WANTED][ visits ][ brief leases ][ shared leases ]
//! ```
//!
//! A lease lasts as long as its holder likes. A brief lease is for a call or a copy of the manager's own, which releases it
//! without waiting for the holder of any other: a caller that is refused because of brief leases alone may wait for their
//! end.
//!
//! - CLOSED: the mover has the bytes, or the buffer is not resident.
//! - COUNTED: the bytes are included in the pinned total, which has a cap. The first lease of a buffer fails with
//!   [`LeaseError::Uncounted`]; the caller then adds the bytes to the total, under the lock of the word's owner, calls
//!   [`LeaseWord::set_counted`], and tries again. The bit stays set after the last release, so that the next lease is
//!   fast; the owner clears it by [`LeaseWord::clear_counted`] when the cap is reached, or by closing.
//! - EXCLUSIVE with a brief lease beside it is that brief lease's.
//! - WANTED: the mover waits for the leases to end, or a caller for the brief ones. The release of the last lease, and of
//!   the last brief one, returns true.
//! - visits: leases since the visits were last taken, up to 3, for eviction policies. They are bits of this word
//!   because the compare-and-swap that acquires a lease then updates them at no cost.
//!
//! Invariants: CLOSED excludes EXCLUSIVE, COUNTED and all leases; EXCLUSIVE excludes shared leases, and more than one brief
//! lease; a lease that is not brief is held only while COUNTED.

mod error;

use crate::error::{Violation, ensure};
use crate::sync::{AtomicU32, Ordering, seeded};
pub use error::LeaseError;

const CLOSED: u32 = 1 << 31;
const EXCLUSIVE: u32 = 1 << 30;
const COUNTED: u32 = 1 << 29;
const WANTED: u32 = 1 << 28;
/// One visit in the counter of visits, which has two bits, as S3-FIFO needs.
const VISIT: u32 = 1 << 26;
const VISITS: u32 = 3 * VISIT;
/// One brief lease in their counter, which has ten bits: more calls of one buffer at once wait for each other.
const BRIEF: u32 = 1 << 16;
const BRIEFS: u32 = VISIT - BRIEF;
/// Mask of the shared leases, and their maximum: 2^16 - 1.
const SHARED: u32 = BRIEF - 1;
/// The bits of all leases.
const LEASES: u32 = EXCLUSIVE | BRIEFS | SHARED;

/// Acquire: a new holder sees the writes of the mover and of the previous holder.
#[inline(always)]
fn acquire_order() -> Ordering {
    if seeded("lease_acquire_relaxed") { Ordering::Relaxed } else { Ordering::Acquire }
}

/// Release: publishes the holder's writes to the mover and to the next holder.
#[inline(always)]
fn release_order() -> Ordering {
    if seeded("lease_release_relaxed") { Ordering::Relaxed } else { Ordering::Release }
}

/// As [`release_order`]; and acquire: a holder that is to notify a caller sees what that caller waits on.
#[inline(always)]
fn brief_order() -> Ordering {
    if seeded("lease_release_relaxed") { Ordering::Relaxed } else { Ordering::AcqRel }
}

/// Acquire: the mover sees the writes of the last holders.
#[inline(always)]
fn close_order() -> Ordering {
    if seeded("lease_close_relaxed") { Ordering::Relaxed } else { Ordering::Acquire }
}

/// Release: publishes the bytes at their new location to later holders.
#[inline(always)]
fn open_order() -> Ordering {
    if seeded("lease_open_relaxed") { Ordering::Relaxed } else { Ordering::Release }
}

/// The lease word of a buffer: its state, its leases and its visits.
///
/// # Example
/// ```
/// use terrace_core::lease::{LeaseWord, LeaseError};
/// let word = LeaseWord::open();
/// assert_eq!(word.acquire_shared(), Err(LeaseError::Uncounted));
/// assert_eq!(word.set_counted(), Ok(true), "we add the bytes to the pinned total");
/// word.acquire_shared()?;
/// assert_eq!(word.close(), Err(LeaseError::Busy), "the mover has to wait");
/// assert!(word.release_shared(), "and is told when it may come again");
/// assert_eq!(word.close(), Ok(true), "we take the bytes off the pinned total");
/// assert_eq!(word.acquire_shared(), Err(LeaseError::Closed));
/// # Ok::<(), LeaseError>(())
/// ```
#[derive(Debug)]
pub struct LeaseWord {
    word: AtomicU32,
}

impl LeaseWord {
    /// The word of a resident buffer, with no lease.
    pub fn open() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// The word of a buffer that is not resident.
    pub fn closed() -> Self {
        Self { word: AtomicU32::new(CLOSED) }
    }

    /// Acquires a shared lease and records a visit.
    ///
    /// # Errors
    /// [`LeaseError::Closed`], [`LeaseError::Busy`] or [`LeaseError::Brief`] while an exclusive lease is held,
    /// [`LeaseError::Uncounted`], [`LeaseError::TooMany`].
    #[inline]
    pub fn acquire_shared(&self) -> Result<(), LeaseError> {
        self.change(acquire_order(), |word| {
            // The common case, in one comparison of the state bits: COUNTED alone, and fewer leases than the maximum.
            if word & (CLOSED | EXCLUSIVE | COUNTED) == COUNTED && word & SHARED != SHARED {
                return Ok(visited(word) + 1);
            }
            Err(reason(word, EXCLUSIVE).unwrap_or(LeaseError::TooMany))
        })?;
        Ok(())
    }

    /// Releases a shared lease. Caller must hold one: otherwise the count underflows and corrupts the word.
    ///
    /// Returns true if it was the last and WANTED is set: the caller must notify the mover.
    #[inline]
    #[must_use = "`true` asks to tell the mover"]
    pub fn release_shared(&self) -> bool {
        let before = self.word.fetch_sub(1, release_order());
        debug_assert!(before & SHARED != 0, "a lease is given back that nobody holds");
        before & (BRIEFS | SHARED | WANTED) == 1 | WANTED
    }

    /// Acquires the exclusive lease and records a visit.
    ///
    /// # Errors
    /// [`LeaseError::Closed`], [`LeaseError::Busy`] or [`LeaseError::Brief`] while any lease is held,
    /// [`LeaseError::Uncounted`].
    #[inline]
    pub fn acquire_exclusive(&self) -> Result<(), LeaseError> {
        self.change(acquire_order(), |word| match reason(word, LEASES) {
            None => Ok(visited(word) | EXCLUSIVE),
            Some(refused) => Err(refused),
        })?;
        Ok(())
    }

    /// Releases the exclusive lease. Caller must hold it.
    ///
    /// Returns true if WANTED is set: the caller must notify the mover.
    #[inline]
    #[must_use = "`true` asks to tell the mover"]
    pub fn release_exclusive(&self) -> bool {
        let before = self.word.fetch_and(!EXCLUSIVE, release_order());
        debug_assert!(before & EXCLUSIVE != 0, "a lease is given back that nobody holds");
        before & WANTED != 0
    }

    /// Acquires a brief lease that others may share, and records a visit; the bytes need not be counted.
    ///
    /// If `yields`, it is refused while others are held that a caller waits for: else readers could keep a writer waiting
    /// without end.
    ///
    /// # Errors
    /// [`LeaseError::Closed`]; [`LeaseError::Busy`] or [`LeaseError::Brief`] while an exclusive lease is held;
    /// [`LeaseError::Brief`] also where it yields, and while 2^10 - 1 brief leases are held.
    #[inline]
    pub fn acquire_brief(&self, yields: bool) -> Result<(), LeaseError> {
        self.change(acquire_order(), |word| match excluded(word, EXCLUSIVE) {
            Some(refused) => Err(refused),
            None if word & BRIEFS == BRIEFS => Err(LeaseError::Brief),
            None if yields && word & WANTED != 0 && word & BRIEFS != 0 => Err(LeaseError::Brief),
            None => Ok(visited(word) + BRIEF),
        })?;
        Ok(())
    }

    /// Acquires a brief lease that excludes all others, and records a visit; the bytes need not be counted.
    ///
    /// # Errors
    /// [`LeaseError::Closed`]; [`LeaseError::Busy`] or [`LeaseError::Brief`] while any lease is held.
    #[inline]
    pub fn acquire_brief_exclusive(&self) -> Result<(), LeaseError> {
        self.change(acquire_order(), |word| match excluded(word, LEASES) {
            Some(refused) => Err(refused),
            None => Ok(visited(word) + (EXCLUSIVE | BRIEF)),
        })?;
        Ok(())
    }

    /// Releases a brief lease, exclusive or not. Caller must hold one: otherwise the word is corrupted.
    ///
    /// Returns true if it was the last brief one and WANTED was set, and clears WANTED: the caller must notify the mover
    /// and those that wait for the end of brief leases.
    #[inline]
    #[must_use = "`true` asks to tell those that wait"]
    pub fn release_brief(&self) -> bool {
        let others = if seeded("lease_brief_lost") { BRIEFS | SHARED } else { BRIEFS };
        let last = |word| word & (others | WANTED) == BRIEF | WANTED;
        let released = self.change(brief_order(), |word| {
            debug_assert!(word & BRIEFS != 0, "a brief lease is given back that nobody holds");
            let left = (word - BRIEF) & !EXCLUSIVE;
            Ok(if last(word) { left & !WANTED } else { left })
        });
        released.is_ok_and(last)
    }

    /// Sets WANTED if brief leases are held, so that the last release returns true; false if none is.
    pub fn want_brief(&self) -> bool {
        let want = |word| if word & BRIEFS == 0 { Err(LeaseError::Closed) } else { Ok(word | WANTED) };
        // Release: the holder that is to notify the caller sees what the caller waits on.
        self.change(Ordering::Release, want).is_ok()
    }

    /// Sets COUNTED; returns false if it was set already.
    ///
    /// Caller must hold the lock under which the pinned total changes.
    ///
    /// # Errors
    /// [`LeaseError::Closed`].
    pub fn set_counted(&self) -> Result<bool, LeaseError> {
        let before = self.change(Ordering::Relaxed, |word| {
            if word & CLOSED != 0 { Err(LeaseError::Closed) } else { Ok(word | COUNTED) }
        })?;
        Ok(before & COUNTED == 0)
    }

    /// Clears COUNTED if no lease is held but brief ones.
    ///
    /// Returns true if it was set: the caller must subtract the bytes from the pinned total.
    ///
    /// # Errors
    /// [`LeaseError::Busy`] while a lease is held that is not brief.
    pub fn clear_counted(&self) -> Result<bool, LeaseError> {
        let before = self.change(Ordering::Relaxed, |word| match free(word) {
            Err(LeaseError::Busy) => Err(LeaseError::Busy),
            _ => Ok(word & !COUNTED),
        })?;
        Ok(before & COUNTED != 0)
    }

    /// Closes the word for the mover, which may then move the bytes.
    ///
    /// Returns true if COUNTED was set: the caller must subtract the bytes from the pinned total.
    ///
    /// # Errors
    /// [`LeaseError::Busy`] or [`LeaseError::Brief`] while a lease is held: sets WANTED, so that the release of the last
    /// lease returns true.
    /// [`LeaseError::Closed`] if the word is closed already.
    pub fn close(&self) -> Result<bool, LeaseError> {
        let before = self.change(close_order(), |word| {
            if word & CLOSED != 0 {
                return Err(LeaseError::Closed);
            }
            let busy = if seeded("lease_close_blind") { word & EXCLUSIVE != 0 } else { free(word).is_err() };
            let wanted = if seeded("lease_wanted_lost") { word } else { word | WANTED };
            Ok(if busy { wanted } else { word & VISITS | CLOSED })
        })?;
        free(before).map(|()| before & COUNTED != 0)
    }

    /// Clears CLOSED, so that leases can be acquired again.
    ///
    /// Caller must own the word by [`LeaseWord::close`] or [`LeaseWord::closed`].
    pub fn reopen(&self) {
        self.word.fetch_and(!CLOSED, open_order());
    }

    /// Sets WANTED if a lease is held, so that the release of the last one returns true.
    ///
    /// Returns false, without effect, if no lease is held.
    pub fn set_wanted(&self) -> bool {
        let want = |word| if free(word).is_ok() { Err(LeaseError::Closed) } else { Ok(word | WANTED) };
        self.change(Ordering::Relaxed, want).is_ok()
    }

    /// Whether the bytes are counted as pinned at this moment.
    pub fn is_counted(&self) -> bool {
        self.word.load(Ordering::Relaxed) & COUNTED != 0
    }

    /// Whether leases are held at this moment, and none is exclusive.
    pub fn is_shared(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        word & LEASES != 0 && word & EXCLUSIVE == 0
    }

    /// Whether the word is closed at this moment.
    pub fn is_closed(&self) -> bool {
        self.word.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Whether a lease that is not brief is held at this moment.
    pub fn is_kept(&self) -> bool {
        free(self.word.load(Ordering::Relaxed)) == Err(LeaseError::Busy)
    }

    /// Whether any lease is held at this moment.
    pub fn is_held(&self) -> bool {
        free(self.word.load(Ordering::Relaxed)).is_err()
    }

    /// Records a visit of a caller that used the bytes without a lease, before the word was opened.
    pub fn record_visit(&self) {
        // The change is always possible.
        let _ = self.change(Ordering::Relaxed, |word| Ok(visited(word)));
    }

    /// Takes the visits since the last call, up to 3, and resets them.
    pub fn take_visits(&self) -> u8 {
        if self.word.load(Ordering::Relaxed) & VISITS == 0 {
            return 0;
        }
        let before = self.word.fetch_and(!VISITS, Ordering::Relaxed);
        ((before & VISITS) / VISIT) as u8
    }

    /// Replaces the word by the result of `next`, unless that is an error; returns the old word. Lock-free: an exchange
    /// fails only spuriously or because that of another thread succeeded.
    #[inline]
    fn change(&self, order: Ordering, next: impl Fn(u32) -> Result<u32, LeaseError>) -> Result<u32, LeaseError> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            match self.word.compare_exchange_weak(word, next(word)?, order, Ordering::Relaxed) {
                Ok(before) => return Ok(before),
                Err(now) => word = now,
            }
        }
    }

    /// Checks the invariants at this moment. O(1).
    ///
    /// # Errors
    /// The invariant that is broken.
    pub fn check(&self) -> Result<(), Violation> {
        let word = self.word.load(Ordering::Relaxed);
        let shut = word & CLOSED == 0 || word & (COUNTED | LEASES) == 0;
        ensure(shut, "lease: CLOSED excludes EXCLUSIVE, COUNTED and all leases", word)?;
        let alone = word & EXCLUSIVE == 0 || word & SHARED == 0 && word & BRIEFS <= BRIEF;
        ensure(alone, "lease: EXCLUSIVE excludes shared leases, and more than one brief lease", word)?;
        let kept = free(word) == Err(LeaseError::Busy);
        ensure(!kept || word & COUNTED != 0, "lease: a lease that is not brief is held only while COUNTED", word)
    }
}

/// The word with one more visit, up to 3.
#[inline]
fn visited(word: u32) -> u32 {
    if word & VISITS == VISITS { word } else { word + VISIT }
}

/// Why a lease that excludes the leases in the mask `others` cannot be acquired; `None` if it can.
#[inline]
fn excluded(word: u32, others: u32) -> Option<LeaseError> {
    match word {
        _ if word & CLOSED != 0 => Some(LeaseError::Closed),
        _ if word & others != 0 => free(word).err(),
        _ => None,
    }
}

/// As [`excluded`], of a lease that needs COUNTED.
#[inline]
fn reason(word: u32, others: u32) -> Option<LeaseError> {
    excluded(word, others).or((word & COUNTED == 0).then_some(LeaseError::Uncounted))
}

/// `Ok` if no lease is held; [`LeaseError::Brief`] if all that are held are brief, else [`LeaseError::Busy`].
#[inline]
fn free(word: u32) -> Result<(), LeaseError> {
    match word & LEASES {
        0 => Ok(()),
        held if held & SHARED == 0 && held & BRIEFS != 0 => Err(LeaseError::Brief),
        _ => Err(LeaseError::Busy),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_lease_after_the_last_is_an_error() {
        let lease = LeaseWord { word: AtomicU32::new(COUNTED | (SHARED - 1)) };
        assert_eq!(lease.acquire_shared(), Ok(()));
        let full = lease.word.load(Ordering::Relaxed);
        assert_eq!((lease.acquire_shared(), lease.word.load(Ordering::Relaxed)), (Err(LeaseError::TooMany), full));
        lease.check().expect("sound");
        assert!(!lease.release_shared());
        assert_eq!(lease.acquire_shared(), Ok(()));
    }
}
