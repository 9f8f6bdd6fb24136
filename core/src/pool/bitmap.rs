//! Equal blocks behind a bitmap of atomic words: any number of threads acquire and release, none ever waits.
//!
//! Promises upward: no block is out twice; what one holder wrote before releasing is visible to the next holder; a
//! release of a block that is not out is refused exactly; every call ends within `words * (bits + 1)` steps, whatever
//! the other threads do (wait-free), and within one step when the hinted word has room.
//! Asks from below: `sync`; the caller lends the words.
//!
//! Invariants:
//! - bit `i % BITS` of word `i / BITS` is set iff block `i` is out (so zeroed words are a pool with every block free)
//! - bits at and past the block count are never set
//! - the last word lent is no bitmap: it is the hint, the word where the latest release or acquire happened. It only
//!   says where to look first; any value is correct.
//!
//! The pool itself is a view (two references' worth of data, `Copy`): pools made over the same words are one pool.

use crate::error::{AllocError, Cause, FreeError, Violation, ensure};
use crate::sync::{AtomicUsize, Ordering};

/// Blocks in one word.
const BITS: usize = usize::BITS as usize;

/// What an acquire asks of memory: to see everything the previous holder of the block did.
#[cfg(not(terrace_seeded_bug = "pool_acquire_relaxed"))]
const ACQUIRE: Ordering = Ordering::Acquire;
#[cfg(terrace_seeded_bug = "pool_acquire_relaxed")]
const ACQUIRE: Ordering = Ordering::Relaxed;

/// What a release gives: everything its holder did, to the thread that acquires the block next.
#[cfg(not(terrace_seeded_bug = "pool_release_relaxed"))]
const RELEASE: Ordering = Ordering::Release;
#[cfg(terrace_seeded_bug = "pool_release_relaxed")]
const RELEASE: Ordering = Ordering::Relaxed;

/// A pool of `len` equal blocks, named by index.
///
/// # Example
/// ```
/// use terrace_core::pool::Pool;
/// use terrace_core::sync::AtomicUsize;
/// static WORDS: [AtomicUsize; Pool::words(100)] = [const { AtomicUsize::new(0) }; Pool::words(100)];
/// let pool = Pool::new(&WORDS, 100)?;
/// let block = pool.acquire().expect("100 are free");
/// assert_eq!(pool.in_use(), 1);
/// pool.release(block)?;
/// assert!(pool.release(block).is_err(), "a double release is refused");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Pool<'a> {
    /// The bitmap, and after it the hint.
    words: &'a [AtomicUsize],
    /// Blocks; at most `(words.len() - 1) * BITS`, and below `u32::MAX`.
    len: u32,
}

impl<'a> Pool<'a> {
    /// Words to lend for `blocks` blocks: one bit each, and one word for the hint.
    pub const fn words(blocks: u32) -> usize {
        (blocks as usize).div_ceil(BITS) + 1
    }

    /// A pool of `blocks` blocks over zeroed words (or over words another pool of the same length uses).
    ///
    /// # Errors
    /// [`Cause::OutOfSlots`] with fewer than [`Pool::words`] words; [`Cause::BadRequest`] without blocks.
    pub const fn new(words: &'a [AtomicUsize], blocks: u32) -> Result<Self, AllocError> {
        if blocks == 0 {
            return Err(AllocError::new(Cause::BadRequest, 0));
        }
        if words.len() < Self::words(blocks) {
            return Err(AllocError::new(Cause::OutOfSlots, blocks as u64));
        }
        let (words, _) = words.split_at(Self::words(blocks));
        Ok(Self { words, len: blocks })
    }

    /// Blocks in the pool, free or out.
    #[allow(clippy::len_without_is_empty, reason = "a pool always has blocks")]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Takes a free block. `None` means: each word was seen full at some moment of the call.
    #[inline]
    pub fn acquire(&self) -> Option<u32> {
        let count = self.words.len() - 1;
        let hint = self.words[count].load(Ordering::Relaxed) % count;
        let word = (hint..count).chain(0..hint);
        word.into_iter().find_map(|word| self.acquire_in(word).map(|bit| self.taken(hint, word, bit)))
    }

