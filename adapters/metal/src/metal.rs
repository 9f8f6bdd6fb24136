//! A device of Metal's: how it is opened, and what users take from it for encoders of their own.
//!
//! Promises upward: [`Metal`] is a handle; its clones are the same device. Streams and events are numbers that are never used twice.
//! Asks from below: the process's Metal device.

use crate::error::MetalError;
use crate::region::{MetalBuffer, SharedRegion};
use crate::rules::CAPABILITIES;
use crate::stream::{MetalCommands, MetalStream};
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSProcessInfo;
use objc2_metal::{MTLCommandQueue, MTLCreateSystemDefaultDevice, MTLDevice, MTLGPUFamily};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use terrace_device::{Description, Device, DeviceError, Fault, FaultReason, ObjectSpace, RawStream, Stream};
use terrace_guard::{Process, ProcessOwned};

// A program without a window does not link this by itself, and the system's device is found through it.
#[link(name = "CoreGraphics", kind = "framework")]
unsafe extern "C" {}

/// The next stream or event of the process. It does not begin at 1, so that a stream of another backend is no stream here.
static NEXT: AtomicU64 = AtomicU64::new(0x4d45_5441_4c00_0000);

/// A Metal device, as a backend of `terrace-device`.
///
/// A clone is the same device: keep one to encode work of your own on the memory of the `Device` that has the other.
///
/// # Example
/// ```no_run
/// use terrace_device::{Device, DeviceBuffer, DeviceOptions};
/// use terrace_metal::Metal;
///
/// let metal = Metal::open()?;
/// let device = Device::open(metal.clone(), DeviceOptions::default())?;
/// let ones = DeviceBuffer::from_slice(&device, &device.stream()?, &[1.0f32; 1000])?;
/// // SAFETY: the buffer is only asked for its size.
/// let (buffer, offset) = unsafe { metal.buffer(ones.address()) }.expect("memory of this device");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Metal {
    /// A forked child releases nothing: Metal does not work there.
    pub(crate) parts: ProcessOwned<Arc<MetalParts>>,
}

/// What clones of a device share.
pub(crate) struct MetalParts {
    pub(crate) device: Retained<ProtocolObject<dyn MTLDevice>>,
    pub(crate) description: Description,
    /// All memory, by the host's addresses.
    pub(crate) space: ObjectSpace<Arc<SharedRegion>>,
    streams: Mutex<Streams>,
    /// For each event the submission that it was recorded after; none before it is recorded.
    events: Mutex<BTreeMap<u64, Option<Recorded>>>,
    /// The first command buffer that failed.
    failure: Arc<OnceLock<Fault>>,
}

/// A stream's submission.
pub(crate) type Recorded = (Arc<MetalStream>, u64);

#[derive(Default)]
struct Streams {
    live: BTreeMap<u64, Arc<MetalStream>>,
    /// Destroyed, with work in flight when that was last looked at.
    parting: Vec<Arc<MetalStream>>,
}

impl Metal {
    /// Opens the system's device.
    ///
    /// # Errors
    /// [`MetalError`], which says what is missing.
    pub fn open() -> Result<Self, MetalError> {
        first_process()?;
        Self::with_device(MTLCreateSystemDefaultDevice().ok_or(MetalError::NoDevice)?)
    }

    /// Opens a device that the program has already.
    ///
    /// # Errors
    /// [`MetalError::NotAppleSilicon`]; [`MetalError::Forked`].
    pub fn with_device(device: Retained<ProtocolObject<dyn MTLDevice>>) -> Result<Self, MetalError> {
        if let Err(error) = first_process() {
            std::mem::forget(device);
            return Err(error);
        }
        let description = autoreleasepool(|_| describe(&device))?;
        let (space, streams, events) = (ObjectSpace::new(), Mutex::default(), Mutex::default());
        Ok(Self {
            parts: ProcessOwned::new(Arc::new(MetalParts {
                device,
                description,
                space,
                streams,
                events,
                failure: Arc::default(),
            })),
        })
    }

