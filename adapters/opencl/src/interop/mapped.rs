//! Memory of the device as a slice of the host's.
//!
//! Promises upward: while a [`MappedSlice`] lives, the host reads and writes the elements, and no command does. It never leaves
//! [`SharedQueue::map`]: one that is leaked would leave its memory mapped when that is reused.
//! Asks from below: maps of sub-buffers and of shared virtual memory, which wait for the queue.

use super::slices::{KernelArgument, LentRange};
use super::{QueueLoan, SharedQueue};
use crate::connection::handle;
use crate::layouts::{CL_MAP_READ, CL_MAP_WRITE, CL_TRUE, ClHandle};
use crate::regions::svm;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null, null_mut};
use terrace_device::{DeviceError, DeviceSliceMut, Fault, FaultReason, insist};

/// Elements of a buffer that the host reads and writes until this value is dropped.
#[derive(Debug)]
pub(super) struct MappedSlice<'a, T> {
    elements: NonNull<T>,
    len: usize,
    view: LentRange<'a>,
    of: PhantomData<DeviceSliceMut<'a, T>>,
}

impl<'a, T: Pod> MappedSlice<'a, T> {
    pub(super) fn new(queue: &'a SharedQueue, slice: DeviceSliceMut<'a, T>) -> Result<Self, DeviceError> {
        let (address, len) = (slice.address(), slice.len());
        let view = LentRange::new(QueueLoan::new(slice.into_block(), queue)?, address, (len * size_of::<T>()) as u64)?;
        let mut mapped = Self { elements: NonNull::dangling(), len: 0, view, of: PhantomData };
        if len > 0 {
            mapped.elements = mapped.view.map().map_err(|fault| queue.refused(fault))?.cast();
            mapped.len = len;
        }
        if !mapped.elements.is_aligned() {
            return Err(queue.refused(Fault::of("map for elements of this alignment", FaultReason::Unsupported)));
        }
        Ok(mapped)
    }
}

impl LentRange<'_> {
    /// Maps all bytes, of which there is at least one, and waits.
    fn map(&self) -> Result<NonNull<u8>, Fault> {
        let inner = &self.loan.to.backend.inner;
        let (queue, how, bytes) = (self.loan.to.queue(), CL_MAP_READ | CL_MAP_WRITE, self.bytes);
        let mapped = match self.argument() {
            KernelArgument::Buffer(buffer) => inner.connection.made("clEnqueueMapBuffer", |core, code| {
                // SAFETY: the view's own sub-buffer, all of it; the queue lives as long as its stream.
                unsafe { (core.clEnqueueMapBuffer)(queue, buffer, CL_TRUE, how, 0, bytes, 0, null(), null_mut(), code) }
            })?,
            KernelArgument::Address(address) => {
                let svm = svm(inner)?;
                inner.connection.call("clEnqueueSVMMap", |_| {
                    // SAFETY: memory that the loan keeps; the queue lives as long as its stream.
                    unsafe { (svm.clEnqueueSVMMap)(queue, CL_TRUE, how, address, bytes, 0, null(), null_mut()) }
                })?;
                address
            }
        };
        NonNull::new(mapped.cast()).ok_or(Fault::of("clEnqueueMapBuffer", FaultReason::Other))
    }

    /// Ends a map, in the order of the queue.
    fn unmap(&self, mapped: ClHandle) -> Result<(), Fault> {
        let (inner, queue) = (&self.loan.to.backend.inner, self.loan.to.queue());
        match self.argument() {
            KernelArgument::Buffer(buffer) => inner.connection.call("clEnqueueUnmapMemObject", |core| {
                // SAFETY: mapped by `map`, and unmapped once; the host has no reference to it any more.
                unsafe { (core.clEnqueueUnmapMemObject)(queue, buffer, mapped, 0, null(), null_mut()) }
            }),
            KernelArgument::Address(_) => {
                let svm = svm(inner)?;
                inner.connection.call("clEnqueueSVMUnmap", |_| {
                    // SAFETY: as above.
                    unsafe { (svm.clEnqueueSVMUnmap)(queue, mapped, 0, null(), null_mut()) }
                })
            }
        }
    }
}

impl<T> Deref for MappedSlice<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: mapped memory of so many elements, of which any bytes are values (`new` demands `Pod`) and which the borrow of the
        // buffer keeps others from.
        unsafe { std::slice::from_raw_parts(self.elements.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for MappedSlice<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and the borrow of the buffer is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.elements.as_ptr(), self.len) }
    }
}

impl<T> Drop for MappedSlice<'_, T> {
    fn drop(&mut self) {
        if self.len > 0 {
            // A refusal leaves the memory mapped, in which the driver may refuse commands; the loan ends all the same.
            let mapped = handle(self.elements.as_ptr().expose_provenance() as u64);
            _ = insist(|| self.view.unmap(mapped));
        }
    }
}
