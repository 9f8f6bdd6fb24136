//! A two-level allocator: a cache of one owner's freed blocks, over a shared allocator.
//!
//! Promises upward: a hit takes no lock and waits for no thread; each level has its own caps; stale handles are detected,
//! also while their block is cached here or in the shared level; dropping a [`Local`] frees the blocks it has cached.
//! Asks from below: a [`Locked`] allocator in which any owner may free a block; lent bins, entries and records.
//!
//! ```text
//! thread 1: Local [cache | records] --+            local hit: no lock
//! thread 2: Local [cache | records] --+--> Locked<Arena>   miss, overflow, trim: one lock a call
//! ```
//!
//! A `Local` issues its own handles: `slot` is the index of its record, and it counts the tickets itself. A block must
//! be freed through the `Local` that allocated it; [`Local::hand_over`] converts it to a block of the shared level,
//! which any thread can free there. A `Local` cannot free the blocks that other `Local`s have cached.

use super::Locked;
use crate::allocator::{Allocator, Block, Owner, Request};
use crate::cache::{Bin, Cache, Entry};
use crate::error::{AllocError, Cause, FreeError, Violation, ensure};
use crate::index::NONE;
use crate::stats::Stats;
use core::ops::DerefMut;
use lock_api::RawMutex;

/// The caps of a [`Local`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalCaps {
    /// Sizes are rounded up to this many bytes, a power of two: the granule of the shared level.
    pub granule: u64,
    /// Maximum number of cached blocks of one owner and size.
    pub pooled_per_bucket: u32,
    /// Maximum bytes of all cached blocks; a block that would exceed it is freed in the shared level.
    pub bytes: u64,
}

/// The record of a live block: its handle in the shared level.
#[derive(Clone, Copy, Debug)]
pub struct LocalRecord {
    inner: Block,
    /// The ticket of the block's handle; 0 if the record is unused.
    ticket: u64,
    /// Granules requested; `None` if they do not fit into 32 bits, so that the block is never cached.
    size: Option<u32>,
    /// Index of the next unused record; meaningless while the record is used.
    next: u32,
}

impl LocalRecord {
    /// An unused record.
    pub const EMPTY: Self = Self {
        inner: Block { address: 0, bytes: 0, slot: NONE, region: 0, ticket: 0 },
        ticket: 0,
        size: None,
        next: NONE,
    };
}

/// Counters of the local level, in bytes where not stated otherwise.
#[derive(Clone, Copy, Debug, Default)]
struct LocalCounters {
    in_use: u64,
    peak_in_use: u64,
    /// Bytes in the local cache.
    pooled: u64,
    live_blocks: u64,
    peak_live_blocks: u64,
    allocations: u64,
    allocated_bytes: u64,
    hits: u64,
    failed: u64,
}

/// One owner's cache over a shared allocator; a hit takes no lock.
///
/// # Example
/// ```
/// use terrace_core::layer::{LocalCaps, Local, LocalRecord, Locked};
/// use terrace_core::{Allocator, Bin, Entry, GoodFit, Owner, Range, Request, Slot};
/// # use core::sync::atomic::{AtomicBool, Ordering};
/// # struct Spin(AtomicBool);
/// # unsafe impl lock_api::RawMutex for Spin {
/// #     const INIT: Self = Self(AtomicBool::new(false));
/// #     type GuardMarker = lock_api::GuardSend;
/// #     fn lock(&self) { while !self.try_lock() {} }
/// #     fn try_lock(&self) -> bool { !self.0.swap(true, Ordering::Acquire) }
/// #     unsafe fn unlock(&self) { self.0.store(false, Ordering::Release) }
/// # }
/// let mut range = Range::new(vec![Slot::EMPTY; 16], 64, GoodFit::new())?;
/// range.add_region(0, 1 << 16)?;
/// let shared = Locked::<Spin, _>::new(range);
/// let caps = LocalCaps { granule: 64, pooled_per_bucket: 4, bytes: 4096 };
/// let records = [LocalRecord::EMPTY; 8].to_vec();
/// let mut local = Local::new(&shared, caps, vec![Bin::EMPTY; 16], vec![Entry::EMPTY; 8], records)?;
///
/// let first = local.allocate(Request::new(100))?;
/// local.free(first, Owner(0))?;
/// let again = shared.with(|_| local.allocate(Request::new(100)))?; // the lock is held: a hit does not ask for it
/// assert_eq!(again.address, first.address);
/// assert!(local.free(first, Owner(0)).is_err(), "the old name");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Local<'a, R, A, B, E, T>
where
    R: RawMutex,
    A: Allocator,
    B: DerefMut<Target = [Bin]>,
    E: DerefMut<Target = [Entry<Block>]>,
    T: DerefMut<Target = [LocalRecord]>,
{
    shared: &'a Locked<R, A>,
    /// Freed blocks: the shared level counts them as live, under handles that no caller has.
    cache: Cache<B, E>,
    records: T,
    /// Records at this index and above were never used.
    fresh: u32,
    /// Index of the first in the list of unused records below `fresh`.
    spare: u32,
    /// The last ticket issued; no ticket is issued twice.
    ticket: u64,
    caps: LocalCaps,
    counters: LocalCounters,
}

