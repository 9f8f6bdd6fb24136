//! What one stream freed and may have again at once: a stack for each exact size.
//!
//! Promises upward: `put` and `get` in constant time, some twenty instructions; caps hold.
//! Asks from below: the global allocator, when a stack grows.

use terrace_core::Block;
use terrace_core::pressure::{Advice, CachePolicy};

/// The cache of one stream. Sizes are whole granules.
#[derive(Debug)]
pub(crate) struct Front {
    /// Blocks of `i + 1` granules.
    stacks: Box<[Vec<Block>]>,
    /// Bytes in all stacks: at most `cap` when the last one was put.
    bytes: u64,
    /// Blocks in all stacks.
    blocks: u64,
    cap: u64,
    /// Most blocks in a stack.
    per_size: usize,
    /// Nothing is put any more: no user's handle of the stream is left.
    closed: bool,
    /// Blocks served.
    hits: u64,
}

/// What a cache did and holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Blocks served.
    pub(crate) hits: u64,
    /// Bytes cached now.
    pub(crate) bytes: u64,
    /// Blocks cached now.
    pub(crate) blocks: u64,
}

impl Front {
    /// For sizes up to `granules`; at most `cap` bytes in all and `per_size` blocks of a size.
    pub(crate) fn new(granules: u64, cap: u64, per_size: u32) -> Self {
        let stacks = (0..granules).map(|_| Vec::new()).collect();
        Self { stacks, bytes: 0, blocks: 0, cap, per_size: per_size as usize, closed: false, hits: 0 }
    }

    /// A block of a size, the one put last.
    #[inline]
    pub(crate) fn get(&mut self, granules: u64) -> Option<Block> {
        let block = self.stacks.get_mut((granules - 1) as usize)?.pop()?;
        self.bytes -= block.bytes;
        self.blocks -= 1;
        self.hits += 1;
        Some(block)
    }

    /// Keeps a block of a size; false when a cap or the end of the stream is in the way.
    #[inline]
    pub(crate) fn put(&mut self, granules: u64, block: Block) -> bool {
        let Some(stack) = self.stacks.get_mut((granules - 1) as usize) else { return false };
        if stack.len() >= self.per_size || self.bytes + block.bytes > self.cap || self.closed {
            return false;
        }
        stack.push(block);
        self.bytes += block.bytes;
        self.blocks += 1;
        true
    }

    /// Takes everything out.
    pub(crate) fn take_all(&mut self) -> Vec<Block> {
        (self.bytes, self.blocks) = (0, 0);
        self.stacks.iter_mut().flat_map(std::mem::take).collect()
    }

    /// Keeps nothing from now on.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Lets the cap follow pressure: `used` of `capacity` bytes; the policy's bounds are bytes.
    pub(crate) fn adapt(&mut self, policy: &CachePolicy, used: u64, capacity: u64) {
        match policy.advise(used, capacity, self.cap) {
            Advice::Keep => {}
            Advice::Shrink(cap) | Advice::Grow(cap) => self.cap = cap,
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts { hits: self.hits, bytes: self.bytes, blocks: self.blocks }
    }
}

#[cfg(test)]
mod tests {
    use super::Front;
    use terrace_core::Block;
    use terrace_core::pressure::CachePolicy;

    fn block(address: u64, bytes: u64) -> Block {
        Block { address, bytes, slot: 0, region: 0, ticket: address }
    }

    #[test]
    fn the_last_block_of_a_size_comes_first_and_other_sizes_do_not() {
        let mut front = Front::new(4, 4096, 8);
        assert!(front.put(2, block(1, 512)) && front.put(2, block(2, 512)) && front.put(1, block(3, 256)));
        assert_eq!([front.get(2), front.get(2), front.get(2)].map(|b| b.map(|b| b.address)), [Some(2), Some(1), None]);
        assert_eq!((front.counts().bytes, front.counts().blocks, front.counts().hits), (256, 1, 2));
    }

    #[test]
    fn caps_hold_and_sizes_beyond_the_largest_are_refused() {
        let mut front = Front::new(4, 1024, 2);
        assert!(!front.put(5, block(1, 1280)), "too large");
        assert!(front.put(1, block(1, 256)) && front.put(1, block(2, 256)));
        assert!(!front.put(1, block(3, 256)), "two of a size");
        assert!(front.put(2, block(4, 512)));
        assert!(!front.put(2, block(5, 512)), "1024 bytes in all");
        assert_eq!(front.take_all().len(), 3);
        assert_eq!((front.counts().bytes, front.counts().blocks), (0, 0));
        front.close();
        assert!(!front.put(1, block(1, 256)), "closed");
    }

    #[test]
    fn the_cap_shrinks_above_80_percent_and_grows_below_30() {
        let mut front = Front::new(4, 1024, 8);
        let policy = CachePolicy { least: 256, most: 2048, ..CachePolicy::default() };
        let mut fits = |used| {
            front.adapt(&policy, used, 100);
            let count = (0..8).filter(|&i| front.put(1, block(i, 256))).count();
            front.take_all();
            count
        };
        assert_eq!([fits(50), fits(90), fits(90), fits(90), fits(10), fits(10)], [4, 2, 1, 1, 1, 2]);
    }
}
