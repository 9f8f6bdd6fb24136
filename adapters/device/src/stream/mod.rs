//! Streams: queues of work that a device does in order, each with a cache of the blocks that were freed on it.
//!
//! Promises upward: a cache hit costs an uncontended lock, a look-up and two counters: no driver call, no event.
//! Asks from below: a [`Service`] that serves cache misses.
//!
//! A stream may reuse at once what it freed, because its work is done in order. So freed small blocks stay in their
//! stream's cache: live for the arena, free for the stream. Each block holds a reference to its stream; that of a
//! cached block stays counted without an `Arc` value, so that neither a hit nor its free changes the reference count.

mod service;

pub(crate) use service::{
    BlockExtra, BlockOrigin, FreedBlock, Hints, HostMemory, HostSlice, Registers, Service, StreamProgress, Unregister,
};
pub use service::{Hook, Release};

use crate::backend::RawStream;
use crate::error::DeviceError;
use crate::health::DeviceHealth;
use crate::stream_cache::{AllocatedTail, CacheStats, StreamCache};
use spin::mutex::SpinMutex;
use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use terrace_core::error::ensure;
use terrace_core::pressure::{CachePolicy, Level};
use terrace_core::{Block, Owner, Request, Violation};
use terrace_guard::catch_panic;

/// The route of a stream on which no graph is captured.
pub(crate) const NO_ROUTE: u32 = u32::MAX;

/// A stream: work that a device does in order. Clones are handles to the same stream.
///
/// It lives as long as a clone or one of its blocks; then it is destroyed, if terrace created it. Work in flight still
/// completes.
#[derive(Clone)]
pub struct Stream {
    handle: Arc<StreamHandle>,
}

/// Empties the stream's cache when the user's last clone of [`Stream`] is dropped.
pub(crate) struct StreamHandle {
    pub(crate) core: Arc<StreamCore>,
}

/// Which code created a stream.
pub(crate) enum StreamOwnership {
    /// Terrace created the stream, and destroys it.
    Ours,
    /// Other code created the stream; the value keeps it alive, if one was given.
    Theirs(Option<Keeper>),
}

/// What the pool needs to know to close a stream.
pub(crate) struct ClosedStream {
    pub(crate) owner: Owner,
    pub(crate) raw: RawStream,
    pub(crate) owned: bool,
    /// Number of blocks that the stream's cache served.
    pub(crate) hits: u64,
    /// Bytes of those blocks.
    pub(crate) hit_bytes: u64,
}

/// A value of the user's that keeps an adopted stream alive until it is dropped.
pub(crate) type Keeper = Box<dyn Any + Send + Sync>;

/// The part of a stream to which its blocks refer.
pub(crate) struct StreamCore {
    pub(crate) service: Arc<dyn Service>,
    health: Arc<DeviceHealth>,
    pub(crate) owner: Owner,
    pub(crate) raw: RawStream,
    /// Whether terrace created the stream, and so destroys it.
    pub(crate) owned: bool,
    /// Keeps an adopted stream alive; dropped once the stream is closed here. A forked child does not drop it.
    keeper: Option<Keeper>,
    /// The private pool that allocations go to while a graph is captured, or [`NO_ROUTE`].
    route: AtomicU32,
    /// Size of a granule in bytes, 2^`shift`.
    granule: u64,
    shift: u32,
    /// Largest block size, in bytes, that is cached in a stack.
    small: u64,
    /// Whether the cache holds blocks larger than `small`.
    has_recent: Arc<AtomicBool>,
    given: Arc<AllocatedTail>,
    /// The device's tracker: a look into the pool would be a call.
    #[cfg(feature = "track")]
    pub(crate) tracker: Arc<terrace_track::Tracker>,
    /// Blocks that are live for the arena and free here. Each has one reference to the stream, counted without an
    /// `Arc`.
    cache: SpinMutex<StreamCache>,
}

