//! Elements in pinned host memory: a slice for the CPU, an address for the device.

use super::{DeviceBuffer, bytes_of};
use crate::block::DeviceBlock;
use crate::device::Device;
use crate::error::DeviceError;
use crate::stream::{Stream, StreamCore};
use bytemuck::Pod;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Elements in pinned host memory, allocated from the device's pinned pool.
///
/// Sizes are rounded up to the granule, not to powers of two.
///
/// # Example
/// ```
/// use terrace_device::{Device, DeviceBuffer, PinnedBuffer};
/// let device = Device::host();
/// let stream = device.stream()?;
/// let mut staging = PinnedBuffer::<f32>::new(&device, &stream, 1000)?;
/// staging.fill(0.5);
/// let mut on_device = DeviceBuffer::new(&device, &stream, 1000)?;
/// let transfer = staging.copy_to(&mut on_device)?; // put on the stream, does not wait
/// let staging = transfer.wait()?; // and the memory is ours again
/// assert_eq!(on_device.to_vec()?, *staging);
/// # Ok::<(), terrace_device::DeviceError>(())
/// ```
pub struct PinnedBuffer<T> {
    block: DeviceBlock,
    /// Number of elements; their bytes fit into the block. No work in flight uses them.
    len: usize,
    of: PhantomData<T>,
}

impl<T: Pod> PinnedBuffer<T> {
    /// Allocates `len` zeroed elements.
    ///
    /// # Errors
    /// As [`Device::allocate`]; [`DeviceError::BadRequest`] for zero elements.
    pub fn new(device: &Device, stream: &Stream, len: usize) -> Result<Self, DeviceError> {
        let block = device.allocate_pinned(stream, bytes_of::<T>(len)?, align_of::<T>() as u64)?;
        let pointer: *mut u8 = std::ptr::with_exposed_provenance_mut(block.address() as usize);
        // SAFETY: a fresh block of host memory with at least these bytes, not shared yet; the pool hands out pinned
        // memory only once no work is in flight on it.
        unsafe { pointer.write_bytes(0, len * size_of::<T>()) };
        Ok(Self { block, len, of: PhantomData })
    }

    /// The address of the first element, the same for device and host.
    pub fn address(&self) -> u64 {
        self.block.address()
    }

    /// The block that holds the elements.
    pub(crate) fn block(&self) -> &DeviceBlock {
        &self.block
    }

    /// Copies all elements to the start of buffer `to`, on the stream of `to`; does not wait.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`] if `to` is shorter than `self`; the driver's error. On an error `self` is dropped.
    pub fn copy_to(self, to: &mut DeviceBuffer<T>) -> Result<InFlight<T>, DeviceError> {
        to.copy_host(&self.block, self.len, true)?;
        Ok(InFlight::new(self, to.block().stream_core()))
    }

    /// Fills all elements from the start of buffer `from`, on the stream of `from`; does not wait.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`] if `from` is shorter than `self`; the driver's error. On an error `self` is
    /// dropped.
    pub fn copy_from(self, from: &DeviceBuffer<T>) -> Result<InFlight<T>, DeviceError> {
        from.copy_host(&self.block, self.len, false)?;
        Ok(InFlight::new(self, from.block().stream_core()))
    }
}

impl<T: Pod> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let pointer = std::ptr::with_exposed_provenance(self.block.address() as usize);
        // SAFETY: the block is host memory of at least `len` elements, aligned to the element, initialised by `new`,
        // plain data whatever was copied into it, and no work in flight uses it.
        unsafe { std::slice::from_raw_parts(pointer, self.len) }
    }
}

impl<T: Pod> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let pointer = std::ptr::with_exposed_provenance_mut(self.block.address() as usize);
        // SAFETY: as above, and borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(pointer, self.len) }
    }
}

impl<T> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedBuffer").field("len", &self.len).field("block", &self.block).finish()
    }
}

/// A copy in flight, and the host memory that it uses.
///
/// If this value is dropped or forgotten, the memory is not reused before the copy is done.
#[must_use = "the memory comes back by wait()"]
pub struct InFlight<T, B = PinnedBuffer<T>> {
    buffer: B,
    /// The stream that the copy is on, kept alive by this reference.
    stream: Arc<StreamCore>,
    /// The driver's refusal of the copy, if the copy may be in flight nevertheless.
    error: Option<DeviceError>,
    of: PhantomData<T>,
}

impl<T, B: fmt::Debug> fmt::Debug for InFlight<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InFlight").field("buffer", &self.buffer).finish_non_exhaustive()
    }
}

impl<T: Pod, B> InFlight<T, B> {
    /// Wraps a copy that was put on a stream.
    pub(super) fn new(buffer: B, stream: Arc<StreamCore>) -> Self {
        Self { buffer, stream, error: None, of: PhantomData }
    }

    /// Wraps a copy that the driver refused but may have started.
    pub(super) fn failed(buffer: B, stream: Arc<StreamCore>, error: DeviceError) -> Self {
        Self { error: Some(error), ..Self::new(buffer, stream) }
    }

    /// Waits for the copy and returns the memory.
    ///
    /// # Errors
    /// The driver's error, also of earlier work on the stream. The memory is then freed, and reused once the stream is
    /// done.
    pub fn wait(self) -> Result<B, DeviceError> {
        self.error.map_or(Ok(()), Err)?;
        self.stream.service.synchronize_stream(self.stream.raw)?;
        Ok(self.buffer)
    }
}
