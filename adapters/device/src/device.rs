//! A device as users hold it.

use crate::backend::{Backend, RawStream};
use crate::block::DeviceBlock;
use crate::capability::{Description, Memory, Visibility};
use crate::capture::GraphPool;
use crate::error::{DeviceError, OutOfMemory};
use crate::fault::{Fault, FaultReason};
use crate::host::HostBackend;
use crate::options::DeviceOptions;
use crate::pool::DevicePool;
use crate::stats::DeviceStats;
use crate::stream::{BlockExtra, BlockOrigin, HostMemory, Release, Service, Stream};
use std::fmt;
use std::sync::Arc;
use terrace_core::pressure::{CachePolicy, Level, level_from};
use terrace_core::{Block, Request, Violation};

/// One device and its memory. Clones are the same device.
///
/// # Example
/// ```
/// use terrace_device::Device;
/// let device = Device::host();
/// let stream = device.stream()?;
/// let mut block = device.allocate(&stream, 1 << 20)?;
/// block.write(0, b"some bytes")?;
/// let mut back = [0; 4];
/// block.read(5, &mut back)?;
/// assert_eq!(&back, b"byte");
/// drop(block); // the stream may have it again at once, others after its fence
/// assert_eq!(device.stats().pool.live_blocks, 0);
/// # Ok::<(), terrace_device::DeviceError>(())
/// ```
#[derive(Clone)]
pub struct Device {
    service: Arc<dyn Service>,
}

impl Device {
    /// A device over any backend.
    ///
    /// # Errors
    /// [`DeviceError::BadOption`]; what the backend says.
    pub fn open(backend: impl Backend, options: DeviceOptions) -> Result<Self, DeviceError> {
        Ok(Self { service: DevicePool::open(backend, options)? })
    }

    /// The host's memory behind the same face. Work is done at once, in order.
    pub fn host() -> Self {
        // The defaults are within their bounds, and the host backend asks nothing that can be refused at the start.
        match Self::open(HostBackend::new(), DeviceOptions::default()) {
            Ok(device) => device,
            Err(error) => unreachable!("the host backend opens with default options: {error}"),
        }
    }

    /// What stands behind it.
    pub(crate) fn service(&self) -> &Arc<dyn Service> {
        &self.service
    }

    /// Whether a block is of this device.
    pub(crate) fn owns(&self, block: &DeviceBlock) -> bool {
        self.service.is(block.service())
    }

    /// What it is and can do.
    pub fn description(&self) -> &Description {
        self.service.description()
    }

    /// Its name, as the driver says it.
    pub fn name(&self) -> &str {
        &self.description().name
    }

    /// Makes a stream.
    ///
    /// # Errors
    /// The driver's error.
    pub fn stream(&self) -> Result<Stream, DeviceError> {
        self.service.open_stream().map(Stream::new)
    }

    /// The stream of a handle that another library made. Asked twice for the same, it gives the same.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The handle is a live stream of this device, and stays one until every clone of the result and every block and transfer
    /// of it is gone. Where a driver refuses handles that it does not know, one that was destroyed before costs a wait for
    /// the whole device, not more.
    pub unsafe fn adopt_stream(&self, raw: RawStream) -> Result<Stream, DeviceError> {
        self.service.adopt_stream(raw, None).map(Stream::new)
    }

    /// Adopts a stream that lives as long as `keeper` does.
    ///
    /// `keeper` is dropped when no stream or block here knows the handle any more.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The handle is a live stream of this device, and stays one until `keeper` is dropped.
    pub unsafe fn adopt_kept_stream(
        &self,
        raw: RawStream,
        keeper: impl Send + Sync + 'static,
    ) -> Result<Stream, DeviceError> {
        self.service.adopt_stream(raw, Some(Box::new(keeper))).map(Stream::new)
    }

    /// Allocates at least `bytes` bytes for work on a stream, aligned to the granule.
    ///
    /// The granule is 256 bytes unless set otherwise.
    ///
    /// A size that the stream freed before costs a look-up; no driver call, no event.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`] when nothing helped; [`DeviceError::BadRequest`]; [`DeviceError::OtherDevice`].
    #[inline]
    pub fn allocate(&self, stream: &Stream, bytes: u64) -> Result<DeviceBlock, DeviceError> {
        self.request(stream, Request::new(bytes), true)
    }

    /// Memory at an alignment (bytes, a power of two up to 2 MiB).
    ///
    /// # Errors
    /// As for [`Device::allocate`].
    #[inline]
    pub fn allocate_aligned(&self, stream: &Stream, bytes: u64, align: u64) -> Result<DeviceBlock, DeviceError> {
        self.request(stream, Request::new(bytes).align(align), true)
    }

    /// The same, without the fallback to pinned host memory.
    pub(crate) fn allocate_own(&self, stream: &Stream, bytes: u64, align: u64) -> Result<DeviceBlock, DeviceError> {
        self.request(stream, Request::new(bytes).align(align), false)
    }