impl<'a, R, A, B, E, T> Local<'a, R, A, B, E, T>
where
    R: RawMutex,
    A: Allocator,
    B: DerefMut<Target = [Bin]>,
    E: DerefMut<Target = [Entry<Block>]>,
    T: DerefMut<Target = [LocalRecord]>,
{
    /// A local level with an empty cache.
    ///
    /// `bins` are used in sets of four; `entries` has one for each block that may be cached, `records` one for each
    /// live block.
    ///
    /// # Errors
    /// [`Cause::BadRequest`] when the granule is not a power of two.
    pub fn new(shared: &'a Locked<R, A>, caps: LocalCaps, bins: B, entries: E, records: T) -> Result<Self, AllocError> {
        if !caps.granule.is_power_of_two() {
            return Err(AllocError::new(Cause::BadRequest, caps.granule));
        }
        let cache = Cache::new(bins, entries, caps.pooled_per_bucket);
        Ok(Self { shared, cache, records, fresh: 0, spare: NONE, ticket: 0, caps, counters: LocalCounters::default() })
    }

    /// Bytes in the local cache.
    pub fn pooled(&self) -> u64 {
        self.counters.pooled
    }

    /// Sets the caps on blocks of one owner and size, and on bytes.
    ///
    /// Blocks cached already stay, even above the caps, until they are taken or trimmed.
    pub fn set_caps(&mut self, pooled_per_bucket: u32, bytes: u64) {
        self.caps = LocalCaps { pooled_per_bucket, bytes, ..self.caps };
        self.cache.set_pooled_per_bucket(pooled_per_bucket);
    }

    /// Frees every cached block in the shared level, and takes the lock for each of them. O(bins + blocks).
    pub fn drain(&mut self) {
        let shared = self.shared;
        // The free is never refused: the blocks are live in the shared level, and no caller has these handles.
        self.cache.drain(|_, _| true, |owner, _, block| _ = shared.with(|inner| inner.free(block, owner)));
        self.counters.pooled = 0;
    }

    /// Converts a live block, without a lock, to one of the shared level, which any thread can free there.
    ///
    /// # Errors
    /// [`FreeError`] when the block is not live here.
    pub fn hand_over(&mut self, block: Block) -> Result<Block, FreeError> {
        let slot = self.live(&block)?;
        let inner = self.records[slot as usize].inner;
        self.forget(slot);
        Ok(inner)
    }

    /// Size in granules, rounded up, if it fits into 32 bits.
    #[inline]
    fn size(&self, bytes: u64) -> Option<u32> {
        u32::try_from(bytes.div_ceil(self.caps.granule)).ok()
    }

    /// The size to request from the shared level: rounded up, so that all blocks of a bin are as large as its size.
    #[inline]
    fn rounded(&self, bytes: u64) -> u64 {
        self.size(bytes).map_or(bytes, |size| u64::from(size) * self.caps.granule)
    }

    #[inline]
    fn take_local(&mut self, request: Request) -> Option<Block> {
        let size = self.size(request.bytes)?;
        let block = self.cache.get(request.owner, size)?;
        if block.address & (request.align - 1) == 0 {
            self.counters.pooled -= block.bytes;
            return Some(block);
        }
        // The block is misaligned for this request: it goes back into the cache or, if the caps refuse it, to the
        // shared level.
        if self.cache.put(request.owner, size, block).is_err() {
            self.counters.pooled -= block.bytes;
            let _ = self.shared.with(|inner| inner.free(block, request.owner));
        }
        None
    }

    /// Allocates in the shared level; if that fails, drains the cache and tries again.
    #[cold]
    fn take_shared(&mut self, request: Request) -> Result<Block, AllocError> {
        let rounded = Request { bytes: self.rounded(request.bytes), ..request };
        let mut asked = self.shared.with(|inner| inner.allocate(rounded));
        if asked.is_err() && self.cache.count() > 0 {
            self.drain();
            asked = self.shared.with(|inner| inner.allocate(rounded));
        }
        asked.map_err(|error| AllocError { asked: request.bytes, ..error })
    }

    fn has_record(&self) -> bool {
        self.spare != NONE || (self.fresh as usize) < self.records.len()
    }

    /// Counts an allocation, and issues a handle for the block. Caller must ensure that a record is unused.
    #[inline]
    fn enter(&mut self, inner: Block, bytes: u64) -> Block {
        let slot = if self.spare != NONE { self.spare } else { self.fresh };
        if slot == self.spare {
            self.spare = self.records[slot as usize].next;
        } else {
            self.fresh += 1;
        }
        let t = &mut self.counters;
        t.in_use += inner.bytes;
        t.peak_in_use = t.peak_in_use.max(t.in_use);
        t.live_blocks += 1;
        t.peak_live_blocks = t.peak_live_blocks.max(t.live_blocks);
        t.allocations += 1;
        t.allocated_bytes += inner.bytes;
        self.name(slot, inner, bytes)
    }

    /// Issues a new handle for the block of a record.
    fn name(&mut self, slot: u32, inner: Block, bytes: u64) -> Block {
        self.ticket += 1;
        let ticket = self.ticket;
        self.records[slot as usize] = LocalRecord { inner, ticket, size: self.size(bytes), next: NONE };
        Block { slot, ticket, ..inner }
    }

    /// The index of a live block's record. Compares the address too, to detect a live block of another `Local`.
    #[inline]
    fn live(&self, block: &Block) -> Result<u32, FreeError> {
        let record = self.records.get(block.slot as usize);
        let same = |record: &&LocalRecord| record.ticket == block.ticket && record.inner.address == block.address;
        if block.ticket != 0 && record.filter(same).is_some() {
            return Ok(block.slot);
        }
        let (address, given) = (block.address, (1..=self.ticket).contains(&block.ticket) && block.slot < self.fresh);
        Err(if given { FreeError::Stale { address } } else { FreeError::Foreign { address } })
    }

    /// Counts a free, and makes the block's record unused.
    #[inline]
    fn forget(&mut self, slot: u32) {
        let record = &mut self.records[slot as usize];
        self.counters.in_use -= record.inner.bytes;
        self.counters.live_blocks -= 1;
        *record = LocalRecord { next: self.spare, ..LocalRecord::EMPTY };
        self.spare = slot;
    }

    /// Caches a block if the caps permit; returns whether it did.
    #[inline]
    fn keep(&mut self, block: Block, size: Option<u32>, owner: Owner) -> bool {
        let Some(size) = size.filter(|_| block.bytes <= self.caps.bytes.saturating_sub(self.counters.pooled)) else {
            return false;
        };
        let kept = self.cache.put(owner, size, block).is_ok();
        self.counters.pooled += if kept { block.bytes } else { 0 };
        kept
    }

    fn check_records(&self) -> Result<(), Violation> {
        let (mut bytes, mut live) = (0, 0);
        for record in self.records[..self.fresh as usize].iter().filter(|record| record.ticket != 0) {
            ensure(record.ticket <= self.ticket, "local: a live ticket was given", record.ticket)?;
            (bytes, live) = (bytes + record.inner.bytes, live + 1);
        }
        let (mut at, mut unused) = (self.spare, 0u64);
        while at != NONE && unused <= u64::from(self.fresh) {
            ensure(self.records[at as usize].ticket == 0, "local: a spare record names nothing", at)?;
            (at, unused) = (self.records[at as usize].next, unused + 1);
        }
        ensure(bytes == self.counters.in_use, "local: in_use is the sum over the records", bytes)?;
        ensure(live == self.counters.live_blocks, "local: live_blocks is the number of used records", live)?;
        ensure(live + unused == u64::from(self.fresh), "local: a record is used or spare", unused)
    }
}

