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
/// The CPU accesses them under a lease, which waits for the streams first; where host and device may not touch managed memory
/// at once, for the whole device, and the caller must launch no kernel while the lease lasts.
///
/// Hints say where elements are used next and how ([`prefetch_to_device`](Self::prefetch_to_device),
/// [`advise`](Self::advise)). Where a device takes none they do nothing, and say so: [`Hint::Ignored`].
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
    /// What takes back the advice that the memory has: each kind once. Its next owner begins without any.
    undo: Vec<Advice>,
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
        Ok(Self { block, len, undo: Vec::new(), of: PhantomData })
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

    /// As [`UnifiedBuffer::lease`], to read only: several at a time, and the device may read meanwhile.
    ///
    /// As sound as the other: a writer needs exclusive access to the buffer, as a lease or as
    /// [`as_slice_mut`](Self::as_slice_mut), and what was written on the streams is waited for. What kernels do that are
    /// launched by address is their launcher's promise in both cases.
    ///
    /// # Errors
    /// As for [`UnifiedBuffer::lease`].
    pub fn lease_ref(&self) -> Result<UnifiedView<'_, T>, DeviceError> {
        self.block.host_turn()?;
        Ok(UnifiedView { buffer: self })
    }

    /// All elements, for copies and kernels.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(&self.block, 0, self.len)
    }

    /// All elements, to write by copies and kernels.
    pub fn as_slice_mut(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(&self.block, 0, self.len)
    }

    /// Prefetches elements to the device, in stream order.
    ///
    /// They move after everything put on the stream so far and before what is put on it from now on. `..` names them all. Pages
    /// move whole.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`]; the driver's error.
    pub fn prefetch_to_device(&self, range: impl RangeBounds<usize>) -> Result<Hint, DeviceError> {
        self.prefetch(range, PrefetchTarget::Device)
    }

    /// Says that the CPU uses elements next; the rest as for [`UnifiedBuffer::prefetch_to_device`].
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

    /// Advises the driver how elements will be used; `..` names them all.
    ///
    /// Takes effect at once, until the opposite is said or the buffer is dropped. The driver keeps advice for whole pages, which
    /// small buffers share: advise large ones.
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

    /// A range in bytes, as (offset, bytes), when it is inside.
    fn part(&self, range: impl RangeBounds<usize>) -> Result<(u64, u64), DeviceError> {
        let (first, count) = within::<T>(&self.block, 0, self.len, range)?;
        Ok(((first * size_of::<T>()) as u64, (count * size_of::<T>()) as u64))
    }
}

impl<T> Drop for UnifiedBuffer<T> {
    fn drop(&mut self) {
        for advice in self.undo.drain(..) {
            // Refused, it costs the next owner time, not bytes.
            let _ = self.block.advise(0, (self.len * size_of::<T>()) as u64, advice);
        }
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

/// The CPU's right to read the elements.
#[derive(Clone, Copy, Debug)]
pub struct UnifiedView<'a, T> {
    buffer: &'a UnifiedBuffer<T>,
}

impl<T: Pod> Deref for UnifiedView<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let pointer = std::ptr::with_exposed_provenance(self.buffer.block.address() as usize);
        // SAFETY: managed memory of `len` elements at least, aligned, filled by `new`, plain data whatever kernels wrote;
        // the streams were waited for, and a shared borrow of the buffer excludes writers.
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
