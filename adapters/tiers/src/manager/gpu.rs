//! A device, and copies of buffers on it.
//!
//! Promises upward: a copy is moved by one transfer at a time, others wait; a transfer that was begun ends, whoever
//! waits for it; one that fails leaves what it read from as it was; what was handed to a driver that cannot say what
//! became of it is an error from then on.
//! Asks from below: the device's transfer engine.

use super::error::Error;
use crate::ledger::TierKind;
use async_lock::Mutex;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use terrace_device::{
    Capabilities, Device, DeviceBlock, DeviceBuffer, DeviceError, HostBuffer, HostSource, Stream, TransferEngine,
};
use terrace_file::{Executor, JoinHandle};

/// Streams of a device's copies, in turns: what waits for the work of one buffer's user holds up one in so many others.
const STREAMS: usize = 8;

/// What a device has left for a tier, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// The driver can give.
    free: u64,
    /// The pool may still take from the driver, by the capacity of the device.
    allowed: u64,
    /// The pool has taken and does not use.
    kept: u64,
}

impl Room {
    /// All that buffers can have.
    pub(super) fn bytes(&self) -> u64 {
        self.free.min(self.allowed).saturating_add(self.kept)
    }

    /// What a tier that uses so much may have, where the driver keeps `spare` bytes for others.
    pub(super) fn capacity(&self, used: u64, spare: u64) -> u64 {
        let own = used.saturating_add(self.kept);
        let left = own.saturating_add(self.free).saturating_sub(spare);
        left.min(own.saturating_add(self.allowed))
    }

    /// Whether the driver has less than that, and would get something back.
    pub(super) fn is_short(&self, spare: u64) -> bool {
        self.free < spare && self.kept > 0
    }
}

/// A device as a place for buffers.
pub(super) struct Gpu {
    device: Device,
    /// On which memory is taken, filled and given back.
    streams: Vec<Stream>,
    /// Copies made so far.
    made: AtomicUsize,
    engine: TransferEngine,
}

impl Gpu {
    pub(super) fn open(device: &Device) -> Result<Self, Error> {
        let engine = TransferEngine::new(device)?;
        let streams = (0..STREAMS).map(|_| device.stream()).collect::<Result<_, _>>()?;
        Ok(Self { device: device.clone(), streams, made: AtomicUsize::new(0), engine })
    }

    /// Whether it uses the machine's memory as its own, by the same addresses.
    pub(super) fn shares_memory(device: &Device) -> bool {
        device.description().capabilities.contains(Capabilities::INTEGRATED | Capabilities::PINNED)
    }

    /// As people name it: `cuda:0`.
    pub(super) fn name(&self) -> String {
        let description = self.device.description();
        format!("{}:{}", description.backend, description.ordinal)
    }

    /// What it has left for a tier of that kind.
    pub(super) fn room(&self, kind: TierKind) -> Result<Room, Error> {
        let stats = self.device.stats();
        let pool = if kind == TierKind::Device { stats.pool } else { stats.pinned };
        let allowed = if pool.capacity == 0 { u64::MAX } else { pool.capacity.saturating_sub(pool.reserved) };
        Ok(Room { free: self.device.memory()?.free, allowed, kept: pool.reserved.saturating_sub(pool.in_use) })
    }

    /// Gives the driver back what nobody uses.
    pub(super) fn trim(&self) {
        self.device.trim();
    }

    fn stream(&self) -> &Stream {
        &self.streams[self.made.fetch_add(1, Ordering::Relaxed) % STREAMS]
    }

    /// The stream of memory that is shared.
    pub(super) fn home(&self) -> &Stream {
        &self.streams[0]
    }

    /// Memory of the machine that the device addresses too; its bytes mean nothing.
    pub(super) fn pinned(&self, bytes: u64) -> Result<DeviceBlock, Error> {
        Ok(self.device.allocate_pinned(self.home(), bytes, terrace_file::ALIGN as u64)?)
    }

    /// Memory of the device; its bytes mean nothing.
    pub(super) fn take(&self, bytes: u64, tasks: &Executor) -> Result<Arc<There>, Error> {
        let len = usize::try_from(bytes).map_err(|_| Error::Memory(ErrorKind::OutOfMemory))?;
        let stream = self.stream();
        // The machine's memory is another tier: it does not stand in for the device's.
        let buffer = DeviceBuffer::on_device(&self.device, stream, len)?;
        Ok(Arc::new(There {
            address: buffer.address(),
            stream: stream.clone(),
            engine: self.engine.clone(),
            tasks: tasks.clone(),
            buffer: Mutex::new(Some(buffer)),
            lost: OnceLock::new(),
        }))
    }
}

/// A copy on a device.
pub(super) struct There {
    pub address: u64,
    /// What is put on it comes before and after transfers, in order.
    pub stream: Stream,
    engine: TransferEngine,
    tasks: Executor,
    /// `None` while a transfer has it, and when it is lost.
    buffer: Mutex<Option<DeviceBuffer<u8>>>,
    /// Why it is not to be had any more.
    lost: OnceLock<DeviceError>,
}

impl There {
    /// # Errors
    /// Why it is not to be had any more.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.lost.get().map_or(Ok(()), |error| Err(error.clone().into()))
    }

    /// Copies to it, from byte `at` on. Begun at once.
    pub(super) fn upload<H: HostSource<u8>>(self: &Arc<Self>, at: usize, host: H) -> JoinHandle<Result<H, Error>> {
        let there = Arc::clone(self);
        self.tasks.spawn(async move {
            let mut place = there.buffer.lock().await;
            let buffer = there.buffer(&mut place)?;
            match there.engine.upload(host, buffer, at).await {
                Ok(done) => {
                    *place = Some(done.target);
                    Ok(done.source)
                }
                Err(undone) => {
                    let back = undone.buffers.map(|buffers| buffers.1.into_inner());
                    Err(there.undone(&mut place, back, undone.error))
                }
            }
        })
    }

    /// Copies from it, from byte `at` on. Begun at once.
    pub(super) fn download<H: HostBuffer<u8>>(self: &Arc<Self>, at: usize, host: H) -> JoinHandle<Result<H, Error>> {
        let there = Arc::clone(self);
        self.tasks.spawn(async move {
            let mut place = there.buffer.lock().await;
            let buffer = there.buffer(&mut place)?;
            match there.engine.download(buffer, at, host).await {
                Ok(done) => {
                    *place = Some(done.source);
                    Ok(done.target)
                }
                Err(undone) => {
                    let back = undone.buffers.map(|buffers| buffers.0);
                    Err(there.undone(&mut place, back, undone.error))
                }
            }
        })
    }

    fn buffer(&self, place: &mut Option<DeviceBuffer<u8>>) -> Result<DeviceBuffer<u8>, Error> {
        self.check()?;
        place.take().ok_or(Error::Closed)
    }

    fn undone(
        &self,
        place: &mut Option<DeviceBuffer<u8>>,
        back: Option<DeviceBuffer<u8>>,
        error: DeviceError,
    ) -> Error {
        if back.is_none() {
            // Set once: nothing is begun with it after that.
            let _ = self.lost.set(error.clone());
        }
        *place = back;
        error.into()
    }

    /// Fills it with zeros, before what is put on its stream from now on; does not wait for that.
    pub(super) async fn zero(&self) -> Result<(), Error> {
        let mut place = self.buffer.lock().await;
        self.check()?;
        Ok(place.as_mut().ok_or(Error::Closed)?.as_slice_mut().fill(0)?)
    }
}

impl std::fmt::Debug for There {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("There").field("address", &self.address).finish_non_exhaustive()
    }
}
