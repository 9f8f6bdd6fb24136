//! Kernels of the program on terrace's memory.
//!
//! ```text
//!   DeviceBuffer, its slices          the program's kernels
//!        │ view, view_mut, map             │
//!   ┌────v───────────── SharedQueue ───────v─────────────┐   one queue, known to both
//!   │ KernelSlice(Mut)   an argument: sub-buffer, address  │
//!   │ map: MappedSlice   a slice of the host's             │
//!   └────────────────────────────────────────────────────┘
//! ```
//!
//! Promises upward: what the program puts on the queue with a view runs after all work that was put on the buffer's home stream
//! before the view was made, and before all work put there after the view is dropped. The buffer's memory is not reused before
//! that work is done, even if the view is leaked.
//! Asks from below: adoption of streams, lending of blocks to them, sub-buffers.

mod mapped;
mod slices;

use mapped::MappedSlice;
pub use slices::{KernelArgument, KernelSlice, KernelSliceMut};

use crate::layouts::ClHandle;
use crate::opencl::OpenClBackend;
use bytemuck::Pod;
use terrace_device::{Backend, BlockRef, Device, DeviceError, DeviceSlice, DeviceSliceMut, Fault, RawStream, Stream};

use crate::connection::{handle, number};

/// A queue that the program and terrace share, so that one order holds for the work of both.
///
/// # Example
/// ```no_run
/// use terrace_device::{Device, DeviceBuffer, DeviceOptions};
/// use terrace_opencl::{OpenClBackend, SharedQueue};
///
/// let backend = OpenClBackend::open(0)?;
/// let device = Device::open(backend.clone(), DeviceOptions::default())?;
/// let shared = SharedQueue::create(&device, &backend)?;
/// let mut numbers = DeviceBuffer::<f32>::zeroed(&device, shared.stream(), 1000)?;
/// shared.map(&mut numbers, |numbers| numbers[5] = 1.0)?;
/// assert_eq!(numbers.to_vec()?[4..6], [0.0, 1.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedQueue {
    stream: Stream,
    backend: OpenClBackend,
}

impl SharedQueue {
    /// A new queue.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`] if the device is not of this backend; the driver's errors.
    pub fn create(device: &Device, backend: &OpenClBackend) -> Result<Self, DeviceError> {
        same(device, backend)?;
        Ok(Self { stream: device.stream()?, backend: backend.clone() })
    }

    /// Adopts a queue (`cl_command_queue`) that the program made.
    ///
    /// It is retained as long as a `SharedQueue` over it, a stream, or a block of the device that uses it lives; `keeper` is dropped then.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`] if the device is not of this backend; [`DeviceError::Driver`] if the queue is of another
    /// context or device, or does not keep the order of its commands.
    ///
    /// # Safety
    /// The queue must be live during the call.
    pub unsafe fn adopt(
        device: &Device,
        backend: &OpenClBackend,
        queue: ClHandle,
        keeper: impl Send + Sync + 'static,
    ) -> Result<Self, DeviceError> {
        same(device, backend)?;
        let hold = QueueHold { backend: backend.clone(), queue: number(queue) };
        let inner = &backend.inner;
        // SAFETY: the caller's promise; a queue of another context is refused.
        if let Err(fault) = unsafe { inner.queues.hold(&inner.connection, hold.queue) } {
            // There is no hold to end.
            std::mem::forget(hold);
            return Err(DeviceError::Driver { device: device.name().into(), fault });
        }
        // SAFETY: the hold keeps the queue alive.
        let stream = unsafe { device.adopt_kept_stream(RawStream(hold.queue), (hold, keeper)) }?;
        Ok(Self { stream, backend: backend.clone() })
    }

    /// The queue as terrace's type, for allocations.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// The queue (`cl_command_queue`), for launches.
    pub fn queue(&self) -> ClHandle {
        handle(self.stream.raw().0)
    }

    /// Makes a read-only view of a buffer or slice.
    ///
    /// # Errors
    /// [`DeviceError::OtherDevice`] if the buffer belongs to another device. [`DeviceError::Driver`] where kernels do not reach
    /// the memory (pinned memory under [`OpenClMemory::Buffers`](crate::OpenClMemory::Buffers) and
    /// [`CoarseSvm`](crate::OpenClMemory::CoarseSvm)), where a slice does not begin at a multiple of [`OpenClBackend::align`]: view
    /// the whole buffer, and give the kernel an index.
    pub fn view<'a, T: Pod>(&'a self, of: impl Into<DeviceSlice<'a, T>>) -> Result<KernelSlice<'a, T>, DeviceError> {
        KernelSlice::new(self, of.into())
    }

    /// Makes a view of a buffer or slice, to read and write.
    ///
    /// # Errors
    /// As for [`Self::view`].
    pub fn view_mut<'a, T: Pod>(
        &'a self,
        of: impl Into<DeviceSliceMut<'a, T>>,
    ) -> Result<KernelSliceMut<'a, T>, DeviceError> {
        KernelSliceMut::new(self, of.into())
    }

    /// Maps a buffer or slice for the host, which waits for the queue, and calls `with` with the elements.
    ///
    /// The device has them again once `with` returns or panics: no map is left behind in memory that is reused. `with` must not wait for
    /// work on this buffer.
    ///
    /// Where device and host share memory no byte is copied.
    ///
    /// # Errors
    /// As for [`Self::view`].
    pub fn map<'a, T: Pod, R>(
        &'a self,
        of: impl Into<DeviceSliceMut<'a, T>>,
        with: impl FnOnce(&mut [T]) -> R,
    ) -> Result<R, DeviceError> {
        Ok(with(&mut MappedSlice::new(self, of.into())?))
    }

    /// A refusal of the driver's, as the device's error.
    fn refused(&self, fault: Fault) -> DeviceError {
        DeviceError::Driver { device: self.backend.inner.description.name.clone(), fault }
    }
}

/// A queue that [`Queues::hold`](crate::queues::Queues::hold) retains.
struct QueueHold {
    backend: OpenClBackend,
    queue: u64,
}

impl Drop for QueueHold {
    fn drop(&mut self) {
        let inner = &self.backend.inner;
        inner.queues.let_go(&inner.connection, self.queue);
    }
}

/// Whether the device is over this very backend.
fn same(device: &Device, backend: &OpenClBackend) -> Result<(), DeviceError> {
    if std::ptr::eq(device.description(), backend.description()) {
        return Ok(());
    }
    let (of, asked) = (backend.description().name.clone(), device.name().into());
    Err(DeviceError::OtherDevice { block: None, of, asked })
}

/// A block that is lent to a shared queue, and returned to its home stream when this value is dropped.
#[derive(Debug)]
struct QueueLoan<'a> {
    block: BlockRef<'a>,
    to: &'a SharedQueue,
}

impl<'a> QueueLoan<'a> {
    fn new(block: BlockRef<'a>, to: &'a SharedQueue) -> Result<Self, DeviceError> {
        block.lend(&to.stream)?;
        Ok(Self { block, to })
    }
}

impl Drop for QueueLoan<'_> {
    fn drop(&mut self) {
        if self.block.reclaim(&self.to.stream).is_err() {
            // The driver refused an event, so this thread waits instead. Even if that fails, the memory is not reused:
            // `lend` added the queue to the block's users.
            let _ = self.to.stream.synchronize();
        }
    }
}