    /// Allocates and frees blocks, so that a later step finds them cached; returns their bytes.
    ///
    /// Takes so many blocks of each size at once; the stream then finds them in its cache or in the pool. The blocks that are live
    /// at the step's peak are enough; for a peak in bytes alone, name 32 blocks of a 32nd of it.
    ///
    /// # Errors
    /// As for [`Device::allocate`]: what was taken before stays ready.
    ///
    /// # Example
    /// ```
    /// use terrace_device::Device;
    /// let device = Device::host();
    /// let stream = device.stream()?;
    /// device.warm_up(&stream, &[(64 << 20, 2), (4096, 100)])?;
    /// let taken = device.stats().pool.source_calls;
    /// let blocks = [device.allocate(&stream, 64 << 20)?, device.allocate(&stream, 4096)?];
    /// assert_eq!(device.stats().pool.source_calls, taken, "nothing more was asked of the driver");
    /// # Ok::<(), terrace_device::DeviceError>(())
    /// ```
    pub fn warm_up(&self, stream: &Stream, blocks: &[(u64, u32)]) -> Result<u64, DeviceError> {
        // All are live at once, or the second would be cut from the first; the largest first, as best fit likes them.
        let mut sizes = blocks.to_vec();
        sizes.sort_unstable_by_key(|&(bytes, _)| std::cmp::Reverse(bytes));
        let mut live = Vec::new();
        for (bytes, count) in sizes {
            for _ in 0..count {
                let block = self.allocate(stream, bytes)?;
                if block.is_fallback() {
                    // The device is full: the host's memory is not warmed up for it.
                    return Ok(live.iter().map(DeviceBlock::bytes).sum());
                }
                live.push(block);
            }
        }
        Ok(live.iter().map(DeviceBlock::bytes).sum())
    }

    /// Allocates pinned host memory for a stream's copies, out of a pool of its own.
    ///
    /// Its bytes are undefined; no work of an earlier owner is in flight on it.
    ///
    /// # Errors
    /// As for [`Device::allocate`]; that the device has none.
    pub fn allocate_pinned(&self, stream: &Stream, bytes: u64, align: u64) -> Result<DeviceBlock, DeviceError> {
        self.side(stream, Request::new(bytes).align(align), HostMemory::Pinned)
    }

    /// Managed memory for a stream, out of a pool of its own.
    ///
    /// # Errors
    /// As for [`Device::allocate`]; that the device has none.
    pub(crate) fn allocate_managed(&self, stream: &Stream, bytes: u64, align: u64) -> Result<DeviceBlock, DeviceError> {
        self.side(stream, Request::new(bytes).align(align), HostMemory::Managed)
    }

    fn side(&self, stream: &Stream, request: Request, side: HostMemory) -> Result<DeviceBlock, DeviceError> {
        self.service.check_stream(stream.core())?;
        let block = self.service.serve_host_memory(stream.core(), request, side)?;
        let extra = BlockExtra::new(BlockOrigin::Host(side));
        Ok(DeviceBlock::with(block, Arc::clone(stream.core()), extra))
    }

    #[inline]
    fn request(&self, stream: &Stream, request: Request, fallback: bool) -> Result<DeviceBlock, DeviceError> {
        let home = stream.core();
        if std::ptr::addr_eq(Arc::as_ptr(&self.service), Arc::as_ptr(&home.service))
            && let Some((block, home)) = home.hit(request)
        {
            return Ok(DeviceBlock::new(block, home));
        }
        self.miss(stream, request, fallback)
    }

    #[cold]
    fn miss(&self, stream: &Stream, request: Request, fallback: bool) -> Result<DeviceBlock, DeviceError> {
        self.service.check_stream(stream.core())?;
        let (block, origin) = self.service.serve(stream.core(), request, fallback)?;
        let home = Arc::clone(stream.core());
        Ok(match origin {
            BlockOrigin::Pool => DeviceBlock::new(block, home),
            origin => DeviceBlock::with(block, home, BlockExtra::new(origin)),
        })
    }

    /// Wraps memory that was not allocated here as a block of this device.
    ///
    /// Once the block is dropped and its streams are done, it is handed to `release`; without one it stays its owner's.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`]; [`DeviceError::BadRequest`] for no bytes.
    ///
    /// # Safety
    /// The range is memory that this device can use, for as long as the block lives and its streams use it; all other
    /// writes to it meanwhile are in stream order. `release` is called by a later call on the device, without a lock; it must
    /// not own a block of the device.
    pub unsafe fn wrap(
        &self,
        stream: &Stream,
        address: u64,
        bytes: u64,
        release: Option<Release>,
    ) -> Result<DeviceBlock, DeviceError> {
        self.service.check_stream(stream.core())?;
        if bytes == 0 || address.checked_add(bytes).is_none() {
            let rule = "wrapped memory has at least one byte and an end";
            return Err(DeviceError::BadRequest { bytes, align: 1, rule });
        }
        let block = Block { address, bytes, slot: u32::MAX, region: 0, ticket: 0 };
        let extra = BlockExtra { release, ..BlockExtra::new(BlockOrigin::Foreign) };
        Ok(DeviceBlock::with(block, Arc::clone(stream.core()), extra))
    }

