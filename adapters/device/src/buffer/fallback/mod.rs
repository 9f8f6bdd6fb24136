//! Elements that live in device memory while the device has room, and in host memory otherwise.
//!
//! ```text
//!   side          host()             host_mut(range)          on_device()               on_device_mut()
//!   host          -                  -                        takes memory, all ─► both  likewise ─► device dirty
//!   host, while the device is full                            the host's memory          likewise: still host
//!   both          -                  ─► host dirty            -                          ─► device dirty
//!   host dirty    -                  one more range           the ranges ─► both         likewise ─► device dirty
//!   device dirty  all ─► both        all ─► host dirty        -                          -
//!   device        memory, all ─► both  likewise ─► host dirty  -                         -
//! ```
//! Rows: where the bytes are ([`BufferSide`]). Cells: what a call does ("-": only a comparison or two), ─► the row
//! after it. "all" and "the ranges" (those that the host wrote) are copied; "memory" is allocated. `host` and
//! `host_mut` wait for their copies, and for work on the stream that writes what the host will read, or accesses what
//! it will write. `on_device` and `on_device_mut` put their copies on the stream and do not wait.
//!
//! Promises upward: a reader sees the newest bytes; where host and device share memory, there is one block and no copy;
//! an access by the host to bytes resident there costs two comparisons and no driver call.
//! Asks from below: the core's [`Residence`] tracks which copy is newest, [`DeviceBlock`] copies in stream order.
//!
//! | file | what it is |
//! | --- | --- |
//! | `moves` | allocations, copies and waits for bytes that are not where an access needs them |
//! | `ranges` | what the host wrote since it was last copied to the device |
//! | `stats` | counters of one buffer |

mod moves;
mod ranges;
mod stats;

pub use stats::FallbackStats;

use super::{DeviceSlice, DeviceSliceMut, bytes_of, within};
use crate::block::DeviceBlock;
use crate::capability::Capabilities;
use crate::device::Device;
use crate::error::DeviceError;
use crate::stream::Stream;
use bytemuck::Pod;
use moves::Retry;
use ranges::Ranges;
use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use terrace_core::residence::{Residence, ResidenceError, Transition};

/// Tier numbers of host and device in the core's [`Residence`].
const HOST: u8 = 0;
const DEVICE: u8 = 1;

/// Where a buffer's bytes are, and which copy is the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferSide {
    /// The bytes are in host memory only.
    Host,
    /// The bytes are in device memory only.
    Device,
    /// The bytes are in host and device memory, with equal values.
    Both,
    /// The bytes are in host and device memory; the host's are newer.
    HostDirty,
    /// The bytes are in host and device memory; the device's are newer.
    DeviceDirty,
    /// The bytes are in one memory that host and device share.
    Shared,
}

/// What work in flight on the stream may do to the buffer's host memory. Each variant includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum InStream {
    /// No work in flight uses the host memory.
    Done,
    /// Work may read the host memory: the host may read it too.
    Reads,
    /// Work may write the host memory: the host must wait before any access.
    Writes,
}

/// Elements in host memory, device memory or both; the buffer tracks which copy is the newest.
///
/// Use the device's elements on the buffer's own stream. Where another stream uses [`DeviceSlice::address`], make the
/// buffer's stream wait for it ([`Stream::wait_for`]) before the next call on the buffer. Where a captured graph writes
/// the elements, call [`on_device_mut`](Self::on_device_mut) before each launch.
///
/// # Example
/// ```
/// use terrace_device::{Device, FallbackBuffer};
/// let device = Device::host();
/// let stream = device.stream()?;
/// let mut weights = FallbackBuffer::from_slice(&device, &stream, &[1.0f32; 1000])?;
/// weights.on_device_mut()?.fill(0.5)?; // kernels on `stream` use its `address()`
/// weights.host_mut(..10)?.fill(2.0); // waits for the stream; the device gets these ten when it asks
/// assert_eq!(weights.on_device()?.to_vec()?, weights.host()?);
/// # Ok::<(), terrace_device::DeviceError>(())
/// ```
pub struct FallbackBuffer<T> {
    at: Device,
    stream: Stream,
    /// Pinned host memory, which the device can access; `Some` iff `residence` has the host present.
    host: Option<DeviceBlock>,
    /// The device's own memory; `Some` iff `residence` has the device present.
    card: Option<DeviceBlock>,
    /// Number of elements; their bytes fit into each block.
    len: usize,
    residence: Residence,
    flight: InStream,
    /// Whether host and device share one memory: `card` is then never allocated.
    shared: bool,
    /// Ranges that the host wrote and the device's copy lacks. Empty unless the device is present and only the host
    /// valid.
    dirty: Ranges,
    retry: Retry,
    stats: FallbackStats,
    of: PhantomData<T>,
}

