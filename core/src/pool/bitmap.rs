//! Blocks of one size behind a bitmap of atomic words: any number of threads acquire and release them, wait-free.
//!
//! Promises upward: no block has two holders; the next holder sees the writes of the previous one; the release of a block
//! that is not acquired is always refused; every call ends within `words * (bits + 1)` steps whatever the other threads do,
//! and in one step if the hinted word has a free block and no other thread races.
//! Asks from below: `sync`; the caller lends the words.
//!
//! Invariants:
//! - bit `i % BITS` of word `i / BITS` is set iff block `i` is acquired (zeroed words are a pool with every block free)
//! - bits at and past the block count are never set
//! - the last word is no part of the bitmap: it is the hint, the index of the word in which a block was last acquired
//!   or released, at which the next search starts; any value is correct
//!
//! A `Pool` is a `Copy` view: all pools over the same words are one pool.

use crate::error::{AllocError, Cause, FreeError, Violation, ensure};
use crate::sync::{AtomicUsize, Ordering, seeded};

/// Number of blocks in one word.
const BITS: usize = usize::BITS as usize;

/// Acquire: the new holder of a block sees the writes of the previous one.
#[inline(always)]
fn acquire_order() -> Ordering {
    if seeded("pool_acquire_relaxed") { Ordering::Relaxed } else { Ordering::Acquire }
}

/// Release: publishes the holder's writes to the next holder of the block.
#[inline(always)]
fn release_order() -> Ordering {
    if seeded("pool_release_relaxed") { Ordering::Relaxed } else { Ordering::Release }
}

/// A pool of blocks of one size, by index.
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
    /// Number of blocks; at most `(words.len() - 1) * BITS`, and below `u32::MAX`.
    len: u32,
}

impl<'a> Pool<'a> {
    /// Number of words to lend for `blocks` blocks: a bit for each, and a word for the hint.
    pub const fn words(blocks: u32) -> usize {
        (blocks as usize).div_ceil(BITS) + 1
    }

    /// A pool of `blocks` blocks over zeroed words, or over the words of another pool of the same length.
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

    /// Number of blocks in the pool, free or acquired.
    #[allow(clippy::len_without_is_empty, reason = "a pool always has blocks")]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Acquires a free block; `None` if each word was full at some moment of the call.
    #[inline]
    pub fn acquire(&self) -> Option<u32> {
        let count = self.words.len() - 1;
        let hint = self.words[count].load(Ordering::Relaxed) % count;
        let word = (hint..count).chain(0..hint);
        word.into_iter().find_map(|word| self.acquire_in(word).map(|bit| self.taken(hint, word, bit)))
    }

    /// Acquires this block, if it is free.
    ///
    /// For a caller that picks a block by what it knows of it: the oldest, for example.
    pub fn acquire_block(&self, block: u32) -> bool {
        let (word, bit) = (block as usize / BITS, 1 << (block as usize % BITS));
        block < self.len && self.words[word].fetch_or(bit, acquire_order()) & bit == 0
    }

    /// Sets the hint to `word` if it differs; returns the index of the block that the bit stands for.
    #[inline]
    fn taken(&self, hint: usize, word: usize, bit: usize) -> u32 {
        if word != hint {
            self.words[self.words.len() - 1].store(word, Ordering::Relaxed);
        }
        (word * BITS + bit) as u32
    }

    /// Sets the lowest clear bit of a word. After a lost race, tries only bits above the one that another thread set: at
    /// most BITS tries, even if lower bits are cleared meanwhile.
    #[inline]
    fn acquire_in(&self, word: usize) -> Option<usize> {
        let mut taken = self.words[word].load(Ordering::Relaxed) | !self.usable(word);
        while taken != usize::MAX {
            let bit = taken.trailing_ones() as usize;
            let before = self.words[word].fetch_or(1 << bit, acquire_order());
            if before & (1 << bit) == 0 {
                return Some(bit);
            }
            taken |= before;
        }
        None
    }

    /// Mask of the bits of a word that belong to blocks: all, except perhaps in the last word.
    #[inline]
    const fn usable(&self, word: usize) -> usize {
        let here = self.len as usize - word * BITS;
        if here >= BITS { usize::MAX } else { (1 << here) - 1 }
    }

    /// Releases a block.
    ///
    /// # Errors
    /// [`FreeError::Foreign`] past the last block, [`FreeError::Stale`] if the block is not acquired. A bit cannot tell
    /// whether an index comes from an earlier holder or the present one: [`acquire_guard`](Self::acquire_guard)
    /// excludes that mistake, [`Buckets`](crate::pool::Buckets) detect it.
    #[inline]
    pub fn release(&self, block: u32) -> Result<(), FreeError> {
        let address = u64::from(block);
        if block >= self.len {
            return Err(FreeError::Foreign { address });
        }
        let (word, bit) = (block as usize / BITS, block as usize % BITS);
        let before = self.words[word].fetch_and(!(1 << bit), release_order());
        if before & (1 << bit) == 0 {
            return Err(FreeError::Stale { address });
        }
        self.words[self.words.len() - 1].store(word, Ordering::Relaxed);
        Ok(())
    }

    /// Acquires a free block; dropping the guard releases it.
    pub fn acquire_guard(&self) -> Option<PoolGuard<'a>> {
        self.acquire().map(|block| PoolGuard { pool: *self, block })
    }

    /// Whether a block is acquired at this moment.
    pub fn is_out(&self, block: u32) -> bool {
        let word = self.words[block as usize / BITS % self.words.len()].load(Ordering::Relaxed);
        block < self.len && word & (1 << (block as usize % BITS)) != 0
    }

    /// Number of acquired blocks. O(words); exact while no call is under way.
    pub fn in_use(&self) -> u32 {
        let bitmap = &self.words[..self.words.len() - 1];
        bitmap.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum()
    }

    /// Checks that no bit past the last block is set. O(words).
    ///
    /// # Errors
    /// A bit past the last block is set.
    pub fn check(&self) -> Result<(), Violation> {
        let last = self.words.len() - 2;
        let stray = self.words[last].load(Ordering::Relaxed) & !self.usable(last);
        ensure(stray == 0, "pool: bits at and past the block count are never set", last)
    }
}

/// An acquired block of a [`Pool`], released on drop.
#[derive(Debug)]
pub struct PoolGuard<'a> {
    pool: Pool<'a>,
    /// Index of the block, which stays acquired until this guard releases it (or the caller does so by hand).
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
        // The release is refused only if the caller has released the index by hand: the block is then free already.
        let _ = self.pool.release(self.block);
    }
}
