//! A bitmap of the free blocks of a span of memory, for one thread at a time, which takes blocks in batches.
//!
//! Promises upward: no block is taken twice; the release of a block that is not taken is always refused; taking `n` blocks
//! costs O(words searched + n), and writes only the bitmap, never the blocks.
//! Asks from below: the caller lends the words, and must hold a lock where threads share them.
//!
//! A [`Pool`](super::Pool) needs no lock where threads share it, but an atomic operation for each block.
//!
//! Invariant: bit `i % 64` of word `i / 64` is set iff block `i` is free; bits at and past the block count are clear.

use crate::error::{FreeError, Violation, ensure};

/// Number of blocks in one word.
const BITS: u32 = u64::BITS;

/// The free blocks of a span of memory: a view over lent words.
///
/// # Example
/// ```
/// use terrace_core::pool::Slab;
/// let mut words = [0; Slab::words(100)];
/// let mut slab = Slab::new(&mut words, 100);
/// slab.release_all();
/// let mut taken = Vec::new();
/// assert_eq!(slab.take(0, 3, |block| taken.push(block)), (3, 0));
/// assert_eq!(taken, [0, 1, 2]);
/// slab.release(1)?;
/// assert!(slab.release(1).is_err(), "a double release is refused");
/// # Ok::<(), terrace_core::FreeError>(())
/// ```
#[derive(Debug)]
pub struct Slab<'a> {
    words: &'a mut [u64],
    len: u32,
}

impl<'a> Slab<'a> {
    /// Number of words to lend for `blocks` blocks.
    pub const fn words(blocks: u32) -> usize {
        blocks.div_ceil(BITS) as usize
    }

    /// A view of a slab's words: zeroed words are a slab whose blocks are all taken.
    ///
    /// With too few words for `blocks` blocks, the slab has as many blocks as the words have bits.
    pub fn new(words: &'a mut [u64], blocks: u32) -> Self {
        let used = Self::words(blocks).min(words.len());
        let bits = used as u64 * u64::from(BITS);
        Self { words: &mut words[..used], len: u64::from(blocks).min(bits) as u32 }
    }

    /// Makes every block free.
    pub fn release_all(&mut self) {
        self.words.fill(u64::MAX);
        let stray = self.len.wrapping_neg() % BITS;
        if let Some(last) = self.words.last_mut() {
            *last >>= stray;
        }
    }

    /// Takes at most `most` free blocks, the lowest first, from word `from` on, and passes each to `each`.
    ///
    /// Returns how many it took, and the word to continue from: words from `from` up to there have no free block left.
    #[inline]
    pub fn take(&mut self, from: u32, most: u32, mut each: impl FnMut(u32)) -> (u32, u32) {
        let mut left = most;
        let mut at = from as usize;
        while let Some(word) = self.words.get_mut(at) {
            while *word != 0 && left > 0 {
                each(at as u32 * BITS + word.trailing_zeros());
                *word &= *word - 1;
                left -= 1;
            }
            if *word != 0 {
                break;
            }
            at += 1;
        }
        (most - left, at as u32)
    }

    /// Releases a block.
    ///
    /// # Errors
    /// [`FreeError::Foreign`] past the last block, [`FreeError::Stale`] if the block is free already.
    #[inline]
    pub fn release(&mut self, block: u32) -> Result<(), FreeError> {
        let address = u64::from(block);
        let bit = 1 << (block % BITS);
        match self.words.get_mut((block / BITS) as usize).filter(|_| block < self.len) {
            None => Err(FreeError::Foreign { address }),
            Some(word) if *word & bit != 0 => Err(FreeError::Stale { address }),
            Some(word) => {
                *word |= bit;
                Ok(())
            }
        }
    }

    /// Whether every block from `first` to before `end` is free (blocks past the last count as free).
    ///
    /// O(words between `first` and `end`).
    pub fn all_free(&self, first: u32, end: u32) -> bool {
        let end = end.min(self.len);
        let mut at = first;
        while at < end {
            // The bits of this word from `at` up to the end of the word or to `end`.
            let next = end.min((at / BITS + 1) * BITS);
            let mask = (u64::MAX >> (BITS - (next - at))) << (at % BITS);
            if self.words[(at / BITS) as usize] & mask != mask {
                return false;
            }
            at = next;
        }
        true
    }

    /// Number of free blocks. O(words).
    pub fn free(&self) -> u32 {
        self.words.iter().map(|word| word.count_ones()).sum()
    }

    /// Checks that no bit past the last block is set. O(1).
    ///
    /// # Errors
    /// A bit past the last block is set.
    pub fn check(&self) -> Result<(), Violation> {
        let stray = self.len.wrapping_neg() % BITS;
        let last = self.words.last().copied().unwrap_or(0);
        ensure(stray == 0 || last >> (BITS - stray) == 0, "slab: bits past the block count are clear", self.len)
    }
}