    /// The user's own memory, pinned, as a block of this device. Dropped, it is unpinned once its streams are done, and handed
    /// to `rest` then; where the driver refuses, it stays pinned, and `rest` is not called.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`]; that the device cannot; the driver's error. The memory is as it was.
    ///
    /// # Safety
    /// The range is memory of this process, and stays so until `rest` has it, or the taker of the block's release has
    /// unregistered the memory.
    pub(crate) unsafe fn pin(
        &self,
        stream: &Stream,
        (address, bytes): (u64, u64),
        rest: impl FnOnce(u64) + Send + Sync + 'static,
    ) -> Result<DeviceBlock, DeviceError> {
        self.service.check_stream(stream.core())?;
        // SAFETY: the caller's promise.
        unsafe { self.service.register(address, bytes) }?;
        // SAFETY: a release is called once, when the streams of its block are done.
        let unregister = unsafe { self.service.unregister_later() };
        let release: Release = Box::new(move |address, _| {
            if unregister(address) {
                rest(address);
            }
        });
        let block = Block { address, bytes, slot: u32::MAX, region: 0, ticket: 0 };
        let extra = BlockExtra { release: Some(release), ..BlockExtra::new(BlockOrigin::Foreign) };
        Ok(DeviceBlock::with(block, Arc::clone(stream.core()), extra))
    }

    /// Memory of the device as of now. On devices that share the host's, what the system calls available.
    ///
    /// # Errors
    /// The driver's error.
    pub fn memory(&self) -> Result<Memory, DeviceError> {
        self.service.memory()
    }

    /// How full the pool's share of the device is.
    pub fn pressure(&self) -> Level {
        let pool = self.stats().pool;
        let begins = self.service.options().pressure.map(|share| (share * 1000.0).round() as u64);
        level_from(pool.in_use, pool.capacity, begins)
    }

    /// Counters.
    pub fn stats(&self) -> DeviceStats {
        self.service.stats()
    }

    /// Empties the streams' caches into the pool.
    pub fn clear(&self) {
        self.service.trim(false);
    }

    /// Releases all unused memory to the driver; returns its bytes. Waits for what is in flight.
    pub fn trim(&self) -> u64 {
        self.service.trim(true)
    }

    /// Releases unused memory if more than `bytes` are taken from the driver; returns its bytes.
    pub fn shrink(&self, bytes: u64) -> u64 {
        if self.stats().pool.reserved > bytes { self.trim() } else { 0 }
    }

    /// Lets the streams' caches follow the pressure: smaller above 80 %, larger below 30 %.
    pub fn adapt(&self) {
        let options = self.service.options();
        let (min, max) = (options.cached / 16, options.cached.saturating_mul(16));
        self.service.adapt(&CachePolicy { min, max, ..CachePolicy::default() });
    }

    /// Changes the most bytes to take from the driver; 0: no limit. What is over it stays.
    pub fn set_capacity(&self, bytes: u64) {
        self.service.set_capacity(bytes);
    }

    /// Sets the hook that is called when memory ran out.
    ///
    /// It may drop blocks, and says whether to try again. It is called again as long as memory came free; requests that it makes
    /// itself do not call it. What it owns lives until another is set: let it own no blocks or devices but through a `Weak`, or
    /// call [`Device::forget_hook`].
    pub fn on_out_of_memory(&self, hook: impl Fn(&OutOfMemory) -> bool + Send + Sync + 'static) {
        self.service.set_hook(Some(Arc::new(hook)));
    }

    /// No hook is called from now on; what it owned is dropped.
    pub fn forget_hook(&self) {
        self.service.set_hook(None);
    }

    /// Turns the fallback to pinned host memory on or off. Blocks that it gave stay.
    pub fn set_fallback(&self, on: bool) {
        self.service.set_fallback(on);
    }

    /// A private pool for captured graphs.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub fn graph_pool(&self) -> Result<GraphPool, DeviceError> {
        GraphPool::new(Arc::clone(&self.service))
    }

    /// Whether this device can use another's memory without going through the host.
    pub fn can_reach(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.description(), other.description());
        mine.backend == theirs.backend && mine.ordinal != theirs.ordinal && self.service.can_reach(theirs.ordinal)
    }

    /// Lets kernels on this device use another's blocks, now and later.
    ///
    /// # Errors
    /// The driver's: for devices that cannot reach each other, that it is not supported.
    pub fn reach(&self, other: &Self) -> Result<(), DeviceError> {
        if self.description().backend != other.description().backend {
            let fault = Fault::of("reach a device of another kind", FaultReason::Unsupported);
            return Err(DeviceError::Driver { device: self.name().into(), fault });
        }
        self.service.reach(other.description().ordinal)?;
        other.service.share(self.description().ordinal)
    }

    /// How far a write is seen without a copy.
    pub fn visibility(&self) -> Visibility {
        self.description().capabilities.visibility()
    }

    /// Checks every invariant: of the arenas, the fences, the streams' caches, and the blocks that wait.
    ///
    /// O(n log n); for tests.
    ///
    /// # Errors
    /// The clause that does not hold.
    pub fn check(&self) -> Result<(), Violation> {
        self.service.check()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name()).finish_non_exhaustive()
    }
}