    /// Moves the hint to where a block was found, and names the block.
    #[inline]
    fn taken(&self, hint: usize, word: usize, bit: usize) -> u32 {
        if word != hint {
            self.words[self.words.len() - 1].store(word, Ordering::Relaxed);
        }
        (word * BITS + bit) as u32
    }

    /// Sets the lowest clear bit of a word. Each lost race costs a bit that another thread took, so a word is tried at
    /// most BITS times; bits freed meanwhile below the one lost are not looked at again, which bounds the loop.
    #[inline]
    fn acquire_in(&self, word: usize) -> Option<usize> {
        let mut taken = self.words[word].load(Ordering::Relaxed) | !self.usable(word);
        while taken != usize::MAX {
            let bit = taken.trailing_ones() as usize;
            let before = self.words[word].fetch_or(1 << bit, ACQUIRE);
            if before & (1 << bit) == 0 {
                return Some(bit);
            }
            taken |= before;
        }
        None
    }

    /// The bits of a word that stand for blocks: all, but for the last word.
    #[inline]
    const fn usable(&self, word: usize) -> usize {
        let here = self.len as usize - word * BITS;
        if here >= BITS { usize::MAX } else { (1 << here) - 1 }
    }

    /// Gives a block back.
    ///
    /// # Errors
    /// [`FreeError::Foreign`] past the last block, [`FreeError::Stale`] when it is not out. A name kept from before
    /// the block was handed out again cannot be told from the new one by a bit: [`acquire_guard`](Self::acquire_guard)
    /// makes such names impossible, [`Buckets`](crate::pool::Buckets) detects them.
    #[inline]
    pub fn release(&self, block: u32) -> Result<(), FreeError> {
        let address = u64::from(block);
        if block >= self.len {
            return Err(FreeError::Foreign { address });
        }
        let (word, bit) = (block as usize / BITS, block as usize % BITS);
        let before = self.words[word].fetch_and(!(1 << bit), RELEASE);
        if before & (1 << bit) == 0 {
            return Err(FreeError::Stale { address });
        }
        self.words[self.words.len() - 1].store(word, Ordering::Relaxed);
        Ok(())
    }

    /// Takes a free block that is released when the guard is dropped.
    pub fn acquire_guard(&self) -> Option<PoolGuard<'a>> {
        self.acquire().map(|block| PoolGuard { pool: *self, block })
    }

    /// Whether a block is out now.
    pub fn is_out(&self, block: u32) -> bool {
        let word = self.words[block as usize / BITS % self.words.len()].load(Ordering::Relaxed);
        block < self.len && word & (1 << (block as usize % BITS)) != 0
    }

    /// Blocks out now. O(words); exact at rest.
    pub fn in_use(&self) -> u32 {
        let bitmap = &self.words[..self.words.len() - 1];
        bitmap.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum()
    }

    /// Checks the invariant a bitmap can break. O(words).
    ///
    /// # Errors
    /// A bit past the last block is set.
    pub fn check(&self) -> Result<(), Violation> {
        let last = self.words.len() - 2;
        let stray = self.words[last].load(Ordering::Relaxed) & !self.usable(last);
        ensure(stray == 0, "pool: bits at and past the block count are never set", last)
    }
}

/// A block that goes back when dropped.
#[derive(Debug)]
pub struct PoolGuard<'a> {
    pool: Pool<'a>,
    /// Acquired, and released by this guard alone (unless its index was copied out and released by hand).
    block: u32,
}

impl PoolGuard<'_> {
    /// The block's index.
    pub fn index(&self) -> u32 {
        self.block
    }
}

impl Drop for PoolGuard<'_> {
    fn drop(&mut self) {
        // Refused only if the caller released the index by hand; the block is then free already.
        let _ = self.pool.release(self.block);
    }
}