impl StreamCore {
    pub(crate) fn new(service: Arc<dyn Service>, owner: Owner, raw: RawStream, whose: StreamOwnership) -> Self {
        let options = *service.options();
        let (granules, cap) = (options.small_threshold / options.granule, options.cached_at(Level::Normal));
        let cache = StreamCache::new(granules, cap, options.blocks_of_a_size());
        let health = service.health();
        let (route, cache) = (AtomicU32::new(NO_ROUTE), SpinMutex::new(cache));
        let (owned, keeper) = match whose {
            StreamOwnership::Ours => (true, None),
            StreamOwnership::Theirs(keeper) => (false, keeper),
        };
        let (granule, shift) = (options.granule, options.granule.trailing_zeros());
        let (small, has_recent, given) = (options.small_threshold, Arc::default(), service.given());
        #[cfg(feature = "track")]
        let tracker = Arc::clone(service.tracker());
        Self {
            service,
            health,
            owner,
            raw,
            owned,
            keeper,
            route,
            granule,
            shift,
            small,
            has_recent,
            given,
            #[cfg(feature = "track")]
            tracker,
            cache,
        }
    }

    /// Takes a block that fits the request from the cache, with its reference to the stream.
    #[inline]
    pub(crate) fn hit(self: &Arc<Self>, request: Request) -> Option<(Block, Arc<Self>)> {
        let cached = request.bytes <= 1 << 62 && request.bytes > 0 && request.align <= self.granule;
        let cached = cached && request.align.is_power_of_two();
        if !cached || self.route.load(Ordering::Relaxed) != NO_ROUTE || self.health.check().is_err() {
            return None;
        }
        let granules = (request.bytes + self.granule - 1) >> self.shift;
        let mut cache = self.cache.lock();
        let block = if request.bytes <= self.small {
            cache.get(granules)
        } else {
            cache.get_recent(granules << self.shift, &self.given)
        }?;
        drop(cache);
        // SAFETY: `keep` leaked one reference for each block in the cache; this block has left the cache, and its
        // reference is taken over here, once.
        Some((block, unsafe { Arc::from_raw(Arc::as_ptr(self)) }))
    }

    /// Keeps a block, and the reference that it held, for the next request of its size.
    ///
    /// # Errors
    /// The reference, if the block is too large, the cache is full, or the stream is closed.
    #[inline]
    pub(crate) fn keep(self: Arc<Self>, block: Block) -> Result<(), Arc<Self>> {
        let this = ManuallyDrop::new(self);
        let granules = block.bytes >> this.shift;
        let mut cache = this.cache.lock();
        let kept = if block.bytes <= this.small {
            cache.put(granules, block)
        } else {
            let kept = cache.put_recent(block, this.owner, &this.given);
            if kept {
                this.has_recent.store(true, Ordering::Relaxed);
            }
            kept
        };
        drop(cache);
        if kept { Ok(()) } else { Err(ManuallyDrop::into_inner(this)) }
    }

    /// The flag that the cache holds larger blocks: the pool reads it without a reference to the stream.
    pub(crate) fn has_recent(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.has_recent)
    }

    /// Empties the cache, passing each block to `to`. Returns the bytes of the blocks.
    pub(crate) fn drain(self: &Arc<Self>, to: impl FnMut(Block, Owner)) -> u64 {
        let blocks = self.cache.lock().take_all();
        self.let_go(blocks, to)
    }

    /// Takes the larger blocks out of the cache, passing each to `to`.
    pub(crate) fn drain_recent(self: &Arc<Self>, to: impl FnMut(Block, Owner)) {
        let mut cache = self.cache.lock();
        self.has_recent.store(false, Ordering::Relaxed);
        let blocks = cache.take_recent();
        drop(cache);
        self.let_go(blocks, to);
    }

    /// Drops the references of blocks taken out of the cache, and passes the blocks to `to`. Returns their bytes.
    fn let_go(self: &Arc<Self>, blocks: Vec<Block>, mut to: impl FnMut(Block, Owner)) -> u64 {
        let drained = blocks.iter().map(|block| block.bytes).sum();
        for block in blocks {
            // SAFETY: as in `hit`. This is not the last reference: `self` is another.
            drop(unsafe { Arc::from_raw(Arc::as_ptr(self)) });
            to(block, self.owner);
        }
        drained
    }

    /// Closes the cache: it keeps no block from now on.
    pub(crate) fn close_cache(&self) {
        self.cache.lock().close();
    }

    /// Closes the cache while requests wait for memory, or opens it again.
    pub(crate) fn set_awaited(&self, awaited: bool) {
        self.cache.lock().set_awaited(awaited);
    }

    /// Sets the cache's cap, in bytes.
    pub(crate) fn set_cap(&self, cap: u64) {
        self.cache.lock().set_cap(cap);
    }

    /// Bytes of all cached blocks.
    pub(crate) fn cached(&self) -> u64 {
        self.cache.lock().cached()
    }

    /// Adapts the cache's cap to the pressure: `used` of `capacity` bytes are in use.
    pub(crate) fn adapt(&self, policy: &CachePolicy, used: u64, capacity: u64) {
        self.cache.lock().adapt(policy, used, capacity);
    }

    pub(crate) fn counts(&self) -> CacheStats {
        self.cache.lock().counts()
    }

    /// Checks the cache, and adds its blocks to `cached`.
    pub(crate) fn check(self: &Arc<Self>, cached: &mut Vec<Block>) -> Result<(), Violation> {
        let owner = u64::from(self.owner.0);
        let cache = self.cache.lock();
        cache.check(self.granule)?;
        let first = cached.len();
        cached.extend(cache.blocks());
        // Each cached block owns a reference to this stream, and leaves the cache only under the lock held here; the
        // caller owns one more.
        let counted = Arc::strong_count(self) > cached.len() - first;
        ensure(counted, "each cached block has a reference to its stream", owner)?;
        let known = !cache.has_recent() || self.has_recent.load(Ordering::Relaxed);
        ensure(known, "the pool is told of a stream's larger blocks", owner)
    }

    /// The private pool that allocations go to, or [`NO_ROUTE`].
    pub(crate) fn route(&self) -> u32 {
        self.route.load(Ordering::Relaxed)
    }

    /// Routes allocations to the private pool `to`, or back to [`NO_ROUTE`]. False if the route was not `from`.
    pub(crate) fn set_route(&self, from: u32, to: u32) -> bool {
        self.route.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Fails in a child of the process that opened the device.
    pub(crate) fn at_home(&self) -> Result<(), DeviceError> {
        let usable = self.health.check();
        if self.forked() { usable.map_err(|fault| self.service.error(fault)) } else { Ok(()) }
    }

    /// Whether this process is a child of the one that opened the device: waiting for a lock could then block for ever.
    pub(crate) fn forked(&self) -> bool {
        self.health.forked()
    }
}

