//! Allocations that wait for memory: [`Device::allocate_within`] and [`Device::allocate_async`].
//!
//! Promises upward: first come, first served among those that wait; no runtime is needed; dropping a future takes it out of the queue,
//! and frees what it was granted.
//! Asks from below: the pool's queue.

use crate::block::DeviceBlock;
use crate::device::Device;
use crate::error::DeviceError;
use crate::stream::Stream;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use terrace_core::Request;

/// The future of a block of device memory; see [`Device::allocate_async`].
///
/// Dropping it takes the request out of the queue. Polled again after its end, it allocates another block.
#[must_use = "futures do nothing unless polled"]
pub struct DeviceAllocation {
    stream: Stream,
    request: Request,
    /// Why the request cannot be made; returned by the first poll.
    error: Option<DeviceError>,
    /// The request's place in the pool's queue, while it has one.
    ticket: Option<u64>,
}

impl Device {
    /// Allocates; where there is no memory, waits for at most `limit` until other blocks are freed.
    ///
    /// Blocks may be freed by any thread; a stream that gets on with its work may free them too. As
    /// [`Device::allocate_async`], on the calling thread: first come, first served.
    ///
    /// # Errors
    /// As for [`Device::allocate`]; [`DeviceError::OutOfMemory`] once `limit` is over, or at once if nothing is live whose free
    /// could help.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use terrace_device::{Device, DeviceOptions, HostBackend};
    /// let options = DeviceOptions { capacity: 16 << 20, ..DeviceOptions::default() };
    /// let device = Device::open(HostBackend::new(), options)?;
    /// let stream = device.stream()?;
    /// let block = device.allocate(&stream, 12 << 20)?;
    /// assert!(device.allocate_within(&stream, 12 << 20, Duration::ZERO).is_err(), "no memory, and no time");
    /// let waits = std::thread::spawn({
    ///     let (device, stream) = (device.clone(), stream.clone());
    ///     move || device.allocate_within(&stream, 12 << 20, Duration::from_secs(60)).is_ok()
    /// });
    /// drop(block);
    /// assert!(waits.join().expect("no panic"), "it has the memory that we freed");
    /// # Ok::<(), terrace_device::DeviceError>(())
    /// ```
    pub fn allocate_within(&self, stream: &Stream, bytes: u64, limit: Duration) -> Result<DeviceBlock, DeviceError> {
        let began = Instant::now();
        let waker = Waker::from(Arc::new(ParkedThread(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut allocation = self.allocate_async(stream, bytes);
        loop {
            if let Poll::Ready(done) = Pin::new(&mut allocation).poll(&mut context) {
                return done;
            }
            match limit.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) {
                Some(left) => std::thread::park_timeout(left),
                None => return allocation.give_up(),
            }
        }
    }

    /// Allocates at least `bytes` bytes, as a future that is ready once there is memory. Blocks no thread.
    ///
    /// If nothing waits, the first poll tries what [`Device::allocate`] tries, but waits for no stream, and does not give pinned host memory instead. If
    /// there is no memory, the future waits in the pool's queue: it is granted a block, and woken, when memory is freed by any thread,
    /// when a stream is done with freed memory, or when the capacity rises. First come, first served: of those that wait, the
    /// first to be polled is served first, whatever its size (one of more than the capacity waits until that rises, and those behind it
    /// wait too). A waker must not wait for this device's memory: it may run on the thread that serves the queue. [`Device::allocate`] does not wait, so it may take what is free before
    /// them.
    ///
    /// While requests wait, freed blocks go to the pool, not to their streams' caches, and one thread of the pool polls the streams, where
    /// freed memory waits for them. Any runtime will do, or none.
    ///
    /// # Errors
    /// The future's: [`DeviceError::BadRequest`]; [`DeviceError::OtherDevice`]; [`DeviceError::Lost`];
    /// [`DeviceError::OutOfMemory`] at once if nothing is live whose free could help.
    ///
    /// # Example
    /// ```
    /// use std::future::Future;
    /// use std::pin::pin;
    /// use std::task::{Context, Poll, Waker};
    /// use terrace_device::{Device, DeviceOptions, HostBackend};
    /// let options = DeviceOptions { capacity: 16 << 20, ..DeviceOptions::default() };
    /// let device = Device::open(HostBackend::new(), options)?;
    /// let stream = device.stream()?;
    /// let block = device.allocate(&stream, 12 << 20)?;
    /// let mut waits = pin!(device.allocate_async(&stream, 12 << 20)); // in an async function: `.await`
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(waits.as_mut().poll(&mut context).is_pending());
    /// drop(block);
    /// assert!(matches!(waits.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
    /// # Ok::<(), terrace_device::DeviceError>(())
    /// ```
    pub fn allocate_async(&self, stream: &Stream, bytes: u64) -> DeviceAllocation {
        let error = self.service.check_stream(stream.core()).err();
        DeviceAllocation { stream: stream.clone(), request: Request::new(bytes), error, ticket: None }
    }
}

impl DeviceAllocation {
    /// Leaves the queue: with the block that was granted since the last poll, or with the error of a request that found none.
    fn give_up(mut self) -> Result<DeviceBlock, DeviceError> {
        let home = self.stream.core();
        match self.ticket.take().and_then(|ticket| home.service.leave_queue(ticket)) {
            Some(served) => Ok(DeviceBlock::served(served, self.request, Arc::clone(home))),
            None => Err(home.service.refuse(home, self.request)),
        }
    }
}

impl Future for DeviceAllocation {
    type Output = Result<DeviceBlock, DeviceError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { stream, request, error, ticket } = &mut *self;
        let home = stream.core();
        if let Some(error) = error.take() {
            return Poll::Ready(Err(error));
        }
        if ticket.is_none()
            && let Some((block, home)) = home.hit(*request)
        {
            return Poll::Ready(Ok(DeviceBlock::new(block, *request, home)));
        }
        let served = home.at_home().map_or_else(
            |error| Poll::Ready(Err(error)),
            |()| home.service.poll_memory(home, *request, ticket, context.waker()),
        );
        served.map_ok(|served| DeviceBlock::served(served, *request, Arc::clone(home)))
    }
}

impl Drop for DeviceAllocation {
    fn drop(&mut self) {
        let home = self.stream.core();
        if let Some(ticket) = self.ticket.take()
            && !home.forked()
            && let Some(served) = home.service.leave_queue(ticket)
        {
            drop(DeviceBlock::served(served, self.request, Arc::clone(home)));
        }
    }
}

impl fmt::Debug for DeviceAllocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = self.ticket.is_some();
        f.debug_struct("DeviceAllocation")
            .field("bytes", &self.request.bytes)
            .field("waits", &waits)
            .finish_non_exhaustive()
    }
}

/// Wakes a thread that waits for memory.
struct ParkedThread(Thread);

impl Wake for ParkedThread {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