impl<T: Pod> FallbackBuffer<T> {
    /// Allocates `len` zeroed elements on the host.
    ///
    /// Device memory is allocated at the first access by the device.
    ///
    /// # Errors
    /// [`DeviceError::BadRequest`] for zero elements; an error if the device has no pinned memory, or none is left.
    pub fn new(device: &Device, stream: &Stream, len: usize) -> Result<Self, DeviceError> {
        let host = device.allocate_pinned(stream, bytes_of::<T>(len)?, align_of::<T>() as u64)?;
        let pointer: *mut u8 = std::ptr::with_exposed_provenance_mut(host.address() as usize);
        // SAFETY: a fresh block of host memory with at least these bytes, not shared yet; the pool hands out pinned
        // memory only once no work is in flight on it.
        unsafe { pointer.write_bytes(0, len * size_of::<T>()) };
        Ok(Self {
            at: device.clone(),
            stream: stream.clone(),
            host: Some(host),
            card: None,
            len,
            residence: Residence::new(HOST)?,
            flight: InStream::Done,
            shared: device.description().capabilities.contains(Capabilities::INTEGRATED),
            dirty: Ranges::default(),
            retry: Retry::default(),
            stats: FallbackStats::default(),
            of: PhantomData,
        })
    }

    /// Allocates a buffer on the host and copies the elements of a slice into it.
    ///
    /// # Errors
    /// As [`FallbackBuffer::new`].
    pub fn from_slice(device: &Device, stream: &Stream, elements: &[T]) -> Result<Self, DeviceError> {
        let mut buffer = Self::new(device, stream, elements.len())?;
        buffer.host_mut(..)?.copy_from_slice(elements);
        Ok(buffer)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: a buffer has at least one element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Size of all elements in bytes.
    pub fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }

    /// Returns the newest elements, on the host.
    ///
    /// If they are resident on the host and no work in flight writes them, this is only a check; otherwise it copies
    /// them to the host and waits for the stream.
    ///
    /// # Errors
    /// The driver's error, also of earlier work on the stream. [`DeviceError::Capture`] if it would have to wait for a
    /// stream that is being captured.
    #[inline]
    pub fn host(&mut self) -> Result<&[T], DeviceError> {
        if !self.residence.valid(HOST) || self.flight == InStream::Writes {
            self.fetch()?;
        } else {
            self.stats.hit();
        }
        let (pointer, len) = self.elements()?;
        // SAFETY: the block is host memory of at least `len` elements, aligned to the element, initialised by `new` or
        // by the copy that made it valid, plain data; no work in flight writes it, and the buffer is borrowed.
        Ok(unsafe { std::slice::from_raw_parts(pointer, len) })
    }

    /// Returns the newest elements of a range, to write on the host.
    ///
    /// Marks the range dirty: the next access by the device copies it. Waits while work on the stream may read the host
    /// memory.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`]; as [`FallbackBuffer::host`].
    #[inline]
    pub fn host_mut(&mut self, range: impl RangeBounds<usize>) -> Result<&mut [T], DeviceError> {
        let (from, len) = within::<T>(self.block()?, 0, self.len, range)?;
        if !self.residence.valid(HOST) || self.flight != InStream::Done {
            self.fetch()?;
        } else {
            self.stats.hit();
        }
        if len > 0 {
            self.residence.apply(Transition::Update(HOST))?;
            if self.card.is_some() {
                self.dirty.insert(from, from + len);
            }
        }
        let (pointer, all) = self.elements()?;
        // SAFETY: as in `host`; no work in flight reads the elements either.
        let elements = unsafe { std::slice::from_raw_parts_mut(pointer, all) };
        Ok(&mut elements[from..from + len])
    }

