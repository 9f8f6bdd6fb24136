//! Frees that are merged later.
//!
//! Promises upward: a call merges at most [`MOST_MERGED`] of the blocks that wait, and a bounded number wait.
//! Asks from below: [`HeapRegion`].
//!
//! ```text
//! free ──▶ victim's front ........... requests are cut from it
//!     └──▶ run: freed one after the other, side by side
//!            └──▶ quick list of its size ──▶ requests of that size
//!                    └──▶ merged with its neighbours, into a list      a few in each call
//! ```
//!
//! Blocks that wait look live to the bitmap of edges: no bit is set where they start or end, so nothing merges with them.
//! Quick lists are those of glibc's fast bins and of Grunwald and Zorn (CustoMalloc, 1993); the *victim* is Lea's.

use core::mem::take;

use super::bins::WORD;
use super::config::HeapConfig;
use super::records::Records;
use super::region::HeapRegion;

/// Sizes below this, in granules, have a quick list, and a bit each.
pub const QUICK_SIZES: usize = 64;
/// Words of a bit for each size.
const WORDS: usize = QUICK_SIZES / WORD;
/// Most blocks in quick lists. With 128, workload a takes 43 instructions on x86-64, with 64 50, with 32 61.
const MOST_WAITING: usize = 128;
/// A block may wait for every so many granules of a region: less than 0.2 % of them are then starts of such blocks.
const GRANULES_A_BLOCK: usize = 512;
/// Most of the blocks that wait which one call merges, unless it would otherwise be refused.
pub const MOST_MERGED: usize = 2;

/// What waits to be merged, in a region.
#[derive(Debug)]
pub struct WaitingBlocks {
    /// Start and end of the *victim*: a free block without a record and without bits in `edges`, from which requests
    /// are cut. Empty when both are equal.
    pub victim: [usize; 2],
    /// Start and end of what was freed last, block beside block; no record, no bits. Empty when both are equal.
    pub run: [usize; 2],
    /// Sizes below this have a quick list: [`QUICK_SIZES`], or 0 for no region.
    pub quick: usize,
    /// Number of blocks in quick lists.
    pub waiting: usize,
    /// Most blocks in quick lists of this region.
    pub most: usize,
    /// Bit `i` is set if the quick list of size `i` is not empty; it may be set if that is empty.
    sizes: [usize; WORDS],
    /// The size whose quick list is merged next, or one below it; less than [`QUICK_SIZES`].
    next: usize,
}

impl WaitingBlocks {
    /// Nothing waits.
    pub const NONE: Self =
        Self { victim: [0; 2], run: [0; 2], quick: 0, waiting: 0, most: 0, sizes: [0; WORDS], next: 0 };

    /// All of a region is the victim.
    pub fn start(&mut self, all: [usize; 2]) {
        let most = ((all[1] - all[0]) / GRANULES_A_BLOCK).min(MOST_WAITING);
        *self = Self { victim: all, quick: QUICK_SIZES, most, ..Self::NONE };
    }

    /// The first size at or after the next one, in turn, whose bit is set; the next one is then it.
    fn next_size(&mut self) -> Option<usize> {
        for step in 0..=WORDS {
            let word = (self.next + step * WORD) % QUICK_SIZES / WORD;
            let from = if step == 0 { self.next % WORD } else { 0 };
            let bits = self.sizes[word] >> from << from;
            if bits != 0 {
                self.next = word * WORD + bits.trailing_zeros() as usize;
                return Some(self.next);
            }
        }
        None
    }
}

impl<C: HeapConfig> HeapRegion<C> {
    /// Frees the block of `size` granules at place `at`, without merging it if it is small.
    #[inline(always)]
    pub fn free_deferred(&mut self, at: usize, size: usize) {
        let end = at + size;
        if end == self.deferred.victim[0] && !self.lists.edge(at) {
            self.deferred.victim[0] = at;
        } else if at == self.deferred.run[1] {
            self.deferred.run[1] = end;
            // What is freed in order costs little, so there is time for blocks that wait.
            if self.deferred.waiting > 0 {
                self.merge_some();
            }
        } else if end == self.deferred.run[0] {
            self.deferred.run[0] = at;
        } else {
            let [from, to] = core::mem::replace(&mut self.deferred.run, [at, end]);
            self.settle(from, to - from);
        }
    }

    /// Puts a free block without bits into the quick list of its size, or merges it if it is large.
    #[inline(always)]
    pub fn settle(&mut self, at: usize, size: usize) {
        if size >= QUICK_SIZES {
            return self.free_apart(at, size);
        }
        if size == 0 {
            return;
        }
        C::Records::set_next(self.lists.memory, at, self.lists.quick(size));
        self.lists.set_quick(size, at);
        self.deferred.sizes[size % QUICK_SIZES / WORD] |= 1 << (size % WORD);
        self.deferred.waiting += 1;
        if self.deferred.waiting > self.deferred.most {
            self.merge_some();
        }
    }

    /// Takes a block from the quick list of a size; 0 if there is none.
    #[inline(always)]
    pub fn take_quick(&mut self, size: usize) -> usize {
        let at = self.lists.quick(size);
        if at != 0 {
            self.lists.set_quick(size, C::Records::next(self.lists.memory, at));
            self.deferred.waiting -= 1;
        }
        at
    }

    /// Merges at most [`MOST_MERGED`] of the blocks that wait; sizes take turns.
    #[inline(never)]
    pub fn merge_some(&mut self) {
        let mut left = MOST_MERGED;
        while left > 0
            && let Some(size) = self.deferred.next_size()
        {
            let at = self.take_quick(size);
            if at == 0 {
                // Each size that is passed over was set by a free.
                self.deferred.sizes[size / WORD] &= !(1 << (size % WORD));
                continue;
            }
            self.free_apart(at, size);
            left -= 1;
        }
        self.deferred.next = (self.deferred.next + 1) % QUICK_SIZES;
    }

    /// Merges all that waits, the victim too; O(blocks that wait).
    pub fn merge_all(&mut self) {
        // Not until none waits by the count: a program that wrote into freed memory may have cut a list short.
        for _ in 0..self.deferred.waiting.div_ceil(MOST_MERGED) {
            self.merge_some();
        }
        self.deferred.waiting = 0;
        for [from, to] in [take(&mut self.deferred.run), take(&mut self.deferred.victim)] {
            if from != to {
                self.free_apart(from, to - from);
            }
        }
    }

    /// Calls `each` with start and end of each block that waits.
    ///
    /// Only as far as the quick lists agree with the number of blocks in them.
    pub fn each_waiting(&self, mut each: impl FnMut([usize; 2])) {
        if !C::DEFERS {
            return;
        }
        [self.deferred.victim, self.deferred.run].into_iter().filter(|[from, to]| from != to).for_each(&mut each);
        let mut left = self.deferred.waiting;
        for size in 1..QUICK_SIZES {
            let mut at = self.lists.quick(size);
            while left > 0 && self.is_place(at, size) {
                each([at, at + size]);
                (at, left) = (C::Records::next(self.lists.memory, at), left - 1);
            }
        }
    }
}
