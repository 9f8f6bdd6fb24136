//! Elements that live on the device while it has room, and on the host when it has not.
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
//! "all" and "the ranges" are copies; "-" costs a comparison or two. The host waits for its copies, and before it reads what
//! work on the stream may write or writes what that may read; the device's are put on the stream.
//!
//! Promises upward: a reader sees the newest bytes; one memory and no copy where host and device share it; a resident
//! host side costs two comparisons and no driver call.
//! Asks from below: the core's [`Residence`] says which side is newest, [`DeviceBlock`] copies in stream order.
//!
//! | file | what it is |
//! | --- | --- |
//! | `moves` | what is done when a side is not there: memory, copies, waits |
//! | `ranges` | what the host wrote and the device has not seen |
//! | `stats` | what a buffer did |

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

/// Tiers, as the core's [`Residence`] numbers them.
const HOST: u8 = 0;
const DEVICE: u8 = 1;

/// Where a buffer's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BufferSide {
    /// On the host only.
    Host,
    /// On the device only.
    Device,
    /// On both, the same.
    Both,
    /// On both; the host's are newer.
    HostDirty,
    /// On both; the device's are newer.
    DeviceDirty,
    /// In one memory that host and device share.
    Shared,
}

/// What work on the stream may still do to the host's memory. In order: each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum InStream {
    /// Nothing.
    Done,
    /// Read it: the host may read too.
    Reads,
    /// Write it: the host waits.
    Writes,
}

/// Elements on two sides, of which the newest are always known.
///
/// Work on the device is work on the buffer's stream: what other streams do with [`DeviceSlice::address`] comes before the
/// next call here by [`Stream::wait_for`]. A graph that writes it when it is launched: call
/// [`on_device_mut`](Self::on_device_mut) before each launch.
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
    /// Pinned host memory, which the device reaches: there iff `residence` has the host present.
    host: Option<DeviceBlock>,
    /// The device's own memory: there iff `residence` has the device present.
    card: Option<DeviceBlock>,
    /// Elements; their bytes are at most each block's.
    len: usize,
    residence: Residence,
    flight: InStream,
    /// Host and device have one memory: `card` is never made.
    shared: bool,
    /// What the device has not seen. Empty unless the device is present and the host alone valid.
    dirty: Ranges,
    retry: Retry,
    stats: FallbackStats,
    of: PhantomData<T>,
}

impl<T: Pod> FallbackBuffer<T> {
    /// `len` elements of zeros, on the host. Device memory is taken when the device first asks.
    ///
    /// # Errors
    /// [`DeviceError::BadRequest`] for none; that the device has no pinned memory, or none is left.
    pub fn new(device: &Device, stream: &Stream, len: usize) -> Result<Self, DeviceError> {
        let host = device.allocate_pinned(stream, bytes_of::<T>(len)?, align_of::<T>() as u64)?;
        let pointer: *mut u8 = std::ptr::with_exposed_provenance_mut(host.address() as usize);
        // SAFETY: a fresh block of the host's memory with at least these bytes, not shared yet; what was in flight on
        // it is done, or the pool would not have given it to the CPU.
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

    /// The elements of a slice, on the host.
    ///
    /// # Errors
    /// As [`FallbackBuffer::new`].
    pub fn from_slice(device: &Device, stream: &Stream, elements: &[T]) -> Result<Self, DeviceError> {
        let mut buffer = Self::new(device, stream, elements.len())?;
        buffer.host_mut(..)?.copy_from_slice(elements);
        Ok(buffer)
    }

    /// Elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a buffer has at least one element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the elements.
    pub fn bytes(&self) -> u64 {
        (self.len * size_of::<T>()) as u64
    }

    /// Returns the newest elements, on the host.
    ///
    /// A check where they are resident on the host and no work in flight writes them; else copies them and waits for the stream.
    ///
    /// # Errors
    /// The driver's: also what work on the stream did wrong. [`DeviceError::Capture`] when it would have to wait.
    #[inline]
    pub fn host(&mut self) -> Result<&[T], DeviceError> {
        if !self.residence.valid(HOST) || self.flight == InStream::Writes {
            self.fetch()?;
        } else {
            self.stats.hit();
        }
        let (pointer, len) = self.elements()?;
        // SAFETY: the block is host memory of `len` elements at least, aligned to the element, initialised by `new` or by the
        // copy that made it valid, plain data; nothing in flight writes it, and the buffer is borrowed.
        Ok(unsafe { std::slice::from_raw_parts(pointer, len) })
    }

    /// Returns the newest elements of a range, to write on the host.
    ///
    /// Marks the range dirty: the next access on the device copies it. Waits while work on the stream may read the host's memory.
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
        // SAFETY: as in `host`, and nothing in flight reads it either.
        let elements = unsafe { std::slice::from_raw_parts_mut(pointer, all) };
        Ok(&mut elements[from..from + len])
    }

    /// Returns the newest elements, for the device to read.
    ///
    /// They are in the device's own memory, or in the host's while the device is full ([`FallbackBuffer::is_fallback`]). Copies are
    /// put on the stream; the call does not wait.
    ///
    /// # Errors
    /// The driver's. [`DeviceError::Capture`] when something must be copied while a graph is captured.
    #[inline]
    pub fn on_device(&mut self) -> Result<DeviceSlice<'_, T>, DeviceError> {
        self.settle()?;
        if self.card.is_none() {
            self.flight = self.flight.max(InStream::Reads);
        }
        Ok(DeviceSlice::new(self.block()?, 0, self.len))
    }

    /// As [`FallbackBuffer::on_device`], to write: from now on the device's elements are the newest.
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

    /// Where the bytes are.
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

    /// Whether the device uses the host's memory because it had no room for its own when it was last asked.
    pub fn is_fallback(&self) -> bool {
        self.retry.full() && self.card.is_none()
    }

    /// Frees the device's memory behind its fence. Neither copies nor waits.
    ///
    /// Returns the bytes freed: 0 when there are none.
    ///
    /// # Errors
    /// [`DeviceError::Residence`] when the newest bytes are there alone: call [`FallbackBuffer::host`] first.
    pub fn evict_device(&mut self) -> Result<u64, DeviceError> {
        match self.residence.apply(Transition::Evict(DEVICE)) {
            Err(ResidenceError::NotPresent) => return Ok(0),
            other => other?,
        }
        self.dirty.clear();
        Ok(self.card.take().map_or(0, |block| block.bytes()))
    }

    /// Frees the host's memory behind its fence. Neither copies nor waits.
    ///
    /// Returns the bytes freed: 0 when there are none.
    ///
    /// # Errors
    /// [`DeviceError::Residence`] when the newest bytes are there alone: call [`FallbackBuffer::on_device`] first.
    pub fn evict_host(&mut self) -> Result<u64, DeviceError> {
        match self.residence.apply(Transition::Evict(HOST)) {
            Err(ResidenceError::NotPresent) => return Ok(0),
            other => other?,
        }
        // What is in flight keeps the block behind its fence, not the buffer.
        self.flight = InStream::Done;
        Ok(self.host.take().map_or(0, |block| block.bytes()))
    }

    /// What it did so far.
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
