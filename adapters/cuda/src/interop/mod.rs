//! Terrace's memory in `cudarc`'s copies and launches.
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
//! Promises upward: what `cudarc` does with a view comes after everything put on the buffer's own stream before the view
//! was made, and before everything put there after it is gone; the buffer's memory is given to nobody before it is done,
//! also where the view is forgotten. No call here waits for the device, but copies on another stream than the shared one.
//! Asks from below: streams that are adopted, blocks that are lent.
//!
//! # Both hold the primary context
//! [`Cuda::open`](crate::Cuda::open) and `CudaContext::new` each keep a reference to the device's primary context, so that
//! addresses, streams and modules of one are good for the other, and either may go first. Contexts that `cudarc` makes
//! itself (`new_non_primary`) have memory of their own: their streams are refused. `cudarc` makes the context current on
//! every thread that calls it, and leaves it so; terrace gives threads back what they had.
//!
//! # How the two order streams
//! `cudarc`'s own memory has two events, which each copy and launch waits for and records, where there is more than one
//! stream. Terrace's has one home stream, and a list of others that use it. They meet at the [`SharedStream`]: when a view is
//! made, it waits (on the device) for the home stream, and is entered in the list; when the view is dropped, the home stream
//! waits for it. A buffer that was allocated on the shared stream needs neither: no driver call at all.
//!
//! # What `cudarc` leaves to its caller
//! * A launch is unsafe, and one condition is added: it must be on the stream that its views share
//!   ([`SharedStream::launch_builder`] is). `cudarc` does not tell a launch's argument which stream it is for.
//! * `CudaStream::memcpy_dtod` from another device's context waits for the source before the copy, but not with the source
//!   after it. Wait for the copy before you drop the source, or use
//!   [`DeviceBuffer::copy_from`](terrace_device::DeviceBuffer::copy_from), which holds it.
//! * Its copies take any slice of the host's memory, and do not wait where it is pinned. Do not give them a borrowed
//!   [`PinnedBuffer`](terrace_device::PinnedBuffer) or [`RegisteredBuffer`](terrace_device::RegisteredBuffer): those have
//!   copies of their own.
//! * It panics where the driver's library is missing: ask [`Cuda::open`](crate::Cuda::open) first, which does not.

mod slices;

pub use slices::{SharedSlice, SharedSliceMut};

use crate::primary::number;
use bytemuck::Pod;
use cudarc::driver::{CudaFunction, CudaStream, LaunchArgs, SyncOnDrop};
use std::sync::Arc;
use terrace_device::{BlockRef, Device, DeviceError, DeviceSlice, DeviceSliceMut, RawStream, Stream};

/// A stream of `cudarc`'s that is terrace's as well: one order of work for both.
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
    /// First, so that terrace lets go of the stream before the last reference to it may go.
    stream: Stream,
    cuda: Arc<CudaStream>,
}

impl SharedStream {
    /// Makes a stream of `cudarc`'s known to a device. It lives as long as anything of the device knows it.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`] when it is not of this device, or not of its primary context; the driver's, e.g. that
    /// each thread's own default stream is no stream to share.
    pub fn new(device: &Device, cuda: &Arc<CudaStream>) -> Result<Self, DeviceError> {
        let (context, description) = (cuda.context(), device.description());
        let same = description.backend == "cuda" && context.ordinal() == description.ordinal as usize;
        if !same || !context.is_primary() {
            let kind = if context.is_primary() { "the primary" } else { "a separate" };
            let of = format!("{kind} context of CUDA device {}", context.ordinal());
            return Err(DeviceError::OtherDevice { block: None, of, asked: device.name().into() });
        }
        let raw = RawStream(number(cuda.cu_stream()));
        // SAFETY: a stream of this device's primary context, which lives as long as the reference that is handed over.
        let stream = unsafe { device.adopt_kept_stream(raw, Arc::clone(cuda)) }?;
        Ok(Self { stream, cuda: Arc::clone(cuda) })
    }

    /// As terrace knows it: to allocate on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// As `cudarc` knows it: for copies and launches.
    pub fn cuda(&self) -> &Arc<CudaStream> {
        &self.cuda
    }

    /// A launch on this stream, whose arguments may be views.
    pub fn launch_builder<'a>(&'a self, function: &'a CudaFunction) -> LaunchArgs<'a> {
        self.cuda.launch_builder(function)
    }

    /// A buffer, or a slice of one, to read.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`]; the driver's.
    pub fn view<'a, T: Pod>(&'a self, of: impl Into<DeviceSlice<'a, T>>) -> Result<SharedSlice<'a, T>, DeviceError> {
        SharedSlice::new(self, of.into())
    }

    /// A buffer, or a slice of one, to read and write.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`]; the driver's.
    pub fn view_mut<'a, T: Pod>(
        &'a self,
        of: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<SharedSliceMut<'a, T>, DeviceError> {
        SharedSliceMut::new(self, of.into())
    }

    /// What makes work on `stream` right, which is put there until the result is dropped: nothing on this one; on another,
    /// it begins after this one's, and is waited for.
    fn meet<'a>(&'a self, stream: &'a CudaStream) -> SyncOnDrop<'a> {
        if *stream == *self.cuda {
            return SyncOnDrop::Sync(None);
        }
        if stream.join(&self.cuda).is_err() {
            // No event can be had: the host waits instead. Where that fails too, the context is lost, and says so next.
            self.cuda.context().record_err(self.cuda.synchronize());
        }
        SyncOnDrop::sync_stream(stream)
    }
}

/// A block while a shared stream uses it.
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
            // As in `meet`. The memory itself is held by what `lend` entered.
            let _ = self.to.stream.synchronize();
        }
    }
}