/// Statistics: `in_use` and its peak, `allocations`, `frees`, `hits`, `misses` and `failed` count this level alone. A
/// hit is an allocation without a lock, a miss one by the shared level (perhaps without a call to its source). `pooled`
/// and `metadata` are sums of both levels; the other fields are the shared level's.
impl<R, A, B, E, T> Allocator for Local<'_, R, A, B, E, T>
where
    R: RawMutex,
    A: Allocator,
    B: DerefMut<Target = [Bin]>,
    E: DerefMut<Target = [Entry<Block>]>,
    T: DerefMut<Target = [LocalRecord]>,
{
    /// Fails as the shared level does, and with [`Cause::OutOfSlots`] when every record is that of a live block.
    #[inline]
    fn allocate(&mut self, request: Request) -> Result<Block, AllocError> {
        let request = request.validate().inspect_err(|_| self.counters.failed += 1)?;
        if !self.has_record() {
            self.counters.failed += 1;
            return Err(AllocError::new(Cause::OutOfSlots, request.bytes));
        }
        if let Some(inner) = self.take_local(request) {
            self.counters.hits += 1;
            return Ok(self.enter(inner, request.bytes));
        }
        let inner = self.take_shared(request).inspect_err(|_| self.counters.failed += 1)?;
        Ok(self.enter(inner, request.bytes))
    }

    #[inline]
    fn free(&mut self, block: Block, owner: Owner) -> Result<(), FreeError> {
        let slot = self.live(&block)?;
        let LocalRecord { inner, size, .. } = self.records[slot as usize];
        if !self.keep(inner, size, owner) {
            self.shared.with(|shared| shared.free(inner, owner))?;
        }
        self.forget(slot);
        Ok(())
    }

    fn resize(&mut self, block: Block, bytes: u64) -> Result<Block, AllocError> {
        let slot = self.live(&block).map_err(|_| AllocError::new(Cause::NotLive, bytes))?;
        Request::new(bytes).validate()?;
        let (old, rounded) = (self.records[slot as usize].inner, self.rounded(bytes));
        let resized = self.shared.with(|inner| inner.resize(old, rounded));
        let inner = resized.map_err(|error| AllocError { asked: bytes, ..error })?;
        let t = &mut self.counters;
        t.in_use = t.in_use - old.bytes + inner.bytes;
        t.peak_in_use = t.peak_in_use.max(t.in_use);
        t.allocated_bytes += inner.bytes.saturating_sub(old.bytes);
        Ok(self.name(slot, inner, bytes))
    }

    /// Drains the local cache, then trims the shared level.
    fn trim(&mut self) -> u64 {
        self.drain();
        self.shared.with(A::trim)
    }

    fn stats(&self) -> Stats {
        let (shared, t) = (self.shared.with(|inner| inner.stats()), self.counters);
        Stats {
            in_use: t.in_use,
            peak_in_use: t.peak_in_use,
            requested: t.in_use,
            pooled: shared.pooled + t.pooled,
            metadata: shared.metadata + self.cache.bytes() + size_of_val(&*self.records) as u64,
            live_blocks: t.live_blocks,
            peak_live_blocks: t.peak_live_blocks,
            allocations: t.allocations,
            frees: t.allocations - t.live_blocks,
            hits: t.hits,
            misses: t.allocations - t.hits,
            failed: t.failed,
            ..shared
        }
        .with_bytes(t.allocated_bytes)
    }

    fn check(&self) -> Result<(), Violation> {
        self.check_records()?;
        self.cache.check()?;
        let (cached, pooled) = (self.cache.held() * self.caps.granule, self.counters.pooled);
        ensure(cached <= pooled, "local: cached blocks are as large as their bins say", cached)?;
        let shared = self.shared.with(|inner| inner.check().map(|()| inner.stats().in_use))?;
        ensure(self.counters.in_use + pooled <= shared, "local: what is held here is live in the shared level", shared)
    }
}

impl<R, A, B, E, T> Drop for Local<'_, R, A, B, E, T>
where
    R: RawMutex,
    A: Allocator,
    B: DerefMut<Target = [Bin]>,
    E: DerefMut<Target = [Entry<Block>]>,
    T: DerefMut<Target = [LocalRecord]>,
{
    /// Frees the cached blocks. Live blocks stay live in the shared level: the caller should hand them over first.
    fn drop(&mut self) {
        self.drain();
    }
}
