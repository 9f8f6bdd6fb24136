//! One device as PyTorch sees it: streams are handles, pools are ids.
//!
//! Promises upward: a block that is safe to free from the moment it is given; a handle is adopted once.
//! Asks from below: [`Device`] over the CUDA driver.
//!
//! # Handles that are no stream's
//! 0 and 1 are the legacy default stream. 2 is the per-thread one: a different stream on each thread under one handle, so
//! that nothing may be handed from one use of it to the next in order. Its blocks belong to a stream of our own on which
//! nothing is done, and count as used on the legacy stream, whose event waits for the default streams of all threads.

use crate::failure::{FailureKind, TorchFailure};
use crate::filter::Filter;
use crate::pools::{PoolId, PoolScopes};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, RwLock};
use terrace_cuda::Cuda;
use terrace_device::{Backend, Capabilities, Device, DeviceBlock, DeviceError, Options, RawStream, Stream};

const LEGACY: u64 = 0;
const LEGACY_ALIAS: u64 = 1;
const PER_THREAD: u64 = 2;

/// The handle under which a stream is known here.
fn canonical_handle(handle: u64) -> u64 {
    if handle == LEGACY_ALIAS { LEGACY } else { handle }
}

/// An open device.
pub struct TorchDevice {
    pub ordinal: usize,
    pub inner: Device,
    /// By handle, never 1 or 2. PyTorch keeps its streams as long as the process.
    streams: RwLock<HashMap<u64, Stream>>,
    scopes: PoolScopes,
    /// A stream on which nothing is done; made when it is first needed.
    idle: Mutex<Option<Stream>>,
    /// Blocks of which is not known what still uses them. They go with the device, which waits for everything then.
    quarantined: Mutex<Vec<DeviceBlock>>,
}

impl TorchDevice {
    pub fn open(ordinal: usize, options: Options) -> Result<Self, TorchFailure> {
        let number = u32::try_from(ordinal).unwrap_or(u32::MAX);
        let cuda = Cuda::open(number)
            .map_err(|error| TorchFailure::new(FailureKind::Device, format!("terrace, device {ordinal}: {error}")))?;
        // Memory that the device has for itself is taken whole, as PyTorch's allocator does.
        let shared = cuda.description().capabilities.contains(Capabilities::FREE_IS_AVAILABLE);
        let options = Options { min_free: if shared { options.min_free } else { 0 }, ..options };
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

    /// A block for work on a stream, and the pool it came from.
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

    /// Says that a stream uses a block.
    pub fn used_on(&self, block: &DeviceBlock, handle: u64) -> Result<(), DeviceError> {
        let handle = match canonical_handle(handle) {
            PER_THREAD => LEGACY,
            handle => handle,
        };
        let stream = self.stream(handle)?;
        self.scopes.route_use(handle, &stream)?;
        block.used_on(&stream)
    }

    /// A block of this stream is about to be freed; `on` is the stream that the free names.
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

    /// Keeps a block of which is not known what still uses it: nobody gets it again.
    pub fn quarantine(&self, block: DeviceBlock) {
        self.quarantined.lock().unwrap_or_else(PoisonError::into_inner).push(block);
    }

    /// From here on what the filter accepts goes to the pool.
    pub fn begin(&self, id: PoolId, filter: Filter) -> Result<(), DeviceError> {
        // A device's only stream frees without events, and none can be had of it while it is captured: with a second one that
        // never is, whichever streams are captured can be told from the others.
        self.idle()?;
        self.scopes.begin(&self.inner, id, filter)
    }

    pub fn end(&self, id: PoolId) -> bool {
        self.scopes.end(id)
    }

    pub fn release(&self, id: PoolId) -> bool {
        self.scopes.release(id)
    }

    /// The stream of a handle, adopted at its first use.
    fn stream(&self, handle: u64) -> Result<Stream, DeviceError> {
        if let Some(stream) = self.streams.read().unwrap_or_else(PoisonError::into_inner).get(&handle) {
            return Ok(stream.clone());
        }
        // SAFETY: PyTorch names streams of this device, and never destroys its own; one that somebody else made and
        // destroyed costs a wait for the whole device.
        let stream = unsafe { self.inner.adopt_stream(RawStream(handle)) }?;
        // Of two threads that come here at once both have the same stream.
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
