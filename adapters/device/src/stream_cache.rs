//! Blocks that one stream freed and may reuse at once: a stack for each exact size, and a few larger blocks, kept where
//! that does not change later placements.
//!
//! Promises upward: `put` and `get` take constant time, some twenty instructions; the caps hold.
//! Asks from below: the global allocator, when a stack grows; the pool, to take the larger blocks out before it
//! searches the arena, so that they hide no memory from the search.

mod check;

pub(crate) use check::check_apart;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use terrace_core::pressure::{CachePolicy, CapAdvice};
use terrace_core::{Block, Owner};

/// Largest number of larger blocks in a cache. Searching all of them takes 16 instructions.
const RECENT: usize = 8;

/// The allocations of a pool's arena since it last did anything else: the first and the last ticket of these, for each
/// of the arena's two areas. One area has even tickets, the other odd ones.
///
/// If a cache holds exactly the blocks that the arena allocated last, freeing them would return the arena to its state
/// before: a request of the oldest one's size would get that block's address again. So serving such a request from the
/// cache changes no placement. Keeping any block that was freed recently would instead cost memory (up to 1 % on
/// recorded trainings).
///
/// Read without the pool's lock: a stale value only gives a block a worse address.
#[derive(Debug)]
pub(crate) struct AllocatedTail {
    areas: [[AtomicU64; 2]; 2],
    /// The owner of the only stream, while there is only one.
    sole: Arc<AtomicU32>,
}

/// Difference between successive tickets of one area.
const STEP: u64 = 2;

impl AllocatedTail {
    pub(crate) fn new(sole: Arc<AtomicU32>) -> Self {
        Self { areas: [const { [AtomicU64::new(u64::MAX), AtomicU64::new(0)] }; 2], sole }
    }

    fn of(&self, block: &Block) -> &[AtomicU64; 2] {
        &self.areas[(block.ticket & 1) as usize]
    }

    /// Records that the arena allocated a block.
    pub(crate) fn allocated(&self, block: &Block) {
        let [first, last] = self.of(block);
        if first.load(Ordering::Relaxed) == u64::MAX {
            first.store(block.ticket, Ordering::Relaxed);
        }
        last.fetch_max(block.ticket, Ordering::Relaxed);
    }

    /// Records that the arena freed a block.
    pub(crate) fn freed(&self, block: &Block) {
        self.of(block)[0].store(u64::MAX, Ordering::Relaxed);
    }

    /// Whether the arena has only allocated in this block's area since it allocated the block. With several streams, a
    /// freed block waits for its fence, and requests get other addresses until then: only the last block may be kept.
    #[inline]
    fn has(&self, block: &Block, owner: Owner) -> bool {
        let [first, last] = self.of(block).each_ref().map(|ticket| ticket.load(Ordering::Relaxed));
        let sole = self.sole.load(Ordering::Relaxed) == owner.0;
        if sole { block.ticket >= first } else { block.ticket == last && first <= last }
    }

    /// Whether the arena would allocate this block again if all of `kept` were freed.
    #[inline]
    fn would_give(&self, block: &Block, kept: &[Block]) -> bool {
        let others = kept.iter().filter(|other| (other.ticket ^ block.ticket) & 1 == 0);
        let (oldest, count) =
            others.fold((true, 0), |(oldest, count), other| (oldest && block.ticket <= other.ticket, count + 1));
        // True only if `kept` has as many blocks of the area as were allocated from this one on: then it has all of
        // them.
        let last = self.of(block)[1].load(Ordering::Relaxed);
        let first = self.of(block)[0].load(Ordering::Relaxed);
        oldest && block.ticket >= first && last.wrapping_sub(block.ticket) == STEP * (count - 1)
    }
}

/// The cache of one stream. Sizes are whole granules.
#[derive(Debug)]
pub(crate) struct StreamCache {
    /// `stacks[i]` has blocks of `i + 1` granules.
    stacks: Box<[Vec<Block>]>,
    /// Larger blocks, unsorted: at most [`RECENT`], and `pooled_per_bucket` of each size.
    recent: Vec<Block>,
    /// Bytes in all stacks: at most the larger of `cap` and `held`.
    bytes: u64,
    /// Number of blocks in all stacks.
    blocks: u64,
    cap: u64,
    /// `bytes` when `cap` last changed: lowering `cap` removes no blocks.
    held: u64,
    /// Largest number of blocks in a stack.
    pooled_per_bucket: usize,
    /// Whether `put` refuses every block, for one of the two reasons below.
    closed: bool,
    /// Whether the user's last handle of the stream was dropped.
    retired: bool,
    /// Whether requests wait for memory, so that all that is freed goes to the pool.
    awaited: bool,
    /// Number of blocks served.
    hits: u64,
    /// Bytes of the blocks served.
    hit_bytes: u64,
}

/// Counters of a cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CacheStats {
    /// Number of blocks served.
    pub(crate) hits: u64,
    /// Bytes of the blocks served.
    pub(crate) hit_bytes: u64,
    /// Bytes in cached blocks.
    pub(crate) bytes: u64,
    /// Number of cached blocks.
    pub(crate) blocks: u64,
    /// Bytes of the cache's own memory.
    pub(crate) metadata: u64,
}

