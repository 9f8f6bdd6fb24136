//! Elements in a device's memory.

use super::{DeviceSlice, DeviceSliceMut, bytes_of};
use crate::block::{DeviceBlock, Path};
use crate::device::Device;
use crate::error::DeviceError;
use crate::meter::{BufferStats, Meter};
use crate::stream::Stream;
use bytemuck::Pod;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

/// Elements in a device's memory, freed on drop and reused once the streams that use it are done.
///
/// # Example
/// ```
/// use terrace_device::{Device, DeviceBuffer};
/// let device = Device::host();
/// let stream = device.stream()?;
/// let mut numbers = DeviceBuffer::from_slice(&device, &stream, &[1u32, 2, 3, 4])?;
/// numbers.slice_mut(1..3)?.fill(9)?;
/// assert_eq!(numbers.to_vec()?, [1, 9, 9, 4]);
/// # Ok::<(), terrace_device::DeviceError>(())
/// ```
pub struct DeviceBuffer<T> {
    block: DeviceBlock,
    /// Number of elements; their bytes fit into the block.
    len: usize,
    /// Counters of the copies that transfer engines made to and from this buffer.
    meter: Meter,
    of: PhantomData<T>,
}

impl<T: Pod> DeviceBuffer<T> {
    /// Allocates `len` elements, whose values are undefined.
    ///
    /// # Errors
    /// As [`Device::allocate`]; [`DeviceError::BadRequest`] for zero elements.
    pub fn new(device: &Device, stream: &Stream, len: usize) -> Result<Self, DeviceError> {
        let block = device.allocate_aligned(stream, bytes_of::<T>(len)?, align_of::<T>() as u64)?;
        Ok(Self { block, len, meter: Meter::default(), of: PhantomData })
    }

    /// Allocates `len` elements, whose values are undefined, in the device's own memory only.
    ///
    /// A full device is [`DeviceError::OutOfMemory`], even where [`DeviceBuffer::new`] would fall back to pinned host
    /// memory ([`Device::set_fallback`]).
    ///
    /// # Errors
    /// As [`DeviceBuffer::new`].
    pub fn on_device(device: &Device, stream: &Stream, len: usize) -> Result<Self, DeviceError> {
        let block = device.allocate_own(stream, bytes_of::<T>(len)?, align_of::<T>() as u64)?;
        Ok(Self { block, len, meter: Meter::default(), of: PhantomData })
    }

    /// Allocates `len` zeroed elements.
    ///
    /// # Errors
    /// As [`DeviceBuffer::new`]; the driver's error.
    pub fn zeroed(device: &Device, stream: &Stream, len: usize) -> Result<Self, DeviceError> {
        let mut buffer = Self::new(device, stream, len)?;
        buffer.as_slice_mut().fill(T::zeroed())?;
        Ok(buffer)
    }

    /// Allocates a buffer and copies the elements of a slice into it.
    ///
    /// # Errors
    /// As [`DeviceBuffer::new`]; the driver's error.
    pub fn from_slice(device: &Device, stream: &Stream, elements: &[T]) -> Result<Self, DeviceError> {
        let mut buffer = Self::new(device, stream, elements.len())?;
        buffer.as_slice_mut().write(elements)?;
        Ok(buffer)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: a buffer has at least one element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size of all elements in bytes.
    pub fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }

    /// The address of the first element, in the device's address space.
    pub fn address(&self) -> u64 {
        self.block.address()
    }

    /// Counters of the copies that [transfer engines](crate::TransferEngine) made to and from this buffer.
    pub fn transfers(&self) -> BufferStats {
        self.meter.stats()
    }

    pub(crate) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Copies `len` elements between the start of this buffer and host memory that the device can access, on this
    /// buffer's stream; does not wait.
    pub(super) fn copy_host(&self, host: &DeviceBlock, len: usize, to_device: bool) -> Result<(), DeviceError> {
        self.slice(..len)?;
        self.block.copy_pinned(host, (len * size_of::<T>()) as u64, to_device)
    }

    /// The block that holds the elements: for its address, and to record which other streams use it.
    pub fn block(&self) -> &DeviceBlock {
        &self.block
    }

    /// A view of all elements, to read.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(&self.block, 0, self.len)
    }

    /// A view of all elements, to write.
    pub fn as_slice_mut(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(&self.block, 0, self.len)
    }

    /// A view of a range of elements, to read.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<DeviceSlice<'_, T>, DeviceError> {
        self.as_slice().slice(range)
    }

    /// A view of a range of elements, to write.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`].
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<DeviceSliceMut<'_, T>, DeviceError> {
        self.as_slice_mut().into_slice(range)
    }

    /// Copies all elements to the host, after all work put on the stream so far.
    ///
    /// # Errors
    /// The driver's error.
    pub fn to_vec(&self) -> Result<Vec<T>, DeviceError> {
        self.as_slice().to_vec()
    }

    /// Copies all elements from another buffer of the same length, of this or another device.
    ///
    /// Returns the path that the bytes took.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`] if the lengths differ; the drivers' errors.
    pub fn copy_from(&mut self, from: &Self) -> Result<Path, DeviceError> {
        self.as_slice_mut().copy_from(&from.as_slice())
    }

    /// Reinterprets the bytes as elements of another type.
    ///
    /// # Errors
    /// [`DeviceError::BadRequest`] when the size is no multiple of the other type's size; the buffer is then dropped.
    pub fn cast<U: Pod>(self) -> Result<DeviceBuffer<U>, DeviceError> {
        let bytes = self.bytes();
        if size_of::<U>() == 0 || !bytes.is_multiple_of(size_of::<U>() as u64) {
            let rule = "a cast needs whole elements of the other type";
            return Err(DeviceError::BadRequest { bytes, align: align_of::<U>() as u64, rule });
        }
        let (block, len, meter) = (self.block, bytes as usize / size_of::<U>(), self.meter);
        Ok(DeviceBuffer { block, len, meter, of: PhantomData })
    }
}

impl<T> fmt::Debug for DeviceBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceBuffer").field("len", &self.len).field("block", &self.block).finish()
    }
}
