//! Views of a buffer: parts that share its memory.
//!
//! Promises upward: two writable views never overlap: they are split from one; no view accesses a byte outside of its
//! range, so parts may be used on several threads at once.

use super::{BlockRef, DeviceBuffer, UnifiedBuffer, within};
use crate::block::{DeviceBlock, Path};
use crate::error::DeviceError;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::RangeBounds;

/// A view of a range of a buffer's elements, to read.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSlice<'a, T> {
    block: &'a DeviceBlock,
    /// Index of the first element in the block, and number of elements.
    from: usize,
    len: usize,
    of: PhantomData<&'a T>,
}

/// A view of a range of a buffer's elements, to write.
#[derive(Debug)]
pub struct DeviceSliceMut<'a, T> {
    block: &'a DeviceBlock,
    /// As in [`DeviceSlice`]; no other view overlaps this range.
    from: usize,
    len: usize,
    of: PhantomData<&'a mut T>,
}

/// Offset of an element in bytes.
fn offset<T>(element: usize) -> u64 {
    element as u64 * size_of::<T>() as u64
}

impl<'a, T: Pod> DeviceSlice<'a, T> {
    pub(super) fn new(block: &'a DeviceBlock, from: usize, len: usize) -> Self {
        Self { block, from, len, of: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the view has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element, in the device's address space.
    pub fn address(&self) -> u64 {
        self.block.address() + offset::<T>(self.from)
    }

    /// The block that the elements lie in, without access to its bytes.
    ///
    /// Other views may write the bytes beside this view.
    pub fn block(&self) -> BlockRef<'a> {
        BlockRef(self.block)
    }

    /// A view of a part of this view.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self, DeviceError> {
        let (from, len) = within::<T>(self.block, self.from, self.len, range)?;
        Ok(Self { from, len, ..*self })
    }

    /// Copies the view's first elements to `elements` on the host, and waits.
    ///
    /// The copy comes after all work put on the stream so far.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`] if `elements` is longer than the view; the driver's error.
    pub fn read(&self, elements: &mut [T]) -> Result<(), DeviceError> {
        within::<T>(self.block, self.from, self.len, ..elements.len())?;
        self.block.read(offset::<T>(self.from), bytemuck::cast_slice_mut(elements))
    }

    /// Copies the view's elements into a new `Vec`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn to_vec(&self) -> Result<Vec<T>, DeviceError> {
        let mut elements = vec![T::zeroed(); self.len];
        self.read(&mut elements)?;
        Ok(elements)
    }
}

impl<'a, T: Pod> DeviceSliceMut<'a, T> {
    pub(super) fn new(block: &'a DeviceBlock, from: usize, len: usize) -> Self {
        Self { block, from, len, of: PhantomData }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the view has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element, in the device's address space.
    pub fn address(&self) -> u64 {
        self.as_slice().address()
    }

    /// As [`DeviceSlice::block`]; the reference borrows this view.
    pub fn block(&self) -> BlockRef<'_> {
        BlockRef(self.block)
    }

    /// Converts the slice into its block reference, for interop by address.
    ///
    /// The reference has the view's own lifetime.
    pub fn into_block(self) -> BlockRef<'a> {
        BlockRef(self.block)
    }

    /// A view of the same elements, to read.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.block, self.from, self.len)
    }

    /// Shrinks the view to a part of itself.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`].
    pub fn into_slice(self, range: impl RangeBounds<usize>) -> Result<Self, DeviceError> {
        let (from, len) = within::<T>(self.block, self.from, self.len, range)?;
        Ok(Self { from, len, ..self })
    }

    /// Splits the view at element `middle`, which is the first of the second part.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`].
    pub fn split_at(self, middle: usize) -> Result<(Self, Self), DeviceError> {
        let (from, len) = within::<T>(self.block, self.from, self.len, middle..)?;
        Ok((Self::new(self.block, self.from, middle), Self::new(self.block, from, len)))
    }

    /// Copies elements from the host to the start of the view, and waits for the copy.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`] if `elements` is longer than the view; the driver's error.
    pub fn write(&mut self, elements: &[T]) -> Result<(), DeviceError> {
        within::<T>(self.block, self.from, self.len, ..elements.len())?;
        self.block.write_shared(offset::<T>(self.from), bytemuck::cast_slice(elements))
    }

    /// Sets every element to `value`, on the buffer's stream.
    ///
    /// One fill if all bytes of the value are equal; otherwise writes one element and copies it, doubling the size each
    /// time.
    ///
    /// # Errors
    /// The driver's error.
    pub fn fill(&mut self, value: T) -> Result<(), DeviceError> {
        let pattern = bytemuck::bytes_of(&value);
        let (start, bytes) = (offset::<T>(self.from), offset::<T>(self.len));
        let Some(&first) = pattern.first().filter(|_| bytes > 0) else { return Ok(()) };
        if pattern.iter().all(|&byte| byte == first) {
            return self.block.fill_shared(start, bytes, first);
        }
        self.block.write_shared(start, pattern)?;
        let mut done = pattern.len() as u64;
        while done < bytes {
            let more = done.min(bytes - done);
            self.block.copy_within(start + done, start, more)?;
            done += more;
        }
        Ok(())
    }

    /// Copies all elements from a view of the same length, of this or another device.
    ///
    /// Returns the path that the bytes took.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`] if the lengths differ; the drivers' errors.
    pub fn copy_from(&mut self, from: &DeviceSlice<'_, T>) -> Result<Path, DeviceError> {
        within::<T>(from.block, from.from, from.len, ..self.len)?;
        within::<T>(self.block, self.from, self.len, ..from.len)?;
        self.block.copy_shared(offset::<T>(self.from), from.block, offset::<T>(from.from), offset::<T>(self.len))
    }
}

macro_rules! views {
    ($($buffer:ident)*) => {$(
        impl<'a, T: Pod> From<&'a $buffer<T>> for DeviceSlice<'a, T> {
            fn from(buffer: &'a $buffer<T>) -> Self {
                buffer.as_slice()
            }
        }

        impl<'a, T: Pod> From<&'a mut $buffer<T>> for DeviceSliceMut<'a, T> {
            fn from(buffer: &'a mut $buffer<T>) -> Self {
                buffer.as_slice_mut()
            }
        }
    )*};
}

views! { DeviceBuffer UnifiedBuffer }