impl StreamCache {
    /// A cache with stacks for sizes up to `granules`; it holds at most `cap` bytes in all and `pooled_per_bucket` blocks of a
    /// size.
    pub(crate) fn new(granules: u64, cap: u64, pooled_per_bucket: u32) -> Self {
        let stacks = (0..granules).map(|_| Vec::new()).collect();
        let recent = Vec::with_capacity(RECENT);
        Self {
            stacks,
            recent,
            bytes: 0,
            blocks: 0,
            cap,
            held: 0,
            pooled_per_bucket: pooled_per_bucket as usize,
            closed: false,
            retired: false,
            awaited: false,
            hits: 0,
            hit_bytes: 0,
        }
    }

    /// Takes the block of `granules` granules that was put last.
    #[inline]
    pub(crate) fn get(&mut self, granules: u64) -> Option<Block> {
        let block = self.stacks.get_mut((granules - 1) as usize)?.pop()?;
        self.bytes -= block.bytes;
        self.blocks -= 1;
        self.hits += 1;
        self.hit_bytes += block.bytes;
        Some(block)
    }

    /// Keeps a block of `granules` granules; false if a cap is reached or the cache is closed.
    #[inline]
    pub(crate) fn put(&mut self, granules: u64, block: Block) -> bool {
        let Some(stack) = self.stacks.get_mut((granules - 1) as usize) else { return false };
        if stack.len() >= self.pooled_per_bucket || self.bytes + block.bytes > self.cap || self.closed {
            return false;
        }
        stack.push(block);
        self.bytes += block.bytes;
        self.blocks += 1;
        true
    }

    /// Takes a larger block of exactly `bytes` bytes, if the arena would allocate that very block.
    #[inline]
    pub(crate) fn get_recent(&mut self, bytes: u64, given: &AllocatedTail) -> Option<Block> {
        let fits = (0..self.recent.len()).filter(|&at| self.recent[at].bytes == bytes);
        let at = fits.min_by_key(|&at| self.recent[at].ticket)?;
        if !given.would_give(&self.recent[at], &self.recent) {
            return None;
        }
        self.hits += 1;
        self.hit_bytes += bytes;
        Some(self.recent.swap_remove(at))
    }

    /// Keeps a block that is too large for a stack; false if enough are kept, or if keeping it could change later
    /// placements.
    #[inline]
    pub(crate) fn put_recent(&mut self, block: Block, owner: Owner, given: &AllocatedTail) -> bool {
        let kept = &self.recent;
        let of_size = || kept.iter().filter(|other| other.bytes == block.bytes).count();
        let is_full =
            kept.len() >= RECENT || kept.len() >= self.pooled_per_bucket && of_size() >= self.pooled_per_bucket;
        let room = !is_full && !self.closed && given.has(&block, owner);
        if room {
            self.recent.push(block);
        }
        room
    }

    /// All cached blocks.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.stacks.iter().flatten().chain(&self.recent)
    }

    /// Whether the cache holds larger blocks.
    pub(crate) fn has_recent(&self) -> bool {
        !self.recent.is_empty()
    }

    /// Removes and returns the larger blocks.
    pub(crate) fn take_recent(&mut self) -> Vec<Block> {
        self.recent.drain(..).collect()
    }

    /// Removes and returns all blocks.
    pub(crate) fn take_all(&mut self) -> Vec<Block> {
        (self.bytes, self.blocks) = (0, 0);
        self.stacks.iter_mut().flat_map(std::mem::take).chain(self.recent.drain(..)).collect()
    }

    /// Closes the cache: it keeps no block from now on.
    pub(crate) fn close(&mut self) {
        (self.retired, self.closed) = (true, true);
    }

    /// Closes the cache while requests wait for memory, and opens it again after that if it is not closed for good.
    pub(crate) fn set_awaited(&mut self, awaited: bool) {
        (self.awaited, self.closed) = (awaited, awaited || self.retired);
    }

    /// Sets the cap; removes no block.
    pub(crate) fn set_cap(&mut self, cap: u64) {
        (self.cap, self.held) = (cap, self.bytes);
    }

    /// Adapts the cap to pressure: `used` of `capacity` bytes are in use; the policy's bounds are in bytes.
    pub(crate) fn adapt(&mut self, policy: &CachePolicy, used: u64, capacity: u64) {
        match policy.advise(used, capacity, self.cap) {
            CapAdvice::Keep => {}
            CapAdvice::Shrink(cap) | CapAdvice::Grow(cap) => self.set_cap(cap),
        }
    }

    /// Bytes of all cached blocks.
    pub(crate) fn cached(&self) -> u64 {
        self.bytes + self.recent.iter().map(|block| block.bytes).sum::<u64>()
    }

    pub(crate) fn counts(&self) -> CacheStats {
        let room: usize = self.stacks.iter().map(Vec::capacity).sum::<usize>() + self.recent.capacity();
        let metadata = (size_of_val(&*self.stacks) + room * size_of::<Block>()) as u64;
        let (bytes, blocks) = (self.cached(), self.blocks + self.recent.len() as u64);
        CacheStats { hits: self.hits, hit_bytes: self.hit_bytes, bytes, blocks, metadata }
    }
}

