//! Views of terrace's memory as arguments of kernels.
//!
//! Promises upward: a view is a sub-buffer of exactly its elements, or the address of the first.
//! Asks from below: the address space; [`QueueLoan`] orders the work before and after the view.

use super::{QueueLoan, SharedQueue};
use crate::connection::{handle, size};
use crate::copies::{LocatedMemory, locate};
use crate::layouts::ClHandle;
use crate::regions::{SubBuffer, svm};
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ptr::null_mut;
use terrace_device::{DeviceError, DeviceSlice, DeviceSliceMut, Fault, FaultReason};

/// What a kernel takes for a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelArgument {
    /// A buffer (`cl_mem`) of the view's elements alone; null for a view without elements. For `clSetKernelArg`.
    Buffer(ClHandle),
    /// The address of the first element, in shared virtual memory. For `clSetKernelArgSVMPointer`.
    Address(ClHandle),
}

/// A read-only view of a buffer's elements, for kernels on the view's shared queue.
#[derive(Debug)]
pub struct KernelSlice<'a, T> {
    view: LentRange<'a>,
    of: PhantomData<DeviceSlice<'a, T>>,
}

/// A view of a buffer's elements to read and write, for kernels on the view's shared queue.
#[derive(Debug)]
pub struct KernelSliceMut<'a, T> {
    view: LentRange<'a>,
    of: PhantomData<DeviceSliceMut<'a, T>>,
}

/// A lent range of memory.
pub(super) struct LentRange<'a> {
    /// `None` where there is an address, or no element.
    sub_buffer: Option<SubBuffer<'a>>,
    /// Where there is no sub-buffer; null without elements.
    address: u64,
    pub(super) bytes: usize,
    pub(super) loan: QueueLoan<'a>,
}

impl std::fmt::Debug for LentRange<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LentRange").field("argument", &self.argument()).field("loan", &self.loan).finish()
    }
}

impl<'a> LentRange<'a> {
    /// Lends `bytes` bytes at an address.
    pub(super) fn new(loan: QueueLoan<'a>, address: u64, bytes: u64) -> Result<Self, DeviceError> {
        let (to, inner) = (loan.to, &*loan.to.backend.inner);
        let refused = |fault| to.refused(fault);
        let bytes = size("clCreateSubBuffer", bytes).map_err(refused)?;
        if bytes == 0 {
            return Ok(Self { sub_buffer: None, address: 0, bytes, loan });
        }
        match locate(inner, address) {
            LocatedMemory::Buffer { offset, .. } if !offset.is_multiple_of(inner.align.max(1)) => {
                Err(refused(crate::result_codes::fault("clCreateSubBuffer", -13)))
            }
            LocatedMemory::Buffer { buffer, offset } => {
                // SAFETY: the loan keeps the block, in a buffer that the table has.
                let part = unsafe { SubBuffer::new(inner, buffer, offset, bytes) }.map_err(refused)?;
                Ok(Self { sub_buffer: Some(part), address: 0, bytes, loan })
            }
            LocatedMemory::Svm(_) => Ok(Self { sub_buffer: None, address, bytes, loan }),
            LocatedMemory::Host(_) => Err(refused(Fault::of("view pinned memory", FaultReason::Unsupported))),
        }
    }

    pub(super) fn argument(&self) -> KernelArgument {
        match &self.sub_buffer {
            Some(part) => KernelArgument::Buffer(part.handle()),
            None if self.address == 0 => KernelArgument::Buffer(null_mut()),
            None => KernelArgument::Address(handle(self.address)),
        }
    }

    /// # Safety
    /// As for [`KernelSlice::set_arg`].
    unsafe fn set_arg(&self, kernel: ClHandle, index: u32) -> Result<(), DeviceError> {
        let inner = &self.loan.to.backend.inner;
        let connection = &inner.connection;
        let set = match self.argument() {
            KernelArgument::Buffer(buffer) => connection.call("clSetKernelArg", |core| {
                // SAFETY: the caller promises the kernel; the argument is a handle, which is copied during the call.
                unsafe { (core.clSetKernelArg)(kernel, index, size_of::<ClHandle>(), (&raw const buffer).cast()) }
            }),
            KernelArgument::Address(address) => {
                svm(inner).and_then(|svm| {
                    connection.call("clSetKernelArgSVMPointer", |_| {
                        // SAFETY: as above.
                        unsafe { (svm.clSetKernelArgSVMPointer)(kernel, index, address) }
                    })
                })
            }
        };
        set.map_err(|fault| self.loan.to.refused(fault))
    }
}

impl<'a, T: Pod> KernelSlice<'a, T> {
    pub(super) fn new(queue: &'a SharedQueue, slice: DeviceSlice<'a, T>) -> Result<Self, DeviceError> {
        let (address, bytes) = (slice.address(), (slice.len() * size_of::<T>()) as u64);
        let view = LentRange::new(QueueLoan::new(slice.block(), queue)?, address, bytes)?;
        Ok(Self { view, of: PhantomData })
    }
}

impl<'a, T: Pod> KernelSliceMut<'a, T> {
    pub(super) fn new(queue: &'a SharedQueue, slice: DeviceSliceMut<'a, T>) -> Result<Self, DeviceError> {
        let (address, bytes) = (slice.address(), (slice.len() * size_of::<T>()) as u64);
        let view = LentRange::new(QueueLoan::new(slice.into_block(), queue)?, address, bytes)?;
        Ok(Self { view, of: PhantomData })
    }
}

macro_rules! arguments {
    ($($view:ident)*) => {$(
        impl<T> $view<'_, T> {
            /// What a kernel takes for this view. It is valid while the view lives.
            pub fn argument(&self) -> KernelArgument {
                self.view.argument()
            }

            /// Sets an argument of a kernel (`cl_kernel`).
            ///
            /// # Errors
            /// [`DeviceError::Driver`] if the kernel has no such argument, or not of this type.
            ///
            /// # Safety
            /// The kernel must be live. It may be launched on the view's shared queue alone, before the view is dropped and with no
            /// other thread setting its arguments, and must touch only elements of its views as their types allow.
            pub unsafe fn set_arg(&self, kernel: ClHandle, index: u32) -> Result<(), DeviceError> {
                // SAFETY: the caller's promise.
                unsafe { self.view.set_arg(kernel, index) }
            }

            /// Number of bytes.
            pub fn bytes(&self) -> usize {
                self.view.bytes
            }
        }
    )*};
}

arguments! { KernelSlice KernelSliceMut }
