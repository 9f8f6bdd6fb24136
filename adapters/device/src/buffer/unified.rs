//! Elements in managed memory: one address for host and device.

use super::{DeviceSlice, DeviceSliceMut, bytes_of, within};
use crate::block::DeviceBlock;
use crate::device::Device;
use crate::error::DeviceError;
use crate::hint::{Advice, Hint, PrefetchTarget};
use crate::stream::Stream;
use bytemuck::Pod;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, RangeBounds};

/// Elements in managed memory: one address for host and device.
///
/// The CPU accesses the elements under a lease, which first waits for the streams that use them; where host and device
/// must not access managed memory at the same time, it waits for the whole device, and the caller must launch no kernel
/// while the lease lasts.
///
/// Hints tell the driver where and how elements are used next ([`prefetch_to_device`](Self::prefetch_to_device),
/// [`advise`](Self::advise)). On a device that takes no hints they do nothing and return [`Hint::Ignored`].
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
    /// Number of elements; their bytes fit into the block.
    len: usize,
    /// Advice that undoes the advice in force, each kind once: given on drop, so that the next owner starts without
    /// any.
    undo: Vec<Advice>,
    of: PhantomData<T>,
}

impl<T: Pod> UnifiedBuffer<T> {
    /// Allocates `len` zeroed elements.
    ///
    /// # Errors
    /// As [`Device::allocate`]; an error if the device has no managed memory; [`DeviceError::BadRequest`] for zero
    /// elements.
    pub fn new(device: &Device, stream: &Stream, len: usize) -> Result<Self, DeviceError> {
        let bytes = bytes_of::<T>(len)?;
        let mut block = device.allocate_managed(stream, bytes, align_of::<T>() as u64)?;
        block.fill(0, bytes, 0)?;
        Ok(Self { block, len, undo: Vec::new(), of: PhantomData })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: a buffer has at least one element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element, the same for device and host.
    pub fn address(&self) -> u64 {
        self.block.address()
    }

    /// Waits for the streams that use the elements; then the CPU may access them while the lease lasts.
    ///
    /// # Errors
    /// The driver's error, also of earlier work on the streams.
    pub fn lease(&mut self) -> Result<UnifiedLease<'_, T>, DeviceError> {
        self.block.host_turn()?;
        Ok(UnifiedLease { buffer: self })
    }

    /// As [`UnifiedBuffer::lease`], to read only.
    ///
    /// Several may exist at a time, and the device may read at the same time.
    ///
    /// Sound, since a writer needs exclusive access to the buffer, by [`lease`](Self::lease) or
    /// [`as_slice_mut`](Self::as_slice_mut), and this call waits for earlier writes of the streams. For kernels
    /// launched with the buffer's address, the launching code must ensure the same, as for [`lease`](Self::lease).
    ///
    /// # Errors
    /// As for [`UnifiedBuffer::lease`].
    pub fn lease_ref(&self) -> Result<UnifiedView<'_, T>, DeviceError> {
        self.block.host_turn()?;
        Ok(UnifiedView { buffer: self })
    }

    /// A view of all elements, for copies and kernels to read.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(&self.block, 0, self.len)
    }

    /// A view of all elements, for copies and kernels to write.
    pub fn as_slice_mut(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(&self.block, 0, self.len)
    }

    /// Prefetches elements to the device, in stream order.
    ///
    /// They move after all work put on the stream so far and before later work. The range `..` is all elements. Whole
    /// pages move.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`]; the driver's error.
    pub fn prefetch_to_device(&self, range: impl RangeBounds<usize>) -> Result<Hint, DeviceError> {
        self.prefetch(range, PrefetchTarget::Device)
    }

    /// Prefetches elements to the host's memory; otherwise as [`UnifiedBuffer::prefetch_to_device`].
    ///
    /// # Errors
    /// As for [`UnifiedBuffer::prefetch_to_device`].
    pub fn prefetch_to_host(&self, range: impl RangeBounds<usize>) -> Result<Hint, DeviceError> {
        self.prefetch(range, PrefetchTarget::Host)
    }

    fn prefetch(&self, range: impl RangeBounds<usize>, to: PrefetchTarget) -> Result<Hint, DeviceError> {
        let (offset, bytes) = self.part(range)?;
        self.block.prefetch(offset, bytes, to)
    }

    /// Advises the driver how elements will be used; the range `..` is all elements.
    ///
    /// The advice takes effect at once, until it is undone or the buffer is dropped. The driver keeps advice for whole
    /// pages, which small buffers share: advise large buffers only.
    ///
    /// # Example
    /// ```
    /// use terrace_device::{Advice, Device, Hint, UnifiedBuffer};
    /// let device = Device::host();
    /// let stream = device.stream()?;
    /// let mut table = UnifiedBuffer::<f32>::new(&device, &stream, 1 << 20)?;
    /// // The host takes no hints, and says so; a GPU that does answers `Hint::Given`.
    /// assert_eq!(table.advise(.., Advice::ReadMostly)?, Hint::Ignored);
    /// assert_eq!(table.prefetch_to_device(..1000)?, Hint::Ignored);
    /// # Ok::<(), terrace_device::DeviceError>(())
    /// ```
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`]; the driver's error.
    pub fn advise(&mut self, range: impl RangeBounds<usize>, advice: Advice) -> Result<Hint, DeviceError> {
        let (offset, bytes) = self.part(range)?;
        let hint = self.block.advise(offset, bytes, advice)?;
        if hint == Hint::Given && !advice.is_undo() && !self.undo.contains(&advice.undo()) {
            self.undo.push(advice.undo());
        }
        Ok(hint)
    }

    /// Converts a range of elements to (offset, size) in bytes; fails if it leaves the buffer.
    fn part(&self, range: impl RangeBounds<usize>) -> Result<(u64, u64), DeviceError> {
        let (first, count) = within::<T>(&self.block, 0, self.len, range)?;
        Ok(((first * size_of::<T>()) as u64, (count * size_of::<T>()) as u64))
    }
}

impl<T> Drop for UnifiedBuffer<T> {
    fn drop(&mut self) {
        for advice in self.undo.drain(..) {
            // If the driver refuses, the old advice may slow the next owner down, but changes no byte.
            let _ = self.block.advise(0, (self.len * size_of::<T>()) as u64, advice);
        }
    }
}

impl<T> fmt::Debug for UnifiedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnifiedBuffer").field("len", &self.len).field("block", &self.block).finish_non_exhaustive()
    }
}

/// Exclusive access of the CPU to the elements of a [`UnifiedBuffer`].
#[derive(Debug)]
pub struct UnifiedLease<'a, T> {
    buffer: &'a mut UnifiedBuffer<T>,
}

/// Access of the CPU to the elements of a [`UnifiedBuffer`], to read only.
#[derive(Clone, Copy, Debug)]
pub struct UnifiedView<'a, T> {
    buffer: &'a UnifiedBuffer<T>,
}

impl<T: Pod> Deref for UnifiedView<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let pointer = std::ptr::with_exposed_provenance(self.buffer.block.address() as usize);
        // SAFETY: managed memory of at least `len` elements, aligned, filled by `new`, plain data whatever kernels
        // wrote; the streams were waited for, and a shared borrow of the buffer excludes writers.
        unsafe { std::slice::from_raw_parts(pointer, self.buffer.len) }
    }
}

impl<T: Pod> Deref for UnifiedLease<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let pointer = std::ptr::with_exposed_provenance(self.buffer.block.address() as usize);
        // SAFETY: as for `UnifiedView`; the borrow is exclusive.
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