    /// Returns the newest elements, for the device to read.
    ///
    /// They are in the device's own memory, or in host memory while the device is full
    /// ([`FallbackBuffer::is_fallback`]). Copies are put on the stream; the call does not wait.
    ///
    /// # Errors
    /// The driver's error. [`DeviceError::Capture`] if bytes must be copied while a graph is captured on the stream.
    #[inline]
    pub fn on_device(&mut self) -> Result<DeviceSlice<'_, T>, DeviceError> {
        self.settle()?;
        if self.card.is_none() {
            self.flight = self.flight.max(InStream::Reads);
        }
        Ok(DeviceSlice::new(self.block()?, 0, self.len))
    }

    /// As [`FallbackBuffer::on_device`], for writing: marks the device's elements as the newest.
    ///
    /// # Errors
    /// As [`FallbackBuffer::on_device`].
    #[inline]
    pub fn on_device_mut(&mut self) -> Result<DeviceSliceMut<'_, T>, DeviceError> {
        self.settle()?;
        if self.card.is_none() {
            self.flight = InStream::Writes;
        } else {
            self.residence.apply(Transition::Update(DEVICE))?;
        }
        Ok(DeviceSliceMut::new(self.block()?, 0, self.len))
    }

    /// Where the bytes are, and which copy is the newest.
    pub fn side(&self) -> BufferSide {
        let Self { residence, .. } = self;
        match (residence.present(HOST), residence.present(DEVICE), residence.dirty()) {
            _ if self.shared => BufferSide::Shared,
            (_, _, Some(HOST)) => BufferSide::HostDirty,
            (_, _, Some(_)) => BufferSide::DeviceDirty,
            (true, true, None) => BufferSide::Both,
            (true, false, None) => BufferSide::Host,
            (false, _, None) => BufferSide::Device,
        }
    }

    /// Whether the device uses the host memory, since at the last attempt the device had no room.
    pub fn is_fallback(&self) -> bool {
        self.retry.full() && self.card.is_none()
    }

    /// Frees the buffer's device memory. Neither copies nor waits.
    ///
    /// The memory is reused once the stream is done with it. Returns the bytes freed: 0 if the buffer had none there.
    ///
    /// # Errors
    /// [`DeviceError::Residence`] if only the device has the newest bytes: call [`FallbackBuffer::host`] first.
    pub fn evict_device(&mut self) -> Result<u64, DeviceError> {
        match self.residence.apply(Transition::Evict(DEVICE)) {
            Err(ResidenceError::NotPresent) => return Ok(0),
            other => other?,
        }
        self.dirty.clear();
        Ok(self.card.take().map_or(0, |block| block.bytes()))
    }

    /// Frees the buffer's host memory. Neither copies nor waits.
    ///
    /// The memory is reused once the stream is done with it. Returns the bytes freed: 0 if the buffer had none there.
    ///
    /// # Errors
    /// [`DeviceError::Residence`] if only the host has the newest bytes: call [`FallbackBuffer::on_device`] first.
    pub fn evict_host(&mut self) -> Result<u64, DeviceError> {
        match self.residence.apply(Transition::Evict(HOST)) {
            Err(ResidenceError::NotPresent) => return Ok(0),
            other => other?,
        }
        // The pool delays reuse of the freed block until work in flight is done: the buffer need not wait for that
        // work.
        self.flight = InStream::Done;
        Ok(self.host.take().map_or(0, |block| block.bytes()))
    }

    /// Counters of this buffer so far.
    pub fn stats(&self) -> FallbackStats {
        self.stats
    }
}

impl<T> fmt::Debug for FallbackBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallbackBuffer")
            .field("len", &self.len)
            .field("host", &self.host)
            .field("card", &self.card)
            .field("residence", &self.residence)
            .finish_non_exhaustive()
    }
}
