//! A device as a tier, and copies of buffers on it.
//!
//! Promises upward: one transfer at a time uses a copy, others wait; a transfer that was begun ends, whether or not it
//! is awaited; a failed one leaves its source as it was; a copy whose transfer a driver cannot account for is an error
//! from then on.
//! Asks from below: the device's transfer engine.

use super::error::Error;
use crate::ledger::Medium;
use async_lock::Mutex;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_device::{
    Capabilities, Device, DeviceBlock, DeviceBuffer, DeviceError, HostBuffer, HostSource, Stream, TransferEngine,
};
use terrace_file::{Executor, JoinHandle};

/// Number of streams that a device's copies use in rotation: waiting for one buffer's work delays one in this many
/// other buffers.
const STREAMS: usize = 8;

/// Memory that a device has left for a tier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes that the driver reports as free.
    free: u64,
    /// Bytes that the pool may still take from the driver within its capacity.
    allowed: u64,
    /// Bytes that the pool has taken from the driver and does not use.
    kept: u64,
}

impl Room {
    /// Bytes that new buffers can get, from the driver and from the pool.
    pub(super) fn bytes(&self) -> u64 {
        self.free.min(self.allowed).saturating_add(self.kept)
    }

    /// The capacity in bytes for a tier that uses `used` bytes, if the driver keeps `spare` bytes free for other users.
    pub(super) fn capacity(&self, used: u64, spare: u64) -> u64 {
        let own = used.saturating_add(self.kept);
        let left = own.saturating_add(self.free).saturating_sub(spare);
        left.min(own.saturating_add(self.allowed))
    }

    /// Whether the driver has fewer than `spare` bytes free, and trimming the pool would give it more.
    pub(super) fn is_short(&self, spare: u64) -> bool {
        self.free < spare && self.kept > 0
    }
}

/// A device as a tier.
pub(super) struct DeviceTier {
    device: Device,
    /// Streams on which memory is allocated, filled and freed.
    streams: Vec<Stream>,
    /// Number of copies allocated so far; selects the stream of the next one.
    next_stream: AtomicUsize,
    engine: TransferEngine,
}

impl DeviceTier {
    pub(super) fn open(device: &Device) -> Result<Self, Error> {
        let engine = TransferEngine::new(device)?;
        let streams = (0..STREAMS).map(|_| device.stream()).collect::<Result<_, _>>()?;
        Ok(Self { device: device.clone(), streams, next_stream: AtomicUsize::new(0), engine })
    }

    /// Whether a device uses the machine's memory as its own, at the same addresses.
    pub(super) fn shares_memory(device: &Device) -> bool {
        device.description().capabilities.contains(Capabilities::INTEGRATED | Capabilities::PINNED)
    }

    /// Name of the device for users, such as `cuda:0`.
    pub(super) fn name(&self) -> String {
        let description = self.device.description();
        format!("{}:{}", description.backend, description.ordinal)
    }

    /// Memory that the device has left for a tier of this medium.
    pub(super) fn room(&self, medium: Medium) -> Result<Room, Error> {
        let stats = self.device.stats();
        let pool = if medium == Medium::Device { stats.pool } else { stats.pinned };
        let allowed = if pool.capacity == 0 { u64::MAX } else { pool.capacity.saturating_sub(pool.reserved) };
        Ok(Room { free: self.device.memory()?.free, allowed, kept: pool.reserved.saturating_sub(pool.in_use) })
    }

    /// Returns unused memory of the pools to the driver.
    pub(super) fn trim(&self) {
        self.device.trim();
    }

    fn stream(&self) -> &Stream {
        &self.streams[self.next_stream.fetch_add(1, Ordering::Relaxed) % STREAMS]
    }

    /// The stream that orders uses of memory shared with the machine.
    pub(super) fn home(&self) -> &Stream {
        &self.streams[0]
    }

    /// Allocates uninitialised memory of the machine that the device addresses too.
    pub(super) fn pinned(&self, bytes: u64) -> Result<DeviceBlock, Error> {
        Ok(self.device.allocate_pinned(self.home(), bytes, terrace_file::ALIGN as u64)?)
    }

