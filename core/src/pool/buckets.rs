//! Pools of rising block size in one range of addresses: lock-free, with stale handles detected.
//!
//! Promises upward: the contract of [`Allocator`], and the same calls by `&self` from any number of threads. An acquire
//! fails only if no block of the request's bucket (with spill: nor of any larger one) was free.
//! Asks from below: [`Pool`] for the bits, [`SizeClasses`] for the sizes; the caller lends one slice of words.
//!
//! Invariants:
//! - buckets do not overlap, in ascending order: `base + size * blocks <= base` of the next; each base is a multiple of
//!   the largest power of two in its block size, so each block is aligned to that power
//! - the stamp of a block is odd iff the block is live; each acquire and each release adds 1, so a ticket (stamp and slot)
//!   is never issued twice (on 32-bit targets: not within 2^31 uses of one block)
//! - the pool's bit of a live block is set (it is set before the stamp turns odd, and cleared after the stamp turns even,
//!   so the two agree while no call is under way)

use super::bitmap::Pool;
use super::size_classes::SizeClasses;
use crate::allocator::{Allocator, Block, Owner, Request};
use crate::counters::Counters;
use crate::error::{AllocError, Cause, FreeError, Violation, ensure};
use crate::stats::Stats;
use crate::sync::{AtomicUsize, Ordering};

/// The pool of one block size.
#[derive(Clone, Copy, Debug)]
struct Bucket<'a> {
    pool: Pool<'a>,
    /// Address of the bucket's first block.
    base: u64,
    /// Bytes of a block: the size of class number `c` for bucket `c`.
    size: u64,
    /// Slot of the bucket's first block; slots are numbered through all buckets.
    first_slot: u32,
}

/// `N` buckets, each a pool of blocks of one size.
///
/// # Example
/// ```
/// use terrace_core::pool::{Buckets, SizeClasses};
/// use terrace_core::sync::AtomicUsize;
/// const COUNTS: [u32; 3] = [32, 16, 8]; // of 64, 128 and 256 bytes
/// static WORDS: [AtomicUsize; Buckets::words(&COUNTS)] = [const { AtomicUsize::new(0) }; Buckets::words(&COUNTS)];
/// let buckets = Buckets::new(SizeClasses::new(64, 1)?, COUNTS, 0x2000_0000, &WORDS)?;
/// let guard = buckets.acquire_guard(100)?;
/// assert_eq!((guard.block().bytes, guard.block().address % 128), (128, 0));
/// # Ok::<(), terrace_core::AllocError>(())
/// ```
#[derive(Debug)]
pub struct Buckets<'a, const N: usize> {
    buckets: [Bucket<'a>; N],
    /// The stamp of each block, by slot.
    stamps: &'a [AtomicUsize],
    steps: SizeClasses,
    /// Number of low bits of a ticket that hold the slot; the generation, which is half of the stamp, is above them.
    slot_bits: u32,
    /// Whether larger buckets serve the requests of a full bucket.
    spill: bool,
    counters: Counters,
}

impl<'a, const N: usize> Buckets<'a, N> {
    /// Number of words to lend: the bitmap of each bucket, and a stamp for each block.
    pub const fn words(counts: &[u32; N]) -> usize {
        let (mut words, mut bucket) = (0, 0);
        while bucket < N {
            words += Pool::words(counts[bucket]) + counts[bucket] as usize;
            bucket += 1;
        }
        words
    }