    /// What clones share, refused in a forked child before a lock is touched, which another thread of the parent may have held.
    #[inline]
    pub(crate) fn own(&self, call: &'static str) -> Result<&Arc<MetalParts>, Fault> {
        if self.parts.is_own() { Ok(&self.parts) } else { Err(Fault::of(call, FaultReason::Forked)) }
    }

    /// The device as Metal's own type, for libraries and pipelines.
    pub fn device(&self) -> &ProtocolObject<dyn MTLDevice> {
        &self.parts.device
    }

    /// The buffer around an address, and the offset in it; `None` outside of this device's memory.
    ///
    /// Other blocks lie in the same buffer. Metal does not track it: two encoders of one command buffer that use the same bytes need a
    /// fence between them. O(log regions).
    ///
    /// # Safety
    /// Work that uses the buffer must keep to bytes of blocks that the caller could pass to a kernel: live until the work is done, borrowed
    /// by no other code meanwhile, and in order on a stream ([`Metal::submit`]).
    pub unsafe fn buffer(&self, address: u64) -> Option<(Retained<MetalBuffer>, usize)> {
        let (region, offset) = self.own("contents").ok()?.space.find(address)?;
        Some((region.buffer().clone(), usize::try_from(offset).ok()?))
    }

    /// Puts a command buffer of the caller's on a stream, after all work before it.
    ///
    /// `encode` must end its encoders; it must not commit, wait for the stream, nor put other work on it. If it panics, nothing of it runs
    /// (Metal itself may end the process for an encoder that is released open).
    /// The command buffer may wait for events of the caller's, and signal them. Blocks while another thread encodes for the stream, and while
    /// its queue is full (64 command buffers in flight).
    ///
    /// # Errors
    /// [`FaultReason::BadHandle`] for a stream of another device; [`FaultReason::Unsupported`] inside another `encode` for the stream, also for
    /// an allocation that has to wait for other work; [`FaultReason::Other`] if `encode` committed; the device's first failure, once work has
    /// failed.
    pub fn submit(&self, stream: &Stream, encode: impl FnOnce(&MetalCommands)) -> Result<(), Fault> {
        self.own("commandBuffer")?.stream(stream.raw())?.submit(|commands| {
            encode(commands);
            Ok(())
        })
    }

    /// Makes a stream of a command queue of the caller's, on `device`, which must be opened over this one.
    ///
    /// Only what is put on the stream is ordered with it, not what the caller commits to the queue otherwise.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`] if the queue or `device` belongs to another device; the driver's error.
    pub fn adopt(
        &self,
        device: &Device,
        queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    ) -> Result<Stream, DeviceError> {
        let (ours, theirs) = (&self.parts.description, device.description());
        if let Err(fault) = self.own("commandQueue") {
            std::mem::forget(queue);
            return Err(DeviceError::Driver { device: ours.name.clone(), fault });
        }
        if theirs.backend != ours.backend || queue.device().registryID() != self.parts.device.registryID() {
            let (of, asked) = (queue.device().name().to_string(), device.name().into());
            return Err(DeviceError::OtherDevice { block: None, of, asked });
        }
        let fault = |fault| DeviceError::Driver { device: ours.name.clone(), fault };
        let raw = self.parts.add_stream(queue).map_err(fault)?;
        let keeper = AdoptedQueue { parts: self.parts.clone(), raw };
        // SAFETY: a stream of this device, which the keeper destroys when it is dropped.
        unsafe { device.adopt_kept_stream(raw, keeper) }
    }
}

/// Destroys the stream over a queue of the user's, once nothing uses it any more.
struct AdoptedQueue {
    parts: ProcessOwned<Arc<MetalParts>>,
    raw: RawStream,
}

impl Drop for AdoptedQueue {
    fn drop(&mut self) {
        if self.parts.is_own() {
            let _ = self.parts.remove_stream(self.raw);
        }
    }
}

impl MetalParts {
    /// A number for a stream or event.
    fn number() -> u64 {
        NEXT.fetch_add(1, Ordering::Relaxed)
    }