    /// Allocates uninitialised memory of the device.
    pub(super) fn allocate(&self, bytes: u64, tasks: &Executor) -> Result<Arc<DeviceCopy>, Error> {
        let len = usize::try_from(bytes).map_err(|_| Error::Memory(ErrorKind::OutOfMemory))?;
        let stream = self.stream();
        // `on_device` does not fall back to the machine's memory, which is another tier.
        let buffer = DeviceBuffer::on_device(&self.device, stream, len)?;
        Ok(Arc::new(DeviceCopy {
            address: buffer.address(),
            stream: stream.clone(),
            engine: self.engine.clone(),
            tasks: tasks.clone(),
            buffer: Mutex::new(Some(buffer)),
            lost: OnceLock::new(),
        }))
    }
}

/// A copy of a buffer on a device.
pub(super) struct DeviceCopy {
    pub address: u64,
    /// The stream that orders other work with this copy's transfers.
    pub stream: Stream,
    engine: TransferEngine,
    tasks: Executor,
    /// The device memory. `None` while a transfer owns it, and after a failed transfer has lost it.
    buffer: Mutex<Option<DeviceBuffer<u8>>>,
    /// Why a transfer has lost the device memory, if one has.
    lost: OnceLock<DeviceError>,
}

impl DeviceCopy {
    /// # Errors
    /// Why a transfer has lost the device memory.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.lost.get().map_or(Ok(()), |error| Err(error.clone().into()))
    }

    /// Uploads host bytes to the copy, from its byte `at` on. Begins at once, whether or not the handle is awaited.
    pub(super) fn upload<H: HostSource<u8>>(self: &Arc<Self>, at: usize, host: H) -> JoinHandle<Result<H, Error>> {
        let copy = Arc::clone(self);
        self.tasks.spawn(async move {
            let mut slot = copy.buffer.lock().await;
            let buffer = copy.buffer(&mut slot)?;
            match copy.engine.upload(host, buffer, at).await {
                Ok(done) => {
                    *slot = Some(done.target);
                    Ok(done.source)
                }
                Err(undone) => {
                    let back = undone.buffers.map(|buffers| buffers.1.into_inner());
                    Err(copy.undone(&mut slot, back, undone.error))
                }
            }
        })
    }

    /// Downloads bytes of the copy, from its byte `at` on. Begins at once, whether or not the handle is awaited.
    pub(super) fn download<H: HostBuffer<u8>>(self: &Arc<Self>, at: usize, host: H) -> JoinHandle<Result<H, Error>> {
        let copy = Arc::clone(self);
        self.tasks.spawn(async move {
            let mut slot = copy.buffer.lock().await;
            let buffer = copy.buffer(&mut slot)?;
            match copy.engine.download(buffer, at, host).await {
                Ok(done) => {
                    *slot = Some(done.source);
                    Ok(done.target)
                }
                Err(undone) => {
                    let back = undone.buffers.map(|buffers| buffers.0);
                    Err(copy.undone(&mut slot, back, undone.error))
                }
            }
        })
    }

    fn buffer(&self, slot: &mut Option<DeviceBuffer<u8>>) -> Result<DeviceBuffer<u8>, Error> {
        self.check()?;
        slot.take().ok_or(Error::Closed)
    }

    fn undone(&self, slot: &mut Option<DeviceBuffer<u8>>, back: Option<DeviceBuffer<u8>>, error: DeviceError) -> Error {
        if back.is_none() {
            // `lost` is set only once, since no transfer begins after that.
            let _ = self.lost.set(error.clone());
        }
        *slot = back;
        error.into()
    }

    /// Enqueues a fill of the copy with zeros on its stream, and does not wait until the fill is done.
    pub(super) async fn zero(&self) -> Result<(), Error> {
        let mut slot = self.buffer.lock().await;
        self.check()?;
        Ok(slot.as_mut().ok_or(Error::Closed)?.as_slice_mut().fill(0)?)
    }
}

impl std::fmt::Debug for DeviceCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("There").field("address", &self.address).finish_non_exhaustive()
    }
}
