//! One word beside a buffer: while a lease is held, the mover does not move the buffer's bytes.
//!
//! Promises upward: while a lease is held the mover does not get the bytes, and while the mover has them no caller gets
//! a lease; what a holder did is seen by the mover, and by the next exclusive holder; what the mover did is seen by
//! every later holder. A lease of a buffer that is here costs one read-modify-write to take and one to give back. No
//! call waits.
//! Asks from below: `sync`, 32 bits that can be compared and swapped.
//!
//! ```text
//!   31       30         29       28      27 26    25 ........ 0
//! [CLOSED][EXCLUSIVE][COUNTED][WANTED][ visits ][ shared leases ]
//! ```
//!
//! - CLOSED: the mover has the bytes, or they are not here.
//! - COUNTED: the bytes are counted in the pinned total that the ledger caps. The first lease of a buffer is refused as
//!   [`LeaseError::Uncounted`]; its taker counts the bytes under the owner's lock, says [`LeaseWord::set_counted`], and
//!   tries again. The mark stays when the last lease goes, so that the next lease is fast; the owner takes it off again
//!   by [`LeaseWord::clear_counted`] when the cap is reached, or by closing.
//! - WANTED: the mover came while a lease was held. The release that makes the word free says so, once.
//! - visits: leases taken since they were last asked for, up to 3. They stand in the same word because there they cost the
//!   lease path nothing: the exchange that counts the lease sets them too. Eviction policies read them when they look for
//!   a victim.
//!
//! Invariants: CLOSED excludes EXCLUSIVE, COUNTED and shared leases; EXCLUSIVE excludes shared leases; a lease is held
//! only while COUNTED.

use crate::error::{Violation, ensure};
use crate::sync::{AtomicU32, Ordering};
use core::fmt;

const CLOSED: u32 = 1 << 31;
const EXCLUSIVE: u32 = 1 << 30;
const COUNTED: u32 = 1 << 29;
const WANTED: u32 = 1 << 28;
/// One visit; two bits of them, as many as S3-FIFO tells apart.
const VISIT: u32 = 1 << 26;
const VISITS: u32 = 3 * VISIT;
/// The most shared leases at a time: 2^26 - 1, which is 67 million.
const SHARED: u32 = VISIT - 1;

/// What taking a lease asks: to see what the mover, or the holder before, left there.
#[cfg(not(terrace_seeded_bug = "lease_acquire_relaxed"))]
const ACQUIRE: Ordering = Ordering::Acquire;
#[cfg(terrace_seeded_bug = "lease_acquire_relaxed")]
const ACQUIRE: Ordering = Ordering::Relaxed;

/// What giving one back gives: everything its holder did.
#[cfg(not(terrace_seeded_bug = "lease_release_relaxed"))]
const RELEASE: Ordering = Ordering::Release;
#[cfg(terrace_seeded_bug = "lease_release_relaxed")]
const RELEASE: Ordering = Ordering::Relaxed;

/// What closing asks: to see what the last holders did.
#[cfg(not(terrace_seeded_bug = "lease_close_relaxed"))]
const CLOSE: Ordering = Ordering::Acquire;
#[cfg(terrace_seeded_bug = "lease_close_relaxed")]
const CLOSE: Ordering = Ordering::Relaxed;

/// What opening gives: the bytes as they were moved.
#[cfg(not(terrace_seeded_bug = "lease_open_relaxed"))]
const OPEN: Ordering = Ordering::Release;
#[cfg(terrace_seeded_bug = "lease_open_relaxed")]
const OPEN: Ordering = Ordering::Relaxed;

/// Why a call was refused. The word is as it was (but for WANTED, see [`LeaseWord::close`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseError {
    /// The bytes are being moved, or are not here.
    Closed,
    /// Another lease is held that excludes this one.
    Busy,
    /// The bytes are not counted as pinned yet: count them, then try again.
    Uncounted,
    /// There are 2^26 - 1 shared leases.
    TooMany,
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the bytes are being moved or are not here: wait until they are, then try again",
            Self::Busy => "somebody holds a lease that excludes this one: wait until it is given back",
            Self::Uncounted => "the bytes are not counted as pinned yet: count them, then try again",
            Self::TooMany => "there are 67108863 shared leases of this buffer: give some back",
        })
    }
}

impl core::error::Error for LeaseError {}

