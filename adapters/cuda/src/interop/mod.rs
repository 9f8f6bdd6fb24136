//! Passes terrace's memory to `cudarc`'s copies and kernel launches.
//!
//! ```text
//!   DeviceBuffer, its slices          cudarc::driver
//!        │ view, view_mut                  │
//!   ┌────v─────────────── SharedStream ────v─────────────┐   one stream, known to both
//!   │ SharedSlice      DevicePtr              a CudaStream │
//!   │ SharedSliceMut   DevicePtr, DevicePtrMut             │
//!   └────────────────────────────────────────────────────┘
//! ```
//!
//! Promises upward: work that `cudarc` queues with a view runs after all work queued on the buffer's home stream before
//! the view was made, and before all work queued there after the view is dropped. The buffer's memory is not reused
//! before that work is done, even if the view is leaked. No call here blocks on the device, except copies on a stream
//! other than the shared one.
//! Asks from below: adoption of streams, and lending of blocks to them.
//!
//! # Both retain the primary context
//! [`Cuda::open`](crate::Cuda::open) and `CudaContext::new` each retain the device's primary context. So addresses,
//! streams and modules of one are valid for the other, and either may be dropped first. A context that `cudarc` creates
//! (`new_non_primary`) has memory of its own, so its streams are refused. `cudarc` leaves its context current on every
//! thread that calls it; terrace restores the thread's previous context.
//!
//! # How the two order streams
//! A piece of `cudarc`'s own memory has two events, for which each copy and launch waits and which it records, if there
//! is more than one stream. A block of terrace has one home stream and a list of other streams that use it. The
//! [`SharedStream`] connects the two: when a view is made, the shared stream waits (on the device) for the home stream
//! and is added to the list; when the view is dropped, the home stream waits for the shared stream. A buffer that was
//! allocated on the shared stream needs no driver call.
//!
//! # What `cudarc` leaves to its caller
//! * A launch is unsafe. Views add a condition: the launch must run on the stream that they share, as one by
//!   [`SharedStream::launch_builder`] does. `cudarc` does not tell a launch's argument on which stream the launch is
//!   queued.
//! * `CudaStream::memcpy_dtod` from another device's context makes the copy wait for the source's earlier work, but not
//!   the source's later work wait for the copy. Wait for the copy before you drop the source, or use
//!   [`DeviceBuffer::copy_from`](terrace_device::DeviceBuffer::copy_from), which keeps the source alive.
//! * `cudarc`'s copies take any slice of host memory, and do not wait if that memory is pinned. Do not pass them a
//!   borrowed [`PinnedBuffer`](terrace_device::PinnedBuffer) or [`RegisteredBuffer`](terrace_device::RegisteredBuffer):
//!   these types have their own copy methods.
//! * `cudarc` panics if the driver's library is missing: call [`Cuda::open`](crate::Cuda::open) first, which returns an
//!   error.

mod slices;

pub use slices::{SharedSlice, SharedSliceMut};

use crate::context::number;
use bytemuck::Pod;
use cudarc::driver::{CudaFunction, CudaStream, LaunchArgs, SyncOnDrop};
use std::sync::Arc;
use terrace_device::{BlockRef, Device, DeviceError, DeviceSlice, DeviceSliceMut, RawStream, Stream};

/// A stream that `cudarc` and terrace share, so that one order holds for the work of both.
///
/// # Example
/// ```no_run
/// use cudarc::driver::CudaContext;
/// use terrace_cuda::{Cuda, SharedStream};
/// use terrace_device::{Device, DeviceBuffer, DeviceOptions};
///
/// let device = Device::open(Cuda::open(0)?, DeviceOptions::default())?;
/// let shared = SharedStream::new(&device, &CudaContext::new(0)?.new_stream()?)?;
/// let mut numbers = DeviceBuffer::<f32>::zeroed(&device, shared.stream(), 1000)?;
/// shared.cuda().memcpy_htod(&[1.0; 10], &mut shared.view_mut(numbers.slice_mut(5..15)?)?)?;
/// assert_eq!(numbers.to_vec()?[4..6], [0.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedStream {
    /// Declared before `cuda`, so that terrace drops its handle before the last reference to the CUDA stream is
    /// dropped.
    stream: Stream,
    cuda: Arc<CudaStream>,
}

