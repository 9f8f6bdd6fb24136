//! An atomic word for each buffer: a lease keeps the mover, which copies buffers between tiers, away from the buffer's
//! bytes.
//!
//! Promises upward: leases and the mover exclude each other. The mover and the next exclusive holder see the writes of
//! earlier holders; every later holder sees the writes of the mover. Acquiring or releasing a lease of a resident buffer
//! costs one read-modify-write. No call waits.
//! Asks from below: `sync`, a compare-and-swap of 32 bits.
//!
//! ```text
//!   31       30         29       28      27 26    25 ........ 0
//! [CLOSED][EXCLUSIVE][COUNTED][WANTED][ visits ][ shared leases ]
//! ```
//!
//! - CLOSED: the mover has the bytes, or the buffer is not resident.
//! - COUNTED: the bytes are included in the pinned total, which has a cap. The first lease of a buffer fails with
//!   [`LeaseError::Uncounted`]; the caller then adds the bytes to the total, under the lock of the word's owner, calls
//!   [`LeaseWord::set_counted`], and tries again. The bit stays set after the last release, so that the next lease is
//!   fast; the owner clears it by [`LeaseWord::clear_counted`] when the cap is reached, or by closing.
//! - WANTED: the mover waits for the leases to end. The release of the last lease returns true.
//! - visits: leases since the visits were last taken, up to 3, for eviction policies. They are bits of this word
//!   because the compare-and-swap that acquires a lease then updates them at no cost.
//!
//! Invariants: CLOSED excludes EXCLUSIVE, COUNTED and shared leases; EXCLUSIVE excludes shared leases; a lease is held
//! only while COUNTED.

use crate::error::{Violation, ensure};
use crate::sync::{AtomicU32, Ordering, seeded};
use core::fmt;

const CLOSED: u32 = 1 << 31;
const EXCLUSIVE: u32 = 1 << 30;
const COUNTED: u32 = 1 << 29;
const WANTED: u32 = 1 << 28;
/// One visit in the counter of visits, which has two bits, as S3-FIFO needs.
const VISIT: u32 = 1 << 26;
const VISITS: u32 = 3 * VISIT;
/// Mask of the shared leases, and their maximum: 2^26 - 1, which is 67 million.
const SHARED: u32 = VISIT - 1;

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

/// Why a call failed. The word is unchanged (but for WANTED, see [`LeaseWord::close`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseError {
    /// The bytes are being moved, or the buffer is not resident.
    Closed,
    /// Another holder has a lease that excludes the call.
    Busy,
    /// The bytes are not counted as pinned yet: count them, then try again.
    Uncounted,
    /// There are 2^26 - 1 shared leases already.
    TooMany,
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the bytes are being moved or are not here: wait until they are, then try again",
            Self::Busy => "another holder has a lease that excludes this one: wait until it is released",
            Self::Uncounted => "the bytes are not counted as pinned yet: count them, then try again",
            Self::TooMany => "there are 67108863 shared leases of this buffer: give some back",
        })
    }
}

impl core::error::Error for LeaseError {}

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
    /// [`LeaseError::Closed`], [`LeaseError::Busy`] while an exclusive lease is held, [`LeaseError::Uncounted`],
    /// [`LeaseError::TooMany`].
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
        before & (SHARED | WANTED) == 1 | WANTED
    }

    /// Acquires the exclusive lease and records a visit.
    ///
    /// # Errors
    /// [`LeaseError::Closed`], [`LeaseError::Busy`] while any lease is held, [`LeaseError::Uncounted`].
    #[inline]
    pub fn acquire_exclusive(&self) -> Result<(), LeaseError> {
        self.change(acquire_order(), |word| match reason(word, EXCLUSIVE | SHARED) {
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

    /// Clears COUNTED if no lease is held.
    ///
    /// Returns true if it was set: the caller must subtract the bytes from the pinned total.
    ///
    /// # Errors
    /// [`LeaseError::Busy`] while a lease is held.
    pub fn clear_counted(&self) -> Result<bool, LeaseError> {
        let before = self.change(Ordering::Relaxed, |word| free(word).map(|()| word & !COUNTED))?;
        Ok(before & COUNTED != 0)
    }

    /// Closes the word for the mover, which may then move the bytes.
    ///
    /// Returns true if COUNTED was set: the caller must subtract the bytes from the pinned total.
    ///
    /// # Errors
    /// [`LeaseError::Busy`] while a lease is held: sets WANTED, so that the release of the last lease returns true.
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
        if free(before).is_err() { Err(LeaseError::Busy) } else { Ok(before & COUNTED != 0) }
    }

    /// Clears CLOSED, so that leases can be acquired again.
    ///
    /// Caller must own the word by [`LeaseWord::close`] or [`LeaseWord::closed`].
    pub fn reopen(&self) {
        self.word.fetch_and(!CLOSED, open_order());
    }

    /// Clears WANTED: the mover does not wait any more.
    pub fn clear_wanted(&self) {
        self.word.fetch_and(!WANTED, Ordering::Relaxed);
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

    /// Whether a shared lease is held at this moment.
    pub fn is_shared(&self) -> bool {
        self.word.load(Ordering::Relaxed) & SHARED != 0
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
        let shut = word & CLOSED == 0 || word & (EXCLUSIVE | COUNTED | SHARED) == 0;
        ensure(shut, "lease: CLOSED excludes EXCLUSIVE, COUNTED and shared leases", word)?;
        let alone = word & EXCLUSIVE == 0 || word & SHARED == 0;
        ensure(alone, "lease: EXCLUSIVE excludes shared leases", word)?;
        ensure(free(word).is_ok() || word & COUNTED != 0, "lease: a lease is held only while COUNTED", word)
    }
}

/// The word with one more visit, up to 3.
#[inline]
fn visited(word: u32) -> u32 {
    if word & VISITS == VISITS { word } else { word + VISIT }
}

/// Why a lease that excludes the leases in the mask `others` cannot be acquired; `None` if it can.
#[inline]
fn reason(word: u32, others: u32) -> Option<LeaseError> {
    match word {
        _ if word & CLOSED != 0 => Some(LeaseError::Closed),
        _ if word & others != 0 => Some(LeaseError::Busy),
        _ if word & COUNTED == 0 => Some(LeaseError::Uncounted),
        _ => None,
    }
}

/// `Ok` if no lease is held, else [`LeaseError::Busy`].
fn free(word: u32) -> Result<(), LeaseError> {
    if word & (EXCLUSIVE | SHARED) == 0 { Ok(()) } else { Err(LeaseError::Busy) }
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