impl Stream {
    pub(crate) fn new(handle: Arc<StreamHandle>) -> Self {
        Self { handle }
    }

    #[inline]
    pub(crate) fn core(&self) -> &Arc<StreamCore> {
        &self.handle.core
    }

    /// The driver's handle, to launch work by other libraries while this stream lives.
    pub fn raw(&self) -> RawStream {
        self.core().raw
    }

    /// Waits until all work on the stream is done.
    ///
    /// # Errors
    /// [`DeviceError::Driver`] and [`DeviceError::Lost`], also of earlier work on the stream.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        self.core().service.synchronize_stream(self.raw())
    }

    /// Makes this stream wait for all work put on `other` so far. The calling thread does not wait.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`]; the driver's error.
    pub fn wait_for(&self, other: &Self) -> Result<(), DeviceError> {
        let service = &self.core().service;
        service.check_stream(other.core())?;
        service.order(self.raw(), other.raw())
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        if !self.core.forked() {
            self.core.service.retire_stream(&self.core);
        }
    }
}

impl Drop for StreamCore {
    fn drop(&mut self) {
        let keeper = self.keeper.take();
        if self.forked() {
            return std::mem::forget(keeper);
        }
        let CacheStats { hits, hit_bytes, .. } = self.cache.get_mut().counts();
        let closed = ClosedStream { owner: self.owner, raw: self.raw, owned: self.owned, hits, hit_bytes };
        self.service.close_stream(closed);
        // Dropping the keeper runs the user's code, on any thread: a panic must not spread.
        catch_panic(|| drop(keeper));
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = self.core();
        f.debug_struct("Stream").field("raw", &core.raw).field("owner", &core.owner).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::device::Device;
    use terrace_core::Block;

    #[test]
    fn a_cached_block_without_a_reference_to_its_stream_is_reported() {
        let device = Device::host();
        let stream = device.stream().expect("a stream");
        let block = |address| Block { address, bytes: 256, slot: 0, region: 0, ticket: address };
        // Two references are counted: that of the stream's handle, and that of the pool during the check.
        assert!([1 << 20, 2 << 20].into_iter().all(|address| stream.core().cache.lock().put(1, block(address))));
        let said = device.check();
        // No references were counted for these two blocks, so draining them would drop too many.
        stream.core().cache.lock().take_all();
        assert_eq!(said.map_err(|violation| violation.clause), Err("each cached block has a reference to its stream"));
    }
}
