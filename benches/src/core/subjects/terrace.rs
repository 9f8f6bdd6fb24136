//! terrace's range allocator with each strategy, and the cache before it.
//!
//! Promises upward: the same face and the same checks as any user has: stale names are recognised in the timed loop.
//! Asks from below: [`terrace_core`].

use super::models::Faced;
use super::{Contestant, GRANULE, Name, Subject, boxed, capacity};
use terrace_core::{
    Allocator, BestFit, Bin, Block, Branch, Cache, Entry, FirstFit, GoodFit, Index, Owner, Range, Request, Slot,
    WorstFit,
};

/// Blocks that the cache holds at most, and its bins: as many, so that few pairs miss theirs.
const CACHED: usize = 4096;
/// Most blocks of one size in the cache.
const PER_BIN: u32 = 16;

/// Slots for the blocks, the cached ones and the region; a few to spare.
fn slots(live: u32) -> usize {
    live as usize + CACHED + 64
}

/// How much more room worst fit is given, and how much larger its granule is, so that offsets still fit into 32 bits.
/// It cuts every large gap: where the others live in twice what they hold, it refuses 1 MiB after a few turnovers.
const WORST: u64 = 4;

/// A range of the capacity with a strategy.
fn range<I: Index>(live: u32, index: I) -> Result<Range<Vec<Slot>, I>, String> {
    range_of(capacity(live), GRANULE, live, index)
}

fn range_of<I: Index>(bytes: u64, granule: u64, live: u32, index: I) -> Result<Range<Vec<Slot>, I>, String> {
    let failed = |error| format!("cannot be set up: {error}");
    let mut range = Range::new(vec![Slot::EMPTY; slots(live)], granule, index).map_err(failed)?;
    range.add_region(0, bytes).map_err(failed)?;
    Ok(range)
}

/// A cache of blocks by exact size before good fit. On random sizes it mostly misses: this is what it costs then.
struct Cached {
    cache: Cache<Vec<Bin>, Vec<Entry<Block>>>,
    range: Range<Vec<Slot>, GoodFit>,
}

impl Cached {
    fn new(live: u32) -> Result<Self, String> {
        let mut cache = Cache::new(vec![Bin::EMPTY; CACHED], vec![Entry::EMPTY; CACHED], PER_BIN);
        cache.set_cap(capacity(live) / GRANULE / 16);
        Ok(Self { cache, range: range(live, GoodFit::new())? })
    }
}

impl Subject for Cached {
    type Handle = Block;

    #[inline]
    fn allocate(&mut self, bytes: u32) -> Option<Block> {
        match self.cache.get(Owner(0), bytes.div_ceil(GRANULE as u32)) {
            Some(block) => Some(block),
            None => self.range.allocate(Request::new(u64::from(bytes))).ok(),
        }
    }

    #[inline]
    fn free(&mut self, handle: Block) -> bool {
        match self.cache.put(Owner(0), (handle.bytes / GRANULE) as u32, handle) {
            Ok(()) => true,
            Err(handle) => self.range.free(handle, Owner(0)).is_ok(),
        }
    }

    fn start(&self, handle: &Block) -> u64 {
        handle.address
    }
}

/// One of terrace's.
pub fn build(name: Name, live: u32) -> Result<Box<dyn Contestant>, String> {
    let branches = || vec![Branch::EMPTY; slots(live)];
    Ok(match name {
        Name::Best => boxed(Faced(range(live, BestFit::new(branches()))?)),
        Name::First => boxed(Faced(range(live, FirstFit::new(branches()))?)),
        Name::Worst => {
            let index = WorstFit::new(branches());
            boxed(Faced(range_of(WORST * capacity(live), WORST * GRANULE, live, index)?))
        }
        Name::Cache => boxed(Cached::new(live)?),
        _ => boxed(Faced(range(live, GoodFit::new())?)),
    })
}
