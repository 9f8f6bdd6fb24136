//! One device as PyTorch sees it: streams are handles, pools are ids.
//!
//! Promises upward: a block may be freed as soon as its allocation returns; each stream handle is adopted once.
//! Asks from below: [`Device`] over the CUDA driver.
//!
//! # Special handles
//! 0 and 1 are the legacy default stream. 2 is the per-thread default stream: one handle for a different stream on each
//! thread, so stream order does not hold between two uses of it. A block allocated for it belongs to an idle stream of
//! this library and is marked as used on the legacy stream, whose event waits for the default streams of all threads.

use crate::failure::{FailureKind, TorchFailure};
use crate::filter::Filter;
use crate::pools::{PoolId, PoolScopes};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, RwLock};
use terrace_cuda::Cuda;
use terrace_device::{Backend, Capabilities, Device, DeviceBlock, DeviceError, DeviceOptions, RawStream, Stream};

const LEGACY: u64 = 0;
const LEGACY_ALIAS: u64 = 1;
const PER_THREAD: u64 = 2;

/// Maps the two handles of the legacy default stream to one.
fn canonical_handle(handle: u64) -> u64 {
    if handle == LEGACY_ALIAS { LEGACY } else { handle }
}

/// An open device, and the streams and pools that PyTorch uses on it.
pub struct TorchDevice {
    pub ordinal: usize,
    pub inner: Device,
    /// Adopted streams by handle; handles 1 and 2 never occur. PyTorch never destroys its streams.
    streams: RwLock<HashMap<u64, Stream>>,
    scopes: PoolScopes,
    /// A stream without work, created when first needed.
    idle: Mutex<Option<Stream>>,
    /// Blocks that some unknown stream may still use. They are freed with the device, which first waits for all of its
    /// work.
    quarantined: Mutex<Vec<DeviceBlock>>,
}

impl TorchDevice {
    pub fn open(ordinal: usize, options: DeviceOptions) -> Result<Self, TorchFailure> {
        let number = u32::try_from(ordinal).unwrap_or(u32::MAX);
        let cuda = Cuda::open(number)
            .map_err(|error| TorchFailure::new(FailureKind::Device, format!("terrace, device {ordinal}: {error}")))?;
        // Like PyTorch's allocator, leaves no reserve on a device with memory of its own; keeps one where the host
        // shares the memory.
        let shared = cuda.description().capabilities.contains(Capabilities::FREE_IS_AVAILABLE);
        let options = DeviceOptions { min_free: if shared { options.min_free } else { 0 }, ..options };
        let inner = Device::open(cuda, options).map_err(|error| TorchFailure::of_device(ordinal, &error))?;
        Ok(Self {
            ordinal,
            inner,
            streams: RwLock::default(),
            scopes: PoolScopes::default(),
            idle: Mutex::default(),
            quarantined: Mutex::default(),
        })
    }

    /// Allocates a block for work on a stream; returns the block, and the id of its graph pool, if any.
    pub fn allocate(&self, bytes: u64, handle: u64) -> Result<(DeviceBlock, Option<PoolId>), DeviceError> {
        let handle = canonical_handle(handle);
        if handle == PER_THREAD {
            let block = self.inner.allocate(&self.idle()?, bytes)?;
            block.used_on(&self.stream(LEGACY)?)?;
            return Ok((block, None));
        }
        let stream = self.stream(handle)?;
        self.scopes.allocate(handle, &stream, || self.inner.allocate(&stream, bytes))
    }

    /// Marks a block as used on a stream.
    pub fn used_on(&self, block: &DeviceBlock, handle: u64) -> Result<(), DeviceError> {
        let handle = match canonical_handle(handle) {
            PER_THREAD => LEGACY,
            handle => handle,
        };
        let stream = self.stream(handle)?;
        self.scopes.route_use(handle, &stream)?;
        block.used_on(&stream)
    }

    /// Before a free, marks the block as used on `on`, the stream that PyTorch's free names.
    ///
    /// Does not mark it if `on` is its `home` stream. The caller must then drop the block.
    pub fn prepare_free(&self, block: &DeviceBlock, home: u64, on: u64) -> Result<(), DeviceError> {
        let (home, on) = (canonical_handle(home), canonical_handle(on));
        if home != on {
            self.used_on(block, on)?;
        }
        if home == PER_THREAD {
            return Ok(());
        }
        self.scopes.route_use(home, &self.stream(home)?)
    }

    /// Keeps a block that some unknown stream may still use: it is not reused while the device is open.
    pub fn quarantine(&self, block: DeviceBlock) {
        self.quarantined.lock().unwrap_or_else(PoisonError::into_inner).push(block);
    }

    /// Opens a scope: until [`end`](Self::end), allocations that the filter accepts come from the pool.
    pub fn begin(&self, id: PoolId, filter: Filter) -> Result<(), DeviceError> {
        // While a device has only one stream, frees record no events, and once that stream is captured, none can be
        // recorded for them. A second stream, which is never captured, makes the device record events from now on.
        self.idle()?;
        self.scopes.begin(&self.inner, id, filter)
    }

    pub fn end(&self, id: PoolId) -> bool {
        self.scopes.end(id)
    }

    pub fn release(&self, id: PoolId) -> bool {
        self.scopes.release(id)
    }

    /// Returns the stream of a handle, which it adopts at first use.
    fn stream(&self, handle: u64) -> Result<Stream, DeviceError> {
        if let Some(stream) = self.streams.read().unwrap_or_else(PoisonError::into_inner).get(&handle) {
            return Ok(stream.clone());
        }
        // SAFETY: PyTorch passes streams of this device and never destroys its own. If other code made a stream and
        // destroyed it, the device detects that, at the cost of waiting for all of its work.
        let stream = unsafe { self.inner.adopt_stream(RawStream(handle)) }?;
        // If two threads race here, both have adopted the same stream, and either result is valid.
        self.streams.write().unwrap_or_else(PoisonError::into_inner).insert(handle, stream.clone());
        Ok(stream)
    }

    fn idle(&self) -> Result<Stream, DeviceError> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = &*idle {
            return Ok(stream.clone());
        }
        let stream = self.inner.stream()?;
        *idle = Some(stream.clone());
        Ok(stream)
    }
}
