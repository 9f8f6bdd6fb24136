//! terrace as the memory under [CubeCL](https://github.com/tracel-ai/cubecl): a [`ComputeStorage`] whose allocations are blocks of a device.
//!
//! ```text
//!   CubeCL's server ── MemoryManagement ──▶ DeviceStorage ──▶ terrace's Device ──▶ CUDA, HIP, the host, ..
//!                      pages, slices         one block each    pages that map and move, a cap, reasons
//! ```
//!
//! A runtime of CubeCL's (its CUDA runtime, say) has a storage of its own that calls the driver. This one takes its place in a server
//! that you write or fork: it gives addresses, and knows nothing of kernels. CubeCL keeps pools of its own above a storage; with
//! `MemoryAllocationMode::Dedicated` each of its allocations is one of terrace's blocks, so that terrace's pool does the work.
//!
//! # Order
//! A block belongs to one stream. [`DeviceStorage::new`] takes the stream on which the server launches (adopted by
//! [`Device::adopt_stream`], if the server made it), so that what is deallocated is used again only by later work of that stream:
//! [`flush`](ComputeStorage::flush) has nothing to do.
//!
//! # Example
//! ```
//! use cubecl_runtime::storage::ComputeStorage;
//! use terrace_cubecl::DeviceStorage;
//! use terrace_device::Device;
//!
//! let device = Device::host();
//! let mut storage = DeviceStorage::new(&device, &device.stream()?);
//! let handle = storage.alloc(1 << 20).expect("memory");
//! let part = storage.get(&handle.offset_start(4096)).expect("it is live");
//! assert_eq!(part.bytes, (1 << 20) - 4096);
//! storage.dealloc(handle.id);
//! assert_eq!(storage.bytes_allocated(), 0);
//! # Ok::<(), terrace_device::DeviceError>(())
//! ```

use cubecl_runtime::server::IoError;
use cubecl_runtime::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};
use std::collections::HashMap;
use terrace_device::{Device, DeviceBlock, DeviceError, Stream};

/// Memory of a device, for CubeCL.
#[derive(Debug)]
pub struct DeviceStorage {
    device: Device,
    stream: Stream,
    blocks: HashMap<StorageId, DeviceBlock>,
    /// Bytes of all blocks.
    bytes: u64,
}

/// A piece of memory, for a kernel's argument.
///
/// Valid until CubeCL deallocates what it is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceResource {
    /// Address on the device.
    pub address: u64,
    /// Bytes from there on.
    pub bytes: u64,
}

impl DeviceStorage {
    /// A storage of blocks for work on one stream.
    pub fn new(device: &Device, stream: &Stream) -> Self {
        Self { device: device.clone(), stream: stream.clone(), blocks: HashMap::new(), bytes: 0 }
    }

    /// The device, for its statistics, limits and checks.
    pub fn device(&self) -> &Device {
        &self.device
    }

    fn error(size: u64, error: DeviceError) -> IoError {
        match error {
            DeviceError::OutOfMemory(_) => IoError::OutOfMemory { size, backtrace: Default::default() },
            // A size that no device has, or a device that is lost: to try again helps nothing.
            other => IoError::Unknown { description: other.to_string(), backtrace: Default::default() },
        }
    }
}

impl ComputeStorage for DeviceStorage {
    type Resource = DeviceResource;

    fn alignment(&self) -> usize {
        self.device.granule() as usize
    }

    fn get(&mut self, handle: &StorageHandle) -> Result<DeviceResource, IoError> {
        let end = handle.offset().checked_add(handle.size());
        let found = self.blocks.get(&handle.id).filter(|block| end.is_some_and(|end| end <= block.bytes()));
        let address = found.map(|block| block.address() + handle.offset());
        address.map(|address| DeviceResource { address, bytes: handle.size() }).ok_or_else(|| {
            let reason = format!("{} in terrace's storage on {}", handle.id, self.device.name());
            IoError::StorageHandleNotFound { reason: reason.into(), backtrace: Default::default() }
        })
    }

    fn alloc(&mut self, size: u64) -> Result<StorageHandle, IoError> {
        let block = self.device.allocate(&self.stream, size.max(1)).map_err(|error| Self::error(size, error))?;
        let id = StorageId::new();
        self.bytes += block.bytes();
        self.blocks.insert(id, block);
        Ok(StorageHandle::new(id, StorageUtilization { offset: 0, size }))
    }

    fn dealloc(&mut self, id: StorageId) {
        if let Some(block) = self.blocks.remove(&id) {
            self.bytes -= block.bytes();
        }
    }

    fn flush(&mut self) {}

    fn bytes_allocated(&self) -> u64 {
        self.bytes
    }
}
