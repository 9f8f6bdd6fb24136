//! States of a heap that are bad for it.
//!
//! Promises upward: the same calls on each run; nothing is live at the end.
//! Asks from below: [`Calls`].

use core::ptr::NonNull;

use crate::Random;
use crate::calls::Calls;

/// Blocks that may live at once: 12 bytes each on a small board.
const LIVE: usize = 192;

/// Blocks of one heap, and what is done to them.
pub struct Trial {
    calls: Calls,
    /// Block, size, alignment.
    live: [Option<(NonNull<u8>, usize, usize)>; LIVE],
    random: Random,
    /// Bytes of the arena.
    bytes: usize,
}

impl Trial {
    pub fn new(calls: Calls, bytes: usize) -> Self {
        Self { calls, live: [None; LIVE], random: Random(7), bytes }
    }

    /// Every state, four times; each ends with nothing live.
    pub fn all(&mut self) {
        for round in 0..4 {
            self.steady(600);
            self.clear();
            self.holes(8 + 8 * round);
            self.decoys(600);
            self.clear();
        }
    }

    /// Allocates into a place, after freeing what was there. Whether there was room.
    fn put(&mut self, place: usize, size: usize, align: usize) -> bool {
        self.take(place);
        let block = NonNull::new((self.calls.alloc)(size, align));
        self.live[place] = block.map(|block| (block, size, align));
        block.is_some()
    }

    fn take(&mut self, place: usize) {
        if let Some((block, size, align)) = self.live[place].take() {
            (self.calls.free)(block, size, align);
        }
    }

    fn resize(&mut self, place: usize, new: usize) {
        if let Some((block, size, align)) = &mut self.live[place]
            && (self.calls.resize)(*block, *size, *align, new)
        {
            *size = new;
        }
    }

    /// Every other block, then the others: the second half merges on both sides.
    fn clear(&mut self) {
        (0..LIVE).step_by(2).chain((1..LIVE).step_by(2)).for_each(|place| self.take(place));
    }

    /// Random sizes and alignments, until and beyond what fits.
    fn steady(&mut self, calls: usize) {
        let largest = self.bytes / 24;
        for _ in 0..calls {
            let place = self.random.below(LIVE);
            let size = 1 + self.random.below(largest);
            let align = if self.random.below(4) > 0 { 8 } else { 1 << (4 + self.random.below(9)) };
            self.put(place, size, align);
            let (other, new) = (self.random.below(LIVE), 1 + self.random.below(largest));
            self.resize(other, new);
        }
    }

    /// Small blocks side by side as far as there are places, or memory; every other one freed; then requests of every kind.
    fn holes(&mut self, size: usize) {
        (0..LIVE).for_each(|place| {
            self.put(place, size, 8);
        });
        (0..LIVE).step_by(2).for_each(|place| self.take(place));
        for (i, place) in (0..LIVE).step_by(2).enumerate() {
            let align = 1 << (3 + i % 10);
            if !self.put(place, size + i % 5 * 8, align) {
                self.put(place, 1, 1);
            }
            self.resize(place + 1, size + 8 * (i % 7));
        }
        for failing in [self.bytes, self.bytes / 2 + 1, isize::MAX as usize] {
            let block = NonNull::new((self.calls.alloc)(failing, 8));
            block.into_iter().for_each(|block| (self.calls.free)(block, failing, 8));
            let block = NonNull::new((self.calls.alloc)(failing / 2, 4096));
            block.into_iter().for_each(|block| (self.calls.free)(block, failing / 2, 4096));
        }
    }

    /// Freed blocks just too small, in the list of the request itself.
    fn decoys(&mut self, calls: usize) {
        let base = self.bytes / 40;
        for i in 0..calls {
            let place = self.random.below(LIVE);
            match self.random.below(5) {
                0 => self.take(place),
                1 => {
                    let new = base + self.random.below(base);
                    self.resize(place, new);
                }
                2 => {
                    let size = 1 + self.random.below(64);
                    self.put(place, size, 8);
                }
                _ => {
                    // Sizes of one list differ by less than an eighth.
                    self.put(place, base + i % 8 * (base / 64), if i % 3 == 0 { 64 } else { 8 });
                }
            }
        }
    }
}