    /// The stream of a handle.
    pub(crate) fn stream(&self, stream: RawStream) -> Result<Arc<MetalStream>, Fault> {
        lock(&self.streams).live.get(&stream.0).cloned().ok_or(Fault::of("stream", FaultReason::BadHandle))
    }

    /// Makes a stream of a queue.
    pub(crate) fn add_stream(&self, queue: Retained<ProtocolObject<dyn MTLCommandQueue>>) -> Result<RawStream, Fault> {
        let (number, stream) = (Self::number(), MetalStream::new(queue, &self.failure)?);
        lock(&self.streams).live.insert(number, Arc::new(stream));
        Ok(RawStream(number))
    }

    /// Removes a stream, whose work in flight is still waited for by [`MetalParts::all_streams`].
    pub(crate) fn remove_stream(&self, stream: RawStream) -> Result<(), Fault> {
        let mut streams = lock(&self.streams);
        let parting = streams.live.remove(&stream.0).ok_or(Fault::of("destroy stream", FaultReason::BadHandle))?;
        streams.parting.push(parting);
        streams.parting.retain(|stream| stream.submissions().is_idle() != Ok(true));
        Ok(())
    }

    /// Each stream with work that may be in flight.
    pub(crate) fn all_streams(&self) -> Vec<Arc<MetalStream>> {
        let streams = lock(&self.streams);
        streams.live.values().chain(&streams.parting).cloned().collect()
    }

    /// Makes an event.
    pub(crate) fn add_event(&self) -> u64 {
        let number = Self::number();
        lock(&self.events).insert(number, None);
        number
    }

    /// Removes an event.
    pub(crate) fn remove_event(&self, event: u64) -> Result<(), Fault> {
        lock(&self.events).remove(&event).map(drop).ok_or(Fault::of("destroy event", FaultReason::BadHandle))
    }

    /// Records an event after a submission.
    pub(crate) fn record(&self, event: u64, after: Recorded) -> Result<(), Fault> {
        let mut events = lock(&self.events);
        *events.get_mut(&event).ok_or(Fault::of("record event", FaultReason::BadHandle))? = Some(after);
        Ok(())
    }

    /// The submission that an event was recorded after.
    pub(crate) fn recorded(&self, event: u64) -> Result<Option<Recorded>, Fault> {
        lock(&self.events).get(&event).cloned().ok_or(Fault::of("event", FaultReason::BadHandle))
    }
}

/// Refuses a forked child of the process that used Metal first.
fn first_process() -> Result<(), MetalError> {
    static FIRST: OnceLock<Process> = OnceLock::new();
    if FIRST.get_or_init(Process::current).is_current() { Ok(()) } else { Err(MetalError::Forked) }
}

/// Each of the locked tables is whole between any two statements, also after a panic.
fn lock<T>(table: &Mutex<T>) -> MutexGuard<'_, T> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the device is, if it is one of Apple's own.
fn describe(device: &ProtocolObject<dyn MTLDevice>) -> Result<Description, MetalError> {
    let name = device.name().to_string();
    // Heaps in shared storage need both: Intel's integrated GPUs have the first alone.
    if !device.hasUnifiedMemory() || !device.supportsFamily(MTLGPUFamily::Apple1) {
        return Err(MetalError::NotAppleSilicon { name });
    }
    let system = NSProcessInfo::processInfo().operatingSystemVersion();
    Ok(Description {
        backend: "metal",
        ordinal: 0,
        name,
        driver: format!("Metal of macOS {}.{}", system.majorVersion, system.minorVersion),
        total: device.recommendedMaxWorkingSetSize(),
        page_bytes: 0,
        peers: Vec::new(),
        strangers: Vec::new(),
        capabilities: CAPABILITIES,
        notes: vec![
            "no pages: Metal maps no memory into a buffer that is there, so memory comes in segments".into(),
            "no concurrent use of managed memory: the host sees writes once their command buffer is done".into(),
        ],
    })
}