impl SharedStream {
    /// Adopts a stream of `cudarc` into a device, which keeps the stream alive while it uses it.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`] if the stream belongs to another device or not to the primary context; the driver's
    /// errors, e.g. for the per-thread default stream, which cannot be shared.
    pub fn new(device: &Device, cuda: &Arc<CudaStream>) -> Result<Self, DeviceError> {
        let (context, description) = (cuda.context(), device.description());
        let same = description.backend == "cuda" && context.ordinal() == description.ordinal as usize;
        if !same || !context.is_primary() {
            let kind = if context.is_primary() { "the primary" } else { "a separate" };
            let of = format!("{kind} context of CUDA device {}", context.ordinal());
            return Err(DeviceError::OtherDevice { block: None, of, asked: device.name().into() });
        }
        let raw = RawStream(number(cuda.cu_stream()));
        // SAFETY: the stream belongs to this device's primary context and lives as long as the `Arc` passed along.
        let stream = unsafe { device.adopt_kept_stream(raw, Arc::clone(cuda)) }?;
        Ok(Self { stream, cuda: Arc::clone(cuda) })
    }

    /// The stream as terrace's type, for allocations.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The stream as `cudarc`'s type, for copies and launches.
    pub fn cuda(&self) -> &Arc<CudaStream> {
        &self.cuda
    }

    /// Begins a kernel launch on this stream; its arguments may be views.
    pub fn launch_builder<'a>(&'a self, function: &'a CudaFunction) -> LaunchArgs<'a> {
        self.cuda.launch_builder(function)
    }

    /// Makes a read-only view of a buffer or slice.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`] if the buffer belongs to another device; the driver's errors.
    pub fn view<'a, T: Pod>(&'a self, of: impl Into<DeviceSlice<'a, T>>) -> Result<SharedSlice<'a, T>, DeviceError> {
        SharedSlice::new(self, of.into())
    }

    /// Makes a view of a buffer or slice, to read and write.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`] if the buffer belongs to another device; the driver's errors.
    pub fn view_mut<'a, T: Pod>(
        &'a self,
        of: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<SharedSliceMut<'a, T>, DeviceError> {
        SharedSliceMut::new(self, of.into())
    }

    /// Orders the work that the caller queues on `stream` between this call and the drop of the result.
    ///
    /// On the shared stream nothing is needed. Any other stream waits (on the device) for the shared stream first, and
    /// dropping the result blocks the thread until that stream is done.
    fn meet<'a>(&'a self, stream: &'a CudaStream) -> SyncOnDrop<'a> {
        if *stream == *self.cuda {
            return SyncOnDrop::Sync(None);
        }
        if stream.join(&self.cuda).is_err() {
            // The driver refused an event, so this thread waits instead. If that fails too, cudarc reports the error on
            // its next call.
            self.cuda.context().record_err(self.cuda.synchronize());
        }
        SyncOnDrop::sync_stream(stream)
    }
}

/// A block that is lent to a shared stream, and returned to its home stream when this value is dropped.
#[derive(Debug)]
struct Loan<'a> {
    block: BlockRef<'a>,
    to: &'a SharedStream,
}

impl<'a> Loan<'a> {
    fn new(block: BlockRef<'a>, to: &'a SharedStream) -> Result<Self, DeviceError> {
        block.lend(&to.stream)?;
        Ok(Self { block, to })
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        if self.block.reclaim(&self.to.stream).is_err() {
            // The driver refused an event, so this thread waits instead. Even if that fails, the memory is not reused:
            // `lend` added the stream to the block's users.
            let _ = self.to.stream.synchronize();
        }
    }
}
