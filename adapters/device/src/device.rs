//! [`Device`]: the handle of a device that users hold.

use crate::backend::{Backend, RawStream};
use crate::block::DeviceBlock;
use crate::capability::{Description, Memory, Visibility};
use crate::capture::GraphPool;
use crate::error::DeviceError;
use crate::fault::{Fault, FaultReason};
use crate::host::HostBackend;
use crate::options::DeviceOptions;
use crate::out_of_memory::OutOfMemory;
use crate::pool::DevicePool;
use crate::stats::DeviceStats;
use crate::stream::{BlockExtra, BlockOrigin, HostMemory, Release, Service, Stream};
use std::fmt;
use std::sync::Arc;
use terrace_core::{Block, Request, Violation};

/// One device and its memory. Clones are handles to the same device.
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
    pub(crate) service: Arc<dyn Service>,
}

impl Device {
    /// Opens a device over any backend.
    ///
    /// # Errors
    /// [`DeviceError::BadOption`]; the backend's error.
    pub fn open(backend: impl Backend, options: DeviceOptions) -> Result<Self, DeviceError> {
        Ok(Self { service: DevicePool::open(backend, options)? })
    }

    /// Opens the host's memory as a device. Work is done at once, in order of call.
    pub fn host() -> Self {
        // The default options are valid, and the host backend makes no call here that can fail.
        match Self::open(HostBackend::new(), DeviceOptions::default()) {
            Ok(device) => device,
            Err(error) => unreachable!("the host backend opens with default options: {error}"),
        }
    }

    /// The device's pool.
    pub(crate) fn service(&self) -> &Arc<dyn Service> {
        &self.service
    }

    /// Whether a block belongs to this device.
    pub(crate) fn owns(&self, block: &DeviceBlock) -> bool {
        self.service.is(block.service())
    }

    /// What the device is and can do.
    pub fn description(&self) -> &Description {
        self.service.description()
    }

    /// The device's name, as the driver reports it.
    pub fn name(&self) -> &str {
        &self.description().name
    }

    /// Creates a stream.
    ///
    /// # Errors
    /// The driver's error.
    pub fn stream(&self) -> Result<Stream, DeviceError> {
        self.service.open_stream().map(Stream::new)
    }

    /// Adopts a stream that other code created. Adopting the same handle again returns the same stream.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The handle must be a live stream of this device until all clones of the result, and all blocks and transfers of
    /// it, are gone. If other code destroys it earlier, and the driver refuses handles that it does not know, the pool
    /// waits for the whole device instead of the stream.
    pub unsafe fn adopt_stream(&self, raw: RawStream) -> Result<Stream, DeviceError> {
        self.service.adopt_stream(raw, None).map(Stream::new)
    }

    /// Adopts a stream that stays alive as long as `keeper` does.
    ///
    /// `keeper` is dropped when no stream or block of this device uses the handle any more, on any thread. Its drop may use devices, but must
    /// not wait for another thread that does.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// The handle must be a live stream of this device until `keeper` is dropped.
    pub unsafe fn adopt_kept_stream(
        &self,
        raw: RawStream,
        keeper: impl Send + Sync + 'static,
    ) -> Result<Stream, DeviceError> {
        self.service.adopt_stream(raw, Some(Box::new(keeper))).map(Stream::new)
    }

    /// Allocates at least `bytes` bytes for work on a stream, aligned to the granule.
    ///
    /// The granule is 256 bytes unless set otherwise, or more where the driver asks for it: [`Device::granule`].
    ///
    /// If the stream's cache holds a block of this size, the call costs a look-up: no driver call, no event.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`]; [`DeviceError::BadRequest`]; [`DeviceError::OtherDevice`].
    #[inline]
    pub fn allocate(&self, stream: &Stream, bytes: u64) -> Result<DeviceBlock, DeviceError> {
        self.request(stream, Request::new(bytes), true)
    }

    /// Allocates memory at an alignment in bytes, a power of two up to 2 MiB.
    ///
    /// # Errors
    /// As for [`Device::allocate`].
    #[inline]
    pub fn allocate_aligned(&self, stream: &Stream, bytes: u64, align: u64) -> Result<DeviceBlock, DeviceError> {
        self.request(stream, Request::new(bytes).align(align), true)
    }

