//! Checks the invariants of a stream's cache. O(n log n); for tests.

use super::{RECENT, StreamCache};
use terrace_core::error::ensure;
use terrace_core::{Block, Violation};

impl StreamCache {
    /// Checks every invariant. `granule` is in bytes.
    pub(crate) fn check(&self, granule: u64) -> Result<(), Violation> {
        for (at, stack) in (1..).zip(&self.stacks) {
            let is_of_size = stack.iter().all(|block| block.bytes == at * granule);
            ensure(is_of_size, "a stack holds blocks of its size", at)?;
            ensure(stack.len() <= self.pooled_per_bucket, "a stack holds at most `pooled_per_bucket` blocks", at)?;
        }
        self.check_recent(self.stacks.len() as u64 * granule)?;
        let stacked: u64 = self.stacks.iter().flatten().map(|block| block.bytes).sum();
        ensure(stacked == self.bytes, "the bytes of a cache are the sum of its stacks", self.bytes)?;
        let count = self.stacks.iter().map(Vec::len).sum::<usize>() as u64;
        ensure(count == self.blocks, "the blocks of a cache are those of its stacks", self.blocks)?;
        ensure(self.bytes <= self.cap.max(self.held), "a cache grows to its cap only", self.bytes)?;
        ensure(self.closed == (self.retired || self.awaited), "a cache is closed for a reason", count)?;
        ensure(!self.closed || self.blocks().next().is_none(), "a closed cache is empty", count)?;
        check_apart(&mut self.blocks().copied().collect::<Vec<_>>())
    }

    /// Checks the larger blocks: those of more than `largest` bytes, the size of the largest stack.
    fn check_recent(&self, largest: u64) -> Result<(), Violation> {
        ensure(self.recent.len() <= RECENT, "a cache keeps few larger blocks", self.recent.len() as u64)?;
        for block in &self.recent {
            ensure(block.bytes > largest, "a block that a stack could hold is in one", block.address)?;
            let of_size = self.recent.iter().filter(|other| other.bytes == block.bytes).count();
            ensure(
                of_size <= self.pooled_per_bucket,
                "a cache keeps at most `pooled_per_bucket` larger blocks of a size",
                block.bytes,
            )?;
        }
        Ok(())
    }
}

/// Checks that no block occurs twice or overlaps another; sorts the blocks by address.
pub(crate) fn check_apart(blocks: &mut [Block]) -> Result<(), Violation> {
    blocks.sort_unstable_by_key(|block| block.address);
    let touching = blocks.windows(2).find(|pair| pair[1].address - pair[0].address < pair[0].bytes);
    let at = touching.map_or(0, |pair| pair[1].address);
    ensure(touching.is_none(), "cached and held blocks do not overlap", at)
}

#[cfg(test)]
mod tests {
    use super::{RECENT, StreamCache};
    use terrace_core::Block;
    use terrace_core::pressure::CachePolicy;

    const GRANULE: u64 = 256;

    fn block(address: u64, granules: u64) -> Block {
        Block { address, bytes: granules * GRANULE, slot: 0, region: 0, ticket: address }
    }

    /// A cache with blocks of one and two granules in stacks, and a larger one of five granules.
    fn cache() -> StreamCache {
        let mut cache = StreamCache::new(4, 16 * GRANULE, 2);
        assert!(cache.put(1, block(0x1000, 1)) && cache.put(2, block(0x2000, 2)) && cache.put(2, block(0x3000, 2)));
        cache.recent.push(block(0x4000, 5));
        assert_eq!(cache.check(GRANULE), Ok(()));
        cache
    }

    /// The clause that the check reports once the cache was changed, or "nothing".
    fn said(change: impl FnOnce(&mut StreamCache)) -> &'static str {
        let mut cache = cache();
        change(&mut cache);
        cache.check(GRANULE).map_or_else(|violation| violation.clause, |()| "nothing")
    }

    #[test]
    fn each_violation_is_reported() {
        let put = |cache: &mut StreamCache, granules: u64, block: Block| {
            cache.stacks[granules as usize - 1].push(block);
            (cache.bytes, cache.blocks) = (cache.bytes + block.bytes, cache.blocks + 1);
        };
        assert_eq!(said(|_| ()), "nothing");
        assert_eq!(said(|cache| put(cache, 3, block(0x5000, 2))), "a stack holds blocks of its size");
        assert_eq!(said(|cache| put(cache, 2, block(0x5000, 2))), "a stack holds at most `pooled_per_bucket` blocks");
        let many = (0..RECENT as u64).map(|i| block(0x10_000 * (i + 1), 6 + i));
        assert_eq!(said(|cache| cache.recent.extend(many)), "a cache keeps few larger blocks");
        assert_eq!(said(|cache| cache.recent.push(block(0x5000, 4))), "a block that a stack could hold is in one");
        let alike = [block(0x5000, 5), block(0x6000, 5)];
        let clause = "a cache keeps at most `pooled_per_bucket` larger blocks of a size";
        assert_eq!(said(|cache| cache.recent.extend(alike)), clause);
        assert_eq!(said(|cache| cache.bytes -= GRANULE), "the bytes of a cache are the sum of its stacks");
        assert_eq!(said(|cache| cache.blocks += 1), "the blocks of a cache are those of its stacks");
        assert_eq!(said(|cache| cache.cap = 4 * GRANULE), "a cache grows to its cap only");
        assert_eq!(said(StreamCache::close), "a closed cache is empty");
        assert_eq!(said(|cache| cache.set_awaited(true)), "a closed cache is empty");
        assert_eq!(said(|cache| cache.retired = true), "a cache is closed for a reason");
        assert_eq!(said(|cache| put(cache, 1, block(0x1000, 1))), "cached and held blocks do not overlap");
        assert_eq!(said(|cache| put(cache, 1, block(0x4400, 1))), "cached and held blocks do not overlap");
    }

    #[test]
    fn a_cap_that_shrinks_below_what_is_there_breaks_nothing() {
        let mut cache = cache();
        let policy = CachePolicy { min: GRANULE, ..CachePolicy::default() };
        for _ in 0..9 {
            cache.adapt(&policy, 9, 10);
            assert_eq!(cache.check(GRANULE), Ok(()));
        }
        assert!(cache.cap < cache.bytes && !cache.put(1, block(0x5000, 1)));
        assert!(cache.get(2).is_some() && cache.get(2).is_some() && cache.get(1).is_some());
        assert!(cache.put(1, block(0x1000, 1)));
        assert_eq!(cache.check(GRANULE), Ok(()));
    }
}