/// The word. See the top of this file.
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
    /// The word of a buffer whose bytes are here, with no lease.
    pub fn open() -> Self {
        Self { word: AtomicU32::new(0) }
    }

    /// The word of a buffer whose bytes are not here yet.
    pub fn closed() -> Self {
        Self { word: AtomicU32::new(CLOSED) }
    }

    /// Takes a shared lease, and leaves a visit.
    ///
    /// # Errors
    /// [`LeaseError::Closed`], [`LeaseError::Busy`] while an exclusive lease is held, [`LeaseError::Uncounted`],
    /// [`LeaseError::TooMany`].
    #[inline]
    pub fn acquire_shared(&self) -> Result<(), LeaseError> {
        self.change(ACQUIRE, |word| {
            // One comparison where all is well: counted, nothing else, and room for one more.
            if word & (CLOSED | EXCLUSIVE | COUNTED) == COUNTED && word & SHARED != SHARED {
                return Ok(visited(word) + 1);
            }
            Err(reason(word, EXCLUSIVE).unwrap_or(LeaseError::TooMany))
        })?;
        Ok(())
    }

    /// Gives a shared lease back.
    ///
    /// `true`: it was the last, and the mover wants the bytes. The caller holds one: a word without shared leases would
    /// be spoiled by this.
    #[inline]
    #[must_use = "`true` asks to tell the mover"]
    pub fn release_shared(&self) -> bool {
        let before = self.word.fetch_sub(1, RELEASE);
        debug_assert!(before & SHARED != 0, "a lease is given back that nobody holds");
        before & (SHARED | WANTED) == 1 | WANTED
    }

    /// Takes the exclusive lease, and leaves a visit.
    ///
    /// # Errors
    /// [`LeaseError::Closed`], [`LeaseError::Busy`] while any lease is held, [`LeaseError::Uncounted`].
    #[inline]
    pub fn acquire_exclusive(&self) -> Result<(), LeaseError> {
        self.change(ACQUIRE, |word| match reason(word, EXCLUSIVE | SHARED) {
            None => Ok(visited(word) | EXCLUSIVE),
            Some(refused) => Err(refused),
        })?;
        Ok(())
    }

    /// Gives the exclusive lease back. `true`: the mover wants the bytes. The caller holds it.
    #[inline]
    #[must_use = "`true` asks to tell the mover"]
    pub fn release_exclusive(&self) -> bool {
        let before = self.word.fetch_and(!EXCLUSIVE, RELEASE);
        debug_assert!(before & EXCLUSIVE != 0, "a lease is given back that nobody holds");
        before & WANTED != 0
    }

    /// Says that the bytes are counted as pinned now.
    ///
    /// `false`: another thread counted them before. Caller must hold the owner's lock.
    ///
    /// # Errors
    /// [`LeaseError::Closed`].
    pub fn set_counted(&self) -> Result<bool, LeaseError> {
        let before = self.change(Ordering::Relaxed, |word| {
            if word & CLOSED != 0 { Err(LeaseError::Closed) } else { Ok(word | COUNTED) }
        })?;
        Ok(before & COUNTED == 0)
    }

    /// Takes the mark of counted bytes off where no lease is held.
    ///
    /// `true`: there was one, take them off the pinned total.
    ///
    /// # Errors
    /// [`LeaseError::Busy`] while a lease is held.
    pub fn clear_counted(&self) -> Result<bool, LeaseError> {
        let before = self.change(Ordering::Relaxed, |word| free(word).map(|()| word & !COUNTED))?;
        Ok(before & COUNTED != 0)
    }

    /// Takes the bytes for the mover. `true`: they were counted as pinned, and are not any more.
    ///
    /// # Errors
    /// [`LeaseError::Busy`] while a lease is held: its last release will say that the mover wants the bytes.
    /// [`LeaseError::Closed`]: they are taken already.
    pub fn close(&self) -> Result<bool, LeaseError> {
        let before = self.change(CLOSE, |word| {
            if word & CLOSED != 0 {
                return Err(LeaseError::Closed);
            }
            #[cfg(not(terrace_seeded_bug = "lease_close_blind"))]
            let busy = free(word).is_err();
            #[cfg(terrace_seeded_bug = "lease_close_blind")]
            let busy = word & EXCLUSIVE != 0;
            #[cfg(not(terrace_seeded_bug = "lease_wanted_lost"))]
            let wanted = word | WANTED;
            #[cfg(terrace_seeded_bug = "lease_wanted_lost")]
            let wanted = word;
            Ok(if busy { wanted } else { word & VISITS | CLOSED })
        })?;
        if free(before).is_err() { Err(LeaseError::Busy) } else { Ok(before & COUNTED != 0) }
    }

    /// Lets leases in again, after [`LeaseWord::close`] or [`LeaseWord::closed`]. For the mover.
    pub fn reopen(&self) {
        self.word.fetch_and(!CLOSED, OPEN);
    }

    /// The mover does not want the bytes any more: releases need not tell it.
    pub fn clear_wanted(&self) {
        self.word.fetch_and(!WANTED, Ordering::Relaxed);
    }

    /// Asks that the mover be told when the last lease is given back.
    ///
    /// `false`: none is held, nothing was asked.
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

    /// Visits since this was called last, up to 3.
    pub fn take_visits(&self) -> u8 {
        if self.word.load(Ordering::Relaxed) & VISITS == 0 {
            return 0;
        }
        let before = self.word.fetch_and(!VISITS, Ordering::Relaxed);
        ((before & VISITS) / VISIT) as u8
    }

    /// Exchanges the word for what `next` makes of it, or leaves it. Returns the word before. A lost exchange is
    /// another's gained one: some thread always gets on.
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
    /// The clause that is broken.
    pub fn check(&self) -> Result<(), Violation> {
        let word = self.word.load(Ordering::Relaxed);
        let shut = word & CLOSED == 0 || word & (EXCLUSIVE | COUNTED | SHARED) == 0;
        ensure(shut, "lease: CLOSED excludes EXCLUSIVE, COUNTED and shared leases", word)?;
        let alone = word & EXCLUSIVE == 0 || word & SHARED == 0;
        ensure(alone, "lease: EXCLUSIVE excludes shared leases", word)?;
        ensure(free(word).is_ok() || word & COUNTED != 0, "lease: a lease is held only while COUNTED", word)
    }
}

/// The word with a visit more, up to 3.
#[inline]
fn visited(word: u32) -> u32 {
    if word & VISITS == VISITS { word } else { word + VISIT }
}

/// Why no lease can be had that is excluded by any of `others`.
#[inline]
fn reason(word: u32, others: u32) -> Option<LeaseError> {
    match word {
        _ if word & CLOSED != 0 => Some(LeaseError::Closed),
        _ if word & others != 0 => Some(LeaseError::Busy),
        _ if word & COUNTED == 0 => Some(LeaseError::Uncounted),
        _ => None,
    }
}

/// LeaseError while a lease is held.
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
