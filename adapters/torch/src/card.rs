//! One device as PyTorch sees it: streams are handles, pools are ids.
//!
//! Promises upward: a block that is safe to free from the moment it is given; a handle is adopted once.
//! Asks from below: [`Device`] over the CUDA driver.
//!
//! # Handles that are no stream's
//! 0 and 1 are the legacy default stream. 2 is the per-thread one: a different stream on each thread under one handle, so
//! that nothing may be handed from one use of it to the next in order. Its blocks belong to a stream of our own on which
//! nothing is done, and count as used on the legacy stream, whose event waits for the default streams of all threads.

use crate::captures::{Captures, PoolId};
use crate::failure::{Failure, Kind};
use crate::filter::Filter;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError, RwLock};
use terrace_cuda::Cuda;
use terrace_device::{Backend, Capabilities, Device, DeviceBlock, DeviceError, DeviceOptions, RawStream, Stream};

const LEGACY: u64 = 0;
const LEGACY_BY_NAME: u64 = 1;
const PER_THREAD: u64 = 2;

/// The handle under which a stream is known here.
fn one_name(handle: u64) -> u64 {
    if handle == LEGACY_BY_NAME { LEGACY } else { handle }
}

/// An open device.
pub struct Card {
    pub ordinal: usize,
    pub device: Device,
    /// By handle, never 1 or 2. PyTorch keeps its streams as long as the process.
    streams: RwLock<HashMap<u64, Stream>>,
    captures: Captures,
    /// A stream on which nothing is done; made when it is first needed.
    idle: Mutex<Option<Stream>>,
    /// Blocks of which is not known what still uses them. They go with the device, which waits for everything then.
    kept: Mutex<Vec<DeviceBlock>>,
}

impl Card {
    pub fn open(ordinal: usize, options: DeviceOptions) -> Result<Self, Failure> {
        let number = u32::try_from(ordinal).unwrap_or(u32::MAX);
        let cuda = Cuda::open(number)
            .map_err(|error| Failure::new(Kind::Device, format!("terrace, device {ordinal}: {error}")))?;
        // Memory that the device has for itself is taken whole, as PyTorch's allocator does.
        let shared = cuda.description().capabilities.contains(Capabilities::FREE_IS_AVAILABLE);
        let options = DeviceOptions { min_free: if shared { options.min_free } else { 0 }, ..options };
        let device = Device::open(cuda, options).map_err(|error| Failure::of_device(ordinal, &error))?;
        Ok(Self {
            ordinal,
            device,
            streams: RwLock::default(),
            captures: Captures::default(),
            idle: Mutex::default(),
            kept: Mutex::default(),
        })
    }

    /// A block for work on a stream, and the pool it came from.
    pub fn allocate(&self, bytes: u64, handle: u64) -> Result<(DeviceBlock, Option<PoolId>), DeviceError> {
        let handle = one_name(handle);
        if handle == PER_THREAD {
            let block = self.device.allocate(&self.idle()?, bytes)?;
            block.used_on(&self.stream(LEGACY)?)?;
            return Ok((block, None));
        }
        let stream = self.stream(handle)?;
        self.captures.allocate(handle, &stream, || self.device.allocate(&stream, bytes))
    }

    /// Says that a stream uses a block.
    pub fn used_on(&self, block: &DeviceBlock, handle: u64) -> Result<(), DeviceError> {
        let handle = match one_name(handle) {
            PER_THREAD => LEGACY,
            handle => handle,
        };
        let stream = self.stream(handle)?;
        self.captures.notice(handle, &stream)?;
        block.used_on(&stream)
    }

    /// A block of this stream is about to be freed; `on` is the stream that the free names.
    pub fn about_to_free(&self, block: &DeviceBlock, home: u64, on: u64) -> Result<(), DeviceError> {
        let (home, on) = (one_name(home), one_name(on));
        if home != on {
            self.used_on(block, on)?;
        }
        if home == PER_THREAD {
            return Ok(());
        }
        self.captures.notice(home, &self.stream(home)?)
    }

    /// Keeps a block of which is not known what still uses it: nobody gets it again.
    pub fn keep(&self, block: DeviceBlock) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).push(block);
    }

    /// From here on what the filter accepts goes to the pool.
    pub fn begin(&self, id: PoolId, filter: Filter) -> Result<(), DeviceError> {
        // A device's only stream frees without events, and none can be had of it while it is captured: with a second one that
        // never is, whichever streams are captured can be told from the others.
        self.idle()?;
        self.captures.begin(&self.device, id, filter)
    }

    pub fn end(&self, id: PoolId) -> bool {
        self.captures.end(id)
    }

    pub fn release(&self, id: PoolId) -> bool {
        self.captures.release(id)
    }

    /// The stream of a handle, adopted at its first use.
    fn stream(&self, handle: u64) -> Result<Stream, DeviceError> {
        if let Some(stream) = self.streams.read().unwrap_or_else(PoisonError::into_inner).get(&handle) {
            return Ok(stream.clone());
        }
        // SAFETY: PyTorch names streams of this device, and never destroys its own; one that somebody else made and
        // destroyed costs a wait for the whole device.
        let stream = unsafe { self.device.adopt_stream(RawStream(handle)) }?;
        // Of two threads that come here at once both have the same stream.
        self.streams.write().unwrap_or_else(PoisonError::into_inner).insert(handle, stream.clone());
        Ok(stream)
    }

    fn idle(&self) -> Result<Stream, DeviceError> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(stream) = &*idle {
            return Ok(stream.clone());
        }
        let stream = self.device.stream()?;
        *idle = Some(stream.clone());
        Ok(stream)
    }
}
