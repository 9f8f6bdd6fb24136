//! A device, and copies of buffers on it.
//!
//! Promises upward: a copy is moved by one transfer at a time, others wait; a transfer that fails leaves what it read from as it
//! was; what was handed to a driver that cannot say what became of it is an error from then on.
//! Asks from below: the device's transfer engine.

use super::error::Error;
use async_lock::Mutex;
use std::io::ErrorKind;
use terrace_device::{
    Capabilities, Device, DeviceBlock, DeviceBuffer, DeviceError, HostBuffer, HostSource, Stream, TransferEngine,
};

/// A device as a place for buffers.
pub(super) struct Gpu {
    device: Device,
    /// On which memory is taken, filled and given back.
    stream: Stream,
    engine: TransferEngine,
}

impl Gpu {
    pub(super) fn open(device: &Device) -> Result<Self, Error> {
        let engine = TransferEngine::new(device)?;
        Ok(Self { device: device.clone(), stream: device.stream()?, engine })
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

    /// Bytes that buffers could take beside those they have: what the driver has, and what the pool keeps of it.
    pub(super) fn available(&self) -> Result<u64, Error> {
        let stats = self.device.stats();
        let kept = [stats.pool, stats.pinned].map(|pool| pool.reserved.saturating_sub(pool.in_use));
        Ok(self.device.memory()?.free.saturating_add(kept.iter().sum()))
    }

    /// Gives the driver back what nobody uses.
    pub(super) fn trim(&self) {
        self.device.trim();
    }

    /// Memory of the machine that the device addresses too; its bytes mean nothing.
    pub(super) fn pinned(&self, bytes: u64) -> Result<DeviceBlock, Error> {
        Ok(self.device.allocate_pinned(&self.stream, bytes, terrace_file::ALIGN as u64)?)
    }

    /// Memory of the device; its bytes mean nothing.
    pub(super) fn take(&self, bytes: u64) -> Result<There, Error> {
        let len = usize::try_from(bytes).map_err(|_| Error::Memory(ErrorKind::OutOfMemory))?;
        let buffer = DeviceBuffer::new(&self.device, &self.stream, len)?;
        if buffer.block().is_fallback() {
            // The machine's memory is another tier.
            return Err(Error::Memory(ErrorKind::OutOfMemory));
        }
        Ok(There { address: buffer.address(), engine: self.engine.clone(), buffer: Mutex::new(Ok(buffer)) })
    }

    /// Fills a copy with zeros, and waits.
    pub(super) async fn zero(&self, there: &There) -> Result<(), Error> {
        let mut buffer = there.buffer.lock().await;
        buffer.as_mut().map_err(|error| error.clone())?.as_slice_mut().fill(0)?;
        Ok(self.stream.synchronize()?)
    }
}

/// A copy on a device.
pub(super) struct There {
    pub address: u64,
    engine: TransferEngine,
    /// Why it is not to be had any more, if it is not.
    buffer: Mutex<Result<DeviceBuffer<u8>, DeviceError>>,
}

impl There {
    /// Copies to it, from byte `at` on.
    pub(super) async fn upload<H: HostSource<u8>>(&self, at: usize, host: H) -> Result<H, Error> {
        let mut place = self.buffer.lock().await;
        let buffer = std::mem::replace(&mut *place, Err(DeviceError::Cancelled))?;
        match self.engine.upload(host, buffer, at).await {
            Ok(done) => {
                *place = Ok(done.target);
                Ok(done.source)
            }
            Err(undone) => {
                *place = undone.buffers.map(|buffers| buffers.1.into_inner()).ok_or_else(|| undone.error.clone());
                Err(undone.error.into())
            }
        }
    }

    /// Copies from it, from byte `at` on.
    pub(super) async fn download<H: HostBuffer<u8>>(&self, at: usize, host: H) -> Result<H, Error> {
        let mut place = self.buffer.lock().await;
        let buffer = std::mem::replace(&mut *place, Err(DeviceError::Cancelled))?;
        match self.engine.download(buffer, at, host).await {
            Ok(done) => {
                *place = Ok(done.source);
                Ok(done.target)
            }
            Err(undone) => {
                *place = undone.buffers.map(|buffers| buffers.0).ok_or_else(|| undone.error.clone());
                Err(undone.error.into())
            }
        }
    }

    /// Its memory, when no transfer uses it.
    pub(super) fn with<T>(&self, work: impl FnOnce(&DeviceBlock) -> Result<T, DeviceError>) -> Result<T, Error> {
        let buffer = self.buffer.lock_blocking();
        Ok(work(buffer.as_ref().map_err(|error| error.clone())?.block())?)
    }
}

impl std::fmt::Debug for There {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("There").field("address", &self.address).finish_non_exhaustive()
    }
}
