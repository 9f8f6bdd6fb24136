//! Views of terrace's memory that implement `cudarc`'s traits.
//!
//! Promises upward: `cudarc` accepts `&SharedSlice` wherever it takes a `CudaView`, and `&mut SharedSliceMut` wherever
//! it takes a `CudaViewMut`.
//! Asks from below: [`SharedStream::meet`] orders copies on other streams; [`Loan`] orders the work before and after
//! the view.

use super::{Loan, SharedStream};
use bytemuck::Pod;
use cudarc::driver::sys::CUdeviceptr;
use cudarc::driver::{self, CudaStream, DevicePtr, DevicePtrMut, LaunchArgs, PushKernelArg, SyncOnDrop};
use std::marker::PhantomData;
use std::sync::Arc;
use terrace_device::{DeviceError, DeviceSlice, DeviceSliceMut};

/// A read-only view of a buffer's elements for `cudarc`.
///
/// A kernel launch that takes the view must run on the view's shared stream.
#[derive(Debug)]
pub struct SharedSlice<'a, T> {
    loan: Loan<'a>,
    /// Address of the first element; a launch passes a reference to this field to the kernel.
    address: CUdeviceptr,
    len: usize,
    of: PhantomData<DeviceSlice<'a, T>>,
}

/// A view of a buffer's elements for `cudarc`, to read and write.
///
/// A kernel launch that takes the view must run on its shared stream.
#[derive(Debug)]
pub struct SharedSliceMut<'a, T> {
    loan: Loan<'a>,
    /// Address of the first element, as in [`SharedSlice`].
    address: CUdeviceptr,
    len: usize,
    of: PhantomData<DeviceSliceMut<'a, T>>,
}

impl<'a, T: Pod> SharedSlice<'a, T> {
    pub(super) fn new(stream: &'a SharedStream, slice: DeviceSlice<'a, T>) -> Result<Self, DeviceError> {
        let loan = Loan::new(slice.block(), stream)?;
        Ok(Self { loan, address: slice.address(), len: slice.len(), of: PhantomData })
    }
}

impl<'a, T: Pod> SharedSliceMut<'a, T> {
    pub(super) fn new(stream: &'a SharedStream, slice: DeviceSliceMut<'a, T>) -> Result<Self, DeviceError> {
        let (address, len) = (slice.address(), slice.len());
        Ok(Self { loan: Loan::new(slice.into_block(), stream)?, address, len, of: PhantomData })
    }
}

macro_rules! readable {
    ($($view:ident)*) => {$(
        impl<T> driver::DeviceSlice<T> for $view<'_, T> {
            fn len(&self) -> usize {
                self.len
            }

            fn stream(&self) -> &Arc<CudaStream> {
                &self.loan.to.cuda
            }
        }

        impl<T> DevicePtr<T> for $view<'_, T> {
            fn device_ptr<'a>(&'a self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
                (self.address, self.loan.to.meet(stream))
            }
        }
    )*};
}

readable! { SharedSlice SharedSliceMut }

impl<T> DevicePtrMut<T> for SharedSliceMut<'_, T> {
    fn device_ptr_mut<'a>(&'a mut self, stream: &'a CudaStream) -> (CUdeviceptr, SyncOnDrop<'a>) {
        (self.address, self.loan.to.meet(stream))
    }
}

// SAFETY: the kernel's parameter is a device address, and the pushed reference to it outlives the launch. The view's `Loan`
// orders the elements' earlier work before the shared stream and keeps the memory until the shared stream is done.
unsafe impl<'a, 'b: 'a, 'c: 'b, T> PushKernelArg<&'b SharedSlice<'c, T>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, view: &'b SharedSlice<'c, T>) -> &mut Self {
        self.arg(&view.address)
    }
}

// SAFETY: as for `SharedSlice`; the exclusive borrow excludes other views of these elements.
unsafe impl<'a, 'b: 'a, 'c: 'b, T> PushKernelArg<&'b mut SharedSliceMut<'c, T>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, view: &'b mut SharedSliceMut<'c, T>) -> &mut Self {
        self.arg(&view.address)
    }
}