    /// As [`Self::allocate_aligned`], without the fallback to pinned host memory.
    pub(crate) fn allocate_own(&self, stream: &Stream, bytes: u64, align: u64) -> Result<DeviceBlock, DeviceError> {
        self.request(stream, Request::new(bytes).align(align), false)
    }

    /// Allocates and frees blocks, so that later allocations find them cached; returns their bytes.
    ///
    /// `blocks` lists sizes in bytes and how many of each. List the blocks that are live at the peak of a later step;
    /// if only the bytes at the peak are known, list 32 blocks of a 32nd of them.
    ///
    /// # Errors
    /// As for [`Device::allocate`]; blocks allocated before the error stay cached.
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
        // All blocks are live at once, or the second would reuse the first's memory; best fit packs the largest first.
        let mut sizes = blocks.to_vec();
        sizes.sort_unstable_by_key(|&(bytes, _)| std::cmp::Reverse(bytes));
        let mut live = Vec::new();
        for (bytes, count) in sizes {
            for _ in 0..count {
                let block = self.allocate(stream, bytes)?;
                if block.is_fallback() {
                    // The device is full: a fallback to pinned host memory warms up nothing.
                    return Ok(live.iter().map(DeviceBlock::bytes).sum());
                }
                live.push(block);
            }
        }
        Ok(live.iter().map(DeviceBlock::bytes).sum())
    }

    /// Allocates pinned host memory for a stream's copies, from a separate pool.
    ///
    /// Its bytes are undefined; no work of an earlier owner is in flight on it.
    ///
    /// # Errors
    /// As for [`Device::allocate`]; an error if the device has no pinned memory.
    pub fn allocate_pinned(&self, stream: &Stream, bytes: u64, align: u64) -> Result<DeviceBlock, DeviceError> {
        self.side(stream, Request::new(bytes).align(align), HostMemory::Pinned)
    }

    /// Allocates managed memory for a stream, from a separate pool.
    ///
    /// # Errors
    /// As for [`Device::allocate`]; an error if the device has no managed memory.
    pub(crate) fn allocate_managed(&self, stream: &Stream, bytes: u64, align: u64) -> Result<DeviceBlock, DeviceError> {
        self.side(stream, Request::new(bytes).align(align), HostMemory::Managed)
    }

    fn side(&self, stream: &Stream, request: Request, side: HostMemory) -> Result<DeviceBlock, DeviceError> {
        self.service.check_stream(stream.core())?;
        let block = self.service.serve_host_memory(stream.core(), request, side)?;
        let extra = BlockExtra::new(BlockOrigin::Host(side));
        Ok(DeviceBlock::with(block, request, Arc::clone(stream.core()), extra))
    }

    #[inline]
    fn request(&self, stream: &Stream, request: Request, fallback: bool) -> Result<DeviceBlock, DeviceError> {
        let home = stream.core();
        if std::ptr::addr_eq(Arc::as_ptr(&self.service), Arc::as_ptr(&home.service))
            && let Some((block, home)) = home.hit(request)
        {
            return Ok(DeviceBlock::new(block, request, home));
        }
        self.miss(stream, request, fallback)
    }

    #[cold]
    fn miss(&self, stream: &Stream, request: Request, fallback: bool) -> Result<DeviceBlock, DeviceError> {
        self.service.check_stream(stream.core())?;
        let served = self.service.serve(stream.core(), request, fallback)?;
        Ok(DeviceBlock::served(served, request, Arc::clone(stream.core())))
    }

    /// Wraps memory that was not allocated here as a block of this device.
    ///
    /// Once the block is dropped and its streams are done, `release` gets the memory; without one its owner keeps it.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`]; [`DeviceError::BadRequest`] for no bytes.
    ///
    /// # Safety
    /// The range must be memory that this device can access while the block lives and its streams use it; all other
    /// writes to it in that time must be in stream order. A later call on the device calls `release`, with no lock
    /// held; `release` must not own a block of the device.
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
        Ok(DeviceBlock::with(block, Request::new(bytes), Arc::clone(stream.core()), extra))
    }

    /// Pins memory of the user as a block of this device. Once the block is dropped and its streams are done, the
    /// memory is unpinned and passed to `rest`; if the driver refuses to unpin it, `rest` is not called.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`]; an error if the device cannot pin; the driver's error. The memory is unchanged
    /// then.
    ///
    /// # Safety
    /// The range must be memory of this process until `rest` is called with it, or until the caller that removed the
    /// block's release callback has unregistered it.
    pub(crate) unsafe fn pin(
        &self,
        stream: &Stream,
        (address, bytes): (u64, u64),
        rest: impl FnOnce(u64) + Send + Sync + 'static,
    ) -> Result<DeviceBlock, DeviceError> {
        self.service.check_stream(stream.core())?;
        // SAFETY: the caller's promise.
        unsafe { self.service.register(address, bytes) }?;
        // SAFETY: a block's release callback is called once, when the streams of the block are done.
        let unregister = unsafe { self.service.unregister_later() };
        let release: Release = Box::new(move |address, _| {
            if unregister(address) {
                rest(address);
            }
        });
        let block = Block { address, bytes, slot: u32::MAX, region: 0, ticket: 0 };
        let extra = BlockExtra { release: Some(release), ..BlockExtra::new(BlockOrigin::Foreign) };
        Ok(DeviceBlock::with(block, Request::new(bytes), Arc::clone(stream.core()), extra))
    }

    /// Free and total memory as of now; where it is the host's, free means the system's available memory.
    ///
    /// # Errors
    /// The driver's error.
    pub fn memory(&self) -> Result<Memory, DeviceError> {
        self.service.memory()
    }

    /// Counters of the device.
    pub fn stats(&self) -> DeviceStats {
        self.service.stats()
    }

    /// Limits the bytes reserved from the driver; 0 removes the limit. Memory reserved beyond it stays.
    pub fn set_capacity(&self, bytes: u64) {
        self.service.set_capacity(bytes);
    }

    /// Sets a hook that is called when an allocation finds no memory.
    ///
    /// The hook may drop blocks, and returns whether to try again. It is called again as long as it freed memory; its
    /// own allocations do not call it. It lives until another hook is set: it must own blocks or devices by a `Weak`
    /// only, or the caller must call [`Device::forget_hook`].
    pub fn on_out_of_memory(&self, hook: impl Fn(&OutOfMemory) -> bool + Send + Sync + 'static) {
        self.service.set_hook(Some(Arc::new(hook)));
    }

    /// Removes the hook and drops it.
    pub fn forget_hook(&self) {
        self.service.set_hook(None);
    }

    /// Turns the fallback to pinned host memory on or off. Existing fallback blocks stay.
    pub fn set_fallback(&self, on: bool) {
        self.service.set_fallback(on);
    }

    /// Creates a private memory pool for captured graphs.
    ///
    /// # Errors
    /// [`DeviceError::Lost`].
    pub fn graph_pool(&self) -> Result<GraphPool, DeviceError> {
        GraphPool::new(Arc::clone(&self.service))
    }

    /// Whether this device can access another's memory without going through the host.
    pub fn can_reach(&self, other: &Self) -> bool {
        let (mine, theirs) = (self.description(), other.description());
        mine.backend == theirs.backend && mine.ordinal != theirs.ordinal && self.service.can_reach(theirs.ordinal)
    }

    /// Lets kernels on this device access another's blocks, present and future ones.
    ///
    /// # Errors
    /// The driver's error: [`FaultReason::Unsupported`] for devices that cannot reach each other.
    pub fn reach(&self, other: &Self) -> Result<(), DeviceError> {
        if self.description().backend != other.description().backend {
            let fault = Fault::of("reach a device of another kind", FaultReason::Unsupported);
            return Err(DeviceError::Driver { device: self.name().into(), fault });
        }
        self.service.reach(other.description().ordinal)?;
        other.service.share(self.description().ordinal)
    }

    /// Smallest step of sizes in bytes; each block begins at a multiple of it.
    pub fn granule(&self) -> u64 {
        self.service.options().granule
    }

    /// Where a write to managed memory is visible without a copy.
    pub fn visibility(&self) -> Visibility {
        self.description().capabilities.visibility()
    }

    /// Checks every invariant: of the arenas, the fences, the streams' caches, and the held blocks.
    ///
    /// O(n log n); for tests.
    ///
    /// # Errors
    /// The clause that is violated.
    pub fn check(&self) -> Result<(), Violation> {
        self.service.check()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name()).finish_non_exhaustive()
    }
}