#[cfg(test)]
mod tests {
    use super::{AllocatedTail, StreamCache};
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use terrace_core::pressure::CachePolicy;
    use terrace_core::{Block, Owner};

    fn block(address: u64, bytes: u64) -> Block {
        Block { address, bytes, slot: 0, region: 0, ticket: address }
    }

    #[test]
    fn the_last_block_of_a_size_comes_first_and_other_sizes_do_not() {
        let mut front = StreamCache::new(4, 4096, 8);
        assert!(front.put(2, block(1, 512)) && front.put(2, block(2, 512)) && front.put(1, block(3, 256)));
        assert_eq!([front.get(2), front.get(2), front.get(2)].map(|b| b.map(|b| b.address)), [Some(2), Some(1), None]);
        assert_eq!((front.counts().bytes, front.counts().blocks, front.counts().hits), (256, 1, 2));
    }

    #[test]
    fn caps_hold_and_sizes_beyond_the_largest_are_refused() {
        let mut front = StreamCache::new(4, 1024, 2);
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
    fn of_larger_blocks_so_many_of_a_size_are_kept() {
        let given = AllocatedTail::new(Arc::new(AtomicU32::new(7)));
        let blocks: Vec<Block> = (0..4).map(|i| block(11 + 2 * i, 4096 + i / 3 * 256)).collect();
        blocks.iter().for_each(|block| given.allocated(block));
        let kept = |pooled_per_bucket| {
            let mut front = StreamCache::new(4, 1024, pooled_per_bucket);
            [0, 1, 2, 3].map(|i: usize| front.put_recent(blocks[i], Owner(7), &given))
        };
        assert_eq!(kept(0), [false; 4]);
        assert_eq!(kept(2), [true, true, false, true]);
        assert_eq!(kept(3), [true; 4]);
    }

    #[test]
    fn a_few_larger_blocks_are_kept_while_the_arena_would_give_them_again() {
        let (mut front, given) = (StreamCache::new(4, 1024, 8), AllocatedTail::new(Arc::new(AtomicU32::new(7))));
        let (one, other) = (Owner(7), Owner(8));
        assert!(!front.put_recent(block(11, 4096), one, &given), "nobody knows when it was allocated");
        let blocks: Vec<Block> = (0..9).map(|i| block(11 + 2 * i, 4096 + i * 256)).collect();
        blocks.iter().for_each(|block| given.allocated(block));
        assert!(!front.put_recent(block(9, 4096), one, &given), "it is older than what is known");
        assert!(!front.put_recent(blocks[7], other, &given), "of a stream among others the last alone");
        assert!(front.put_recent(blocks[8], other, &given) && front.take_recent().len() == 1);
        let get =
            |front: &mut StreamCache, i: usize| front.get_recent(blocks[i].bytes, &given).map(|block| block.ticket);
        assert!(blocks[1..8].iter().rev().all(|&block| front.put_recent(block, one, &given)), "in any order");
        assert_eq!(get(&mut front, 1), None, "a younger one is not kept");
        assert!(front.put_recent(blocks[8], one, &given), "none counts against the cap");
        assert!(!front.put_recent(blocks[0], one, &given), "there are enough");
        assert_eq!((front.counts().blocks, front.counts().bytes), (8, 8 * 4096 + 36 * 256));
        assert_eq!([2, 1, 1, 3, 2].map(|i| get(&mut front, i)), [None, Some(13), None, None, Some(15)], "the oldest");
        given.allocated(&block(2, 4096));
        assert_eq!(get(&mut front, 3), Some(17), "each area for itself");
        given.freed(&block(40, 4096));
        assert_eq!(get(&mut front, 4), Some(19));
        given.freed(&block(41, 4096));
        assert_eq!(get(&mut front, 5), None, "the arena may have a better place");
        assert!(front.put(1, block(9, 256)));
        assert_eq!((front.take_recent().len(), front.counts().bytes), (4, 256), "the small ones stay");
        given.allocated(&block(51, 4096));
        front.close();
        assert!(!front.put_recent(block(51, 4096), one, &given), "closed");
    }

    #[test]
    fn the_cap_shrinks_above_80_percent_and_grows_below_30() {
        let mut front = StreamCache::new(4, 1024, 8);
        let policy = CachePolicy { min: 256, max: 2048, ..CachePolicy::default() };
        let mut fits = |used| {
            front.adapt(&policy, used, 100);
            let count = (0..8).filter(|&i| front.put(1, block(i, 256))).count();
            front.take_all();
            count
        };
        assert_eq!([fits(50), fits(90), fits(90), fits(90), fits(10), fits(10)], [4, 2, 1, 1, 1, 2]);
    }
}
