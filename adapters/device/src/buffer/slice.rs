//! Views of a buffer: parts that share its memory.
//!
//! Promises upward: two that can be written never overlap: they are split from one; no view reaches a byte outside of it, so
//! that parts may be used on several threads at once.

use super::{BlockRef, DeviceBuffer, UnifiedBuffer, within};
use crate::block::{DeviceBlock, Path};
use crate::error::DeviceError;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::RangeBounds;

/// Some elements of a buffer.
#[derive(Clone, Copy, Debug)]
pub struct DeviceSlice<'a, T> {
    block: &'a DeviceBlock,
    /// The first element, and how many: inside the buffer.
    from: usize,
    len: usize,
    of: PhantomData<&'a T>,
}

/// Some elements of a buffer, to write.
#[derive(Debug)]
pub struct DeviceSliceMut<'a, T> {
    block: &'a DeviceBlock,
    /// As in [`DeviceSlice`]; no other view has any of them.
    from: usize,
    len: usize,
    of: PhantomData<&'a mut T>,
}

/// The byte at which an element begins.
fn offset<T>(element: usize) -> u64 {
    element as u64 * size_of::<T>() as u64
}

impl<'a, T: Pod> DeviceSlice<'a, T> {
    pub(super) fn new(block: &'a DeviceBlock, from: usize, len: usize) -> Self {
        Self { block, from, len, of: PhantomData }
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element, in the device's space.
    pub fn address(&self) -> u64 {
        self.block.address() + offset::<T>(self.from)
    }

    /// The block that the elements lie in, without access to its bytes.
    ///
    /// Another view may write the bytes beside the slice.
    pub fn block(&self) -> BlockRef<'a> {
        BlockRef(self.block)
    }

    /// A part of it.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self, DeviceError> {
        let (from, len) = within::<T>(self.block, self.from, self.len, range)?;
        Ok(Self { from, len, ..*self })
    }

    /// Copies its elements to the host, after everything put on the stream so far.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`] for another length; the driver's error.
    pub fn read(&self, elements: &mut [T]) -> Result<(), DeviceError> {
        within::<T>(self.block, self.from, self.len, ..elements.len())?;
        self.block.read(offset::<T>(self.from), bytemuck::cast_slice_mut(elements))
    }

    /// A copy of its elements.
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

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The address of the first element, in the device's space.
    pub fn address(&self) -> u64 {
        self.as_slice().address()
    }

    /// As [`DeviceSlice::block`], while the slice is borrowed.
    pub fn block(&self) -> BlockRef<'_> {
        BlockRef(self.block)
    }

    /// Converts the slice into its block reference, for interop by address.
    ///
    /// The reference lives as long as the slice could have.
    pub fn into_block(self) -> BlockRef<'a> {
        BlockRef(self.block)
    }

    /// To read.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        DeviceSlice::new(self.block, self.from, self.len)
    }

    /// A part of it.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`].
    pub fn into_slice(self, range: impl RangeBounds<usize>) -> Result<Self, DeviceError> {
        let (from, len) = within::<T>(self.block, self.from, self.len, range)?;
        Ok(Self { from, len, ..self })
    }

    /// Two parts, before and from `middle` on.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`].
    pub fn split_at(self, middle: usize) -> Result<(Self, Self), DeviceError> {
        let (from, len) = within::<T>(self.block, self.from, self.len, middle..)?;
        Ok((Self::new(self.block, self.from, middle), Self::new(self.block, from, len)))
    }

    /// Copies elements from the host to the first of its own, and waits.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`] for too many; the driver's error.
    pub fn write(&mut self, elements: &[T]) -> Result<(), DeviceError> {
        within::<T>(self.block, self.from, self.len, ..elements.len())?;
        self.block.write_shared(offset::<T>(self.from), bytemuck::cast_slice(elements))
    }

    /// Sets every element, on the buffer's stream.
    ///
    /// One fill when all bytes of the value are equal; else copies that double in size.
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

    /// Copies as many elements from another buffer's, also of another device. Says how it went.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`] for another length; the drivers' errors.
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
