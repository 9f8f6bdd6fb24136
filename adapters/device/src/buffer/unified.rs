//! Elements in managed memory: one address for host and device.

use super::bytes_of;
use crate::block::DeviceBlock;
use crate::device::Device;
use crate::error::DeviceError;
use crate::stream::Stream;
use bytemuck::Pod;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Elements in managed memory. The CPU sees them under a lease, which waits for the stream first; where host and device may
/// not touch managed memory at once, for the whole device, and no kernel may be launched while the lease lasts.
///
/// # Example
/// ```
/// use terrace_device::{Device, UnifiedBuffer};
/// let device = Device::host();
/// let stream = device.stream()?;
/// let mut shared = UnifiedBuffer::<u64>::new(&device, &stream, 100)?;
/// shared.lease()?[7] = 42;
/// // kernels on `stream` use `shared.address()` here
/// assert_eq!(shared.lease()?[7], 42);
/// # Ok::<(), terrace_device::DeviceError>(())
/// ```
pub struct UnifiedBuffer<T> {
    block: DeviceBlock,
    /// Elements; their bytes are at most the block's.
    len: usize,
    of: PhantomData<T>,
}

impl<T: Pod> UnifiedBuffer<T> {
    /// `len` elements of zeros.
    ///
    /// # Errors
    /// As [`Device::allocate`]; that the device has no managed memory; [`DeviceError::BadRequest`] for none.
    pub fn new(device: &Device, stream: &Stream, len: usize) -> Result<Self, DeviceError> {
        let bytes = bytes_of::<T>(len)?;
        let mut block = device.allocate_managed(stream, bytes, align_of::<T>() as u64)?;
        block.fill(0, bytes, 0)?;
        Ok(Self { block, len, of: PhantomData })
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a buffer has at least one element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element, for the device as for the host.
    pub fn address(&self) -> u64 {
        self.block.address()
    }

    /// Waits for the stream; then the elements are the CPU's as long as the lease lasts.
    ///
    /// # Errors
    /// The driver's: also what work on the stream did wrong.
    pub fn lease(&mut self) -> Result<UnifiedLease<'_, T>, DeviceError> {
        self.block.host_turn()?;
        Ok(UnifiedLease { buffer: self })
    }
}

impl<T> fmt::Debug for UnifiedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnifiedBuffer").field("len", &self.len).field("block", &self.block).finish_non_exhaustive()
    }
}

/// The CPU's right to the elements.
#[derive(Debug)]
pub struct UnifiedLease<'a, T> {
    buffer: &'a mut UnifiedBuffer<T>,
}

impl<T: Pod> Deref for UnifiedLease<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let pointer = std::ptr::with_exposed_provenance(self.buffer.block.address() as usize);
        // SAFETY: managed memory of `len` elements at least, aligned, filled by `new`, plain data whatever kernels wrote;
        // the stream was waited for, and the buffer is borrowed.
        unsafe { std::slice::from_raw_parts(pointer, self.buffer.len) }
    }
}

impl<T: Pod> DerefMut for UnifiedLease<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let pointer = std::ptr::with_exposed_provenance_mut(self.buffer.block.address() as usize);
        // SAFETY: as above, and borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(pointer, self.buffer.len) }
    }
}