    /// Buckets of `counts[c]` blocks of `steps.size(c)` bytes each, over zeroed words.
    ///
    /// Addresses start at `base`.
    ///
    /// # Errors
    /// [`Cause::OutOfSlots`] with too few words; [`Cause::TooLarge`] when sizes or addresses pass 64 bits or slots
    /// 32 bits; [`Cause::BadRequest`] for a bucket without blocks or no bucket.
    pub fn new(steps: SizeClasses, counts: [u32; N], base: u64, words: &'a [AtomicUsize]) -> Result<Self, AllocError> {
        if words.len() < Self::words(&counts) {
            return Err(AllocError::new(Cause::OutOfSlots, words.len() as u64));
        }
        let (mut rest, mut at, mut slots) = (words, base, 0u32);
        let first = Bucket { pool: Pool::new(words, *counts.first().unwrap_or(&0))?, base, size: 0, first_slot: 0 };
        let mut buckets = [first; N];
        for (class, (bucket, &count)) in buckets.iter_mut().zip(&counts).enumerate() {
            let too_large = AllocError::new(Cause::TooLarge, class as u64);
            let size = steps.size(class as u32).ok_or(too_large)?;
            let start = at.checked_next_multiple_of(1 << size.trailing_zeros()).ok_or(too_large)?;
            *bucket = Bucket { pool: Pool::new(rest, count)?, base: start, size, first_slot: slots };
            rest = rest.split_at(Pool::words(count)).1;
            at = size.checked_mul(u64::from(count)).and_then(|bytes| start.checked_add(bytes)).ok_or(too_large)?;
            slots = slots.checked_add(count).ok_or(too_large)?;
        }
        let stamps = rest.split_at(slots as usize).0;
        let slot_bits = u32::BITS - slots.leading_zeros();
        let counters = Counters::new();
        counters.reserved(buckets.iter().map(|b| b.size * u64::from(b.pool.len())).sum());
        Ok(Self { buckets, stamps, steps, slot_bits, spill: false, counters })
    }

    /// Serves the requests of a full bucket from the next larger one with a free block.
    pub fn with_spill(self) -> Self {
        Self { spill: true, ..self }
    }

    /// First address past the last block.
    pub fn end(&self) -> u64 {
        self.buckets.last().map_or(0, |last| last.base + last.size * u64::from(last.pool.len()))
    }

    /// Acquires a block. O(1) if the hinted word of the bucket has a free block, else O(words).
    ///
    /// # Errors
    /// [`Cause::OutOfMemory`] when no suitable block is free; [`Cause::TooLarge`] when no bucket has blocks of that size
    /// and alignment; [`Cause::BadRequest`].
    pub fn acquire(&self, request: Request) -> Result<Block, AllocError> {
        let found = request.validate().and_then(|request| self.find(request));
        match found {
            Ok(block) => self.counters.allocated(block.bytes, true),
            Err(_) => self.counters.failed(),
        }
        found
    }

    fn find(&self, request: Request) -> Result<Block, AllocError> {
        let fits = |class: &usize| self.buckets[*class].size & (request.align - 1) == 0;
        let first = self.steps.aligned(request.bytes, request.align).map_or(N, |class| class as usize);
        if first >= N {
            return Err(AllocError::new(Cause::TooLarge, request.bytes));
        }
        let last = if self.spill { N } else { first + 1 };
        let taken = (first..last).filter(fits).find_map(|class| Some((class, self.buckets[class].pool.acquire()?)));
        let full = AllocError { cause: Cause::OutOfMemory, asked: request.bytes, largest_free: 0 };
        let (class, index) = taken.ok_or_else(|| AllocError { largest_free: self.largest_free(), ..full })?;
        Ok(self.name(class, index))
    }

    /// Makes the stamp of a block odd, and returns its handle. Caller must have set the block's bit: then no other thread
    /// changes the stamp, and the last holder's write to it happened before this thread acquired the bit.
    fn name(&self, class: usize, index: u32) -> Block {
        let bucket = &self.buckets[class];
        let slot = bucket.first_slot + index;
        let stamp = self.stamps[slot as usize].fetch_add(1, Ordering::Relaxed) + 1;
        let address = bucket.base + bucket.size * u64::from(index);
        Block { address, bytes: bucket.size, slot, region: class as u32, ticket: self.ticket(stamp, slot) }
    }

    /// The ticket of a live block: its slot, and half of its (odd) stamp as the generation.
    fn ticket(&self, stamp: usize, slot: u32) -> u64 {
        (stamp as u64 >> 1) << self.slot_bits | u64::from(slot)
    }

