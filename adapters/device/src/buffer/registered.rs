//! Elements of a `Vec` of the user, pinned in place.
//!
//! Promises upward: while a [`RegisteredBuffer`] is accessible, no copy of its elements is in flight; if it is dropped
//! during a copy, its memory is unpinned and freed after the copy; a refused call gives back the `Vec` or buffer that
//! was passed in.
//! Asks from below: blocks of foreign memory, which are released once their streams are done; registration by the
//! device.

use super::{DeviceBuffer, InFlight, bytes_of};
use crate::block::DeviceBlock;
use crate::device::Device;
use crate::error::DeviceError;
use crate::stream::Stream;
use bytemuck::Pod;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

/// A refused call: its error, and the value that was passed in, unchanged.
#[derive(Debug)]
pub struct Refused<B> {
    /// Why the call was refused.
    pub error: DeviceError,
    /// The value that was passed in.
    pub back: B,
}

impl<B> fmt::Display for Refused<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B: fmt::Debug> std::error::Error for Refused<B> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Drops the value that was passed in and keeps the error.
impl<B> From<Refused<B>> for DeviceError {
    fn from(refused: Refused<B>) -> Self {
        refused.error
    }
}

/// Elements of a `Vec`, pinned in place: the device copies them without staging.
///
/// Pinning takes the driver about as long as touching each page: it pays for memory that is copied repeatedly or is
/// very large. [`PinnedBuffer`](super::PinnedBuffer) allocates memory that is pinned already.
///
/// # Example
/// ```
/// use terrace_device::{Device, DeviceBuffer, RegisteredBuffer};
/// let device = Device::host();
/// let stream = device.stream()?;
/// let weights = vec![0.5_f32; 1000];
/// let pinned = RegisteredBuffer::new(&device, &stream, weights)?; // a refusal gives the `Vec` back: `refused.back`
/// let mut on_device = DeviceBuffer::new(&device, &stream, 1000)?;
/// let pinned = pinned.copy_to(&mut on_device)?.wait()?;
/// let weights = pinned.into_vec()?; // where it was all the time
/// assert_eq!(on_device.to_vec()?, weights);
/// # Ok::<(), terrace_device::DeviceError>(())
/// ```
pub struct RegisteredBuffer<T> {
    /// Foreign memory: releasing the block unregisters it and frees the elements.
    block: DeviceBlock,
    /// Length and capacity of the `Vec`, in elements. No work in flight uses them.
    len: usize,
    capacity: usize,
    of: PhantomData<T>,
}

#[expect(clippy::result_large_err, reason = "either way the buffer comes back, which is what is large")]
impl<T: Pod> RegisteredBuffer<T> {
    /// Pins the elements of a `Vec`.
    ///
    /// # Errors
    /// An error if the device cannot pin memory; the driver's error, also for memory that is registered already;
    /// [`DeviceError::BadRequest`] for an empty `Vec`; [`DeviceError::OtherDevice`].
    pub fn new(device: &Device, stream: &Stream, elements: Vec<T>) -> Result<Self, Refused<Vec<T>>> {
        let bytes = match bytes_of::<T>(elements.len()) {
            Ok(bytes) => bytes,
            Err(error) => return Err(Refused { error, back: elements }),
        };
        let mut elements = ManuallyDrop::new(elements);
        let (len, capacity) = (elements.len(), elements.capacity());
        let address = elements.as_mut_ptr().expose_provenance() as u64;
        let rest = move |address| {
            // SAFETY: the `Vec` taken apart above, which has no other owner: `into_vec` removes this callback first.
            drop(unsafe { assemble::<T>(address, len, capacity) });
        };
        // SAFETY: the elements of a `Vec` that lives until `rest` gets it, or until `into_vec` has unregistered it.
        match unsafe { device.pin(stream, (address, bytes), rest) } {
            Ok(block) => Ok(Self { block, len, capacity, of: PhantomData }),
            Err(error) => Err(Refused { error, back: ManuallyDrop::into_inner(elements) }),
        }
    }

    /// Unpins the elements and returns the same `Vec`; copies nothing.
    ///
    /// # Errors
    /// The driver's error, with the `Vec`, whose elements are then still pinned.
    pub fn into_vec(mut self) -> Result<Vec<T>, Refused<Vec<T>>> {
        drop(self.block.take_release());
        // SAFETY: the `Vec` that `new` took apart; its other owner, the callback, was dropped above without being
        // called.
        let elements = unsafe { assemble(self.block.address(), self.len, self.capacity) };
        let stream = self.block.stream_core();
        // SAFETY: `new` registered the memory; the buffer's owner has waited for each copy.
        match unsafe { stream.service.unregister(self.block.address()) } {
            Ok(()) => Ok(elements),
            Err(error) => Err(Refused { error, back: elements }),
        }
    }

    /// Copies all elements to the start of buffer `to`, on the stream of `to`; does not wait.
    ///
    /// # Errors
    /// [`DeviceError::OutOfBounds`] if `to` is shorter than `self`; [`DeviceError::OtherDevice`]; the driver's error.
    /// If the driver refused a copy that may have started nevertheless, [`InFlight::wait`] returns the error instead.
    pub fn copy_to(self, to: &mut DeviceBuffer<T>) -> Result<InFlight<T, Self>, Refused<Self>> {
        self.copy(to, true)
    }

    /// Fills all elements from the start of buffer `from`, on the stream of `from`; does not wait.
    ///
    /// # Errors
    /// As for [`RegisteredBuffer::copy_to`].
    pub fn copy_from(self, from: &DeviceBuffer<T>) -> Result<InFlight<T, Self>, Refused<Self>> {
        self.copy(from, false)
    }

    fn copy(self, buffer: &DeviceBuffer<T>, to_device: bool) -> Result<InFlight<T, Self>, Refused<Self>> {
        let stream = buffer.block().stream_core();
        if let Err(fault) = stream.service.health().check() {
            return Err(Refused { error: stream.service.error(fault), back: self });
        }
        match buffer.copy_host(&self.block, self.len, to_device) {
            Ok(()) => Ok(InFlight::new(self, stream)),
            // The driver may have started the refused copy: wait for the stream. If that wait fails too, the block
            // keeps the memory until a later wait succeeds.
            Err(error) => match stream.service.settle_stream(stream.raw) {
                Ok(()) => Err(Refused { error, back: self }),
                Err(_) => Ok(InFlight::failed(self, stream, error)),
            },
        }
    }
}

/// Reassembles a `Vec` from its parts.
///
/// # Safety
/// The parts must be those of a `Vec` that was taken apart, and only this buffer may reassemble it.
unsafe fn assemble<T>(address: u64, len: usize, capacity: usize) -> Vec<T> {
    let pointer = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the caller's promise; the pointer was exposed when the `Vec` was taken apart.
    unsafe { Vec::from_raw_parts(pointer, len, capacity) }
}

impl<T: Pod> Deref for RegisteredBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let pointer = std::ptr::with_exposed_provenance(self.block.address() as usize);
        // SAFETY: the elements of the `Vec`, plain data whatever was copied into them; no work in flight uses them.
        unsafe { std::slice::from_raw_parts(pointer, self.len) }
    }
}

impl<T: Pod> DerefMut for RegisteredBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let pointer = std::ptr::with_exposed_provenance_mut(self.block.address() as usize);
        // SAFETY: as above, and borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(pointer, self.len) }
    }
}

impl<T> fmt::Debug for RegisteredBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredBuffer").field("len", &self.len).field("block", &self.block).finish_non_exhaustive()
    }
}