    /// Releases a block.
    ///
    /// # Errors
    /// [`FreeError::Stale`] for a handle of an earlier use of the block; [`FreeError::Foreign`] for a handle that these
    /// buckets never issued.
    pub fn release(&self, block: Block) -> Result<(), FreeError> {
        let index = self.advance_stamp(block, 1)?;
        self.counters.freed(block.bytes);
        self.buckets[block.region as usize].pool.release(index)
    }

    /// Adds to the stamp of a live block; returns the block's index in its bucket. Of two threads with the same handle
    /// one succeeds.
    fn advance_stamp(&self, block: Block, add: usize) -> Result<u32, FreeError> {
        let foreign = FreeError::Foreign { address: block.address };
        let bucket = self.buckets.get(block.region as usize).ok_or(foreign)?;
        let index = block.slot.checked_sub(bucket.first_slot).ok_or(foreign)?;
        let address = bucket.base + bucket.size.wrapping_mul(u64::from(index));
        let stamp = ((block.ticket >> self.slot_bits) << 1 | 1) as usize;
        let ours = index < bucket.pool.len() && address == block.address && block.bytes == bucket.size;
        if !ours || self.ticket(stamp, block.slot) != block.ticket {
            return Err(foreign);
        }
        let place = &self.stamps[block.slot as usize];
        let swapped = place.compare_exchange(stamp, stamp.wrapping_add(add), Ordering::Relaxed, Ordering::Relaxed);
        swapped.map(|_| index).map_err(|_| FreeError::Stale { address: block.address })
    }

    fn largest_free(&self) -> u64 {
        let room = |bucket: &&Bucket<'_>| bucket.pool.in_use() < bucket.pool.len();
        self.buckets.iter().rev().find(room).map_or(0, |bucket| bucket.size)
    }
}

impl<const N: usize> Allocator for Buckets<'_, N> {
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        self.acquire(request)
    }

    fn free(&mut self, block: Block, _: Owner) -> Result<(), FreeError> {
        self.release(block)
    }

    /// Succeeds for sizes up to the block's own: the block keeps its size and gets a new ticket.
    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        if bytes == 0 {
            return Err(AllocError::new(Cause::BadRequest, bytes));
        }
        if bytes > block.bytes {
            return Err(AllocError::new(Cause::NoRoom, bytes));
        }
        let index = self.advance_stamp(block, 1).map_err(|_| AllocError::new(Cause::NotLive, bytes))?;
        Ok(self.name(block.region as usize, index))
    }

    /// O(words): `largest_free` reads the bitmaps.
    fn stats(&self) -> Stats {
        let counted = self.counters.snapshot();
        let metadata = (Self::words(&self.buckets.map(|bucket| bucket.pool.len())) * size_of::<AtomicUsize>()) as u64;
        Stats { capacity: counted.reserved, largest_free: self.largest_free(), metadata, ..counted }
    }

    fn check(&self) -> Result<(), Violation> {
        self.counters.check()?;
        let mut end = 0;
        for bucket in &self.buckets {
            bucket.pool.check()?;
            ensure(bucket.base >= end, "buckets: one behind the other", bucket.base)?;
            let power = 1 << bucket.size.trailing_zeros();
            ensure(bucket.base % power == 0, "buckets: base aligned to the size's power of two", bucket.base)?;
            end = bucket.base + bucket.size * u64::from(bucket.pool.len());
            for index in 0..bucket.pool.len() {
                let slot = bucket.first_slot + index;
                let odd = self.stamps[slot as usize].load(Ordering::Relaxed) & 1 == 1;
                ensure(odd == bucket.pool.is_out(index), "buckets: stamp odd iff the bit is set (at rest)", slot)?;
            }
        }
        let out: u32 = self.buckets.iter().map(|bucket| bucket.pool.in_use()).sum();
        ensure(u64::from(out) == self.counters.snapshot().live_blocks, "buckets: bits set = live blocks", out)
    }
}
