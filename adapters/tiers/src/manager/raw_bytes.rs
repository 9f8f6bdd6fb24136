//! The bytes of a buffer in memory, by address. All reads and writes through pointers are here.
//!
//! Asks from below: a lease word ([`BufferState`](super::buffer_state::BufferState)), which decides which holder may
//! access them.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::{copy_nonoverlapping, write_bytes};
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// A range of memory, by address: borrows nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawBytes {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: this is an address; each method's contract covers its use.
unsafe impl Send for RawBytes {}
// SAFETY: as above.
unsafe impl Sync for RawBytes {}

impl RawBytes {
    pub(super) fn new(start: *mut u8, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// Number of bytes.
    pub(super) fn bytes(self) -> usize {
        self.bytes
    }

    /// The address of the first byte.
    pub(super) fn start(self) -> *mut u8 {
        self.start
    }

    /// The first bytes of the range.
    pub(super) fn first(self, bytes: usize) -> Self {
        debug_assert!(bytes <= self.bytes);
        Self { bytes: bytes.min(self.bytes), ..self }
    }

    /// # Safety
    /// The memory must be valid and initialised, and no thread may write it until the call returns. The `to.len()` bytes
    /// from `offset` on must lie inside the range.
    pub(super) unsafe fn read(self, offset: usize, to: &mut ReadTarget<'_>) {
        debug_assert!(offset + to.len() <= self.bytes);
        // SAFETY: inside, as the caller promises.
        let from = unsafe { self.start.add(offset) };
        // SAFETY: no thread writes it meanwhile; `to` is borrowed for writing, so it does not overlap the range.
        unsafe { copy_nonoverlapping(from, to.bytes.as_mut_ptr().cast(), to.len()) };
    }

    /// # Safety
    /// The memory must be valid and exclusively the caller's until the call returns. The `from.len()` bytes from
    /// `offset` on must lie inside the range.
    pub(super) unsafe fn write(self, offset: usize, from: &[u8]) {
        debug_assert!(offset + from.len() <= self.bytes);
        // SAFETY: inside, as the caller promises.
        let to = unsafe { self.start.add(offset) };
        // SAFETY: the caller has exclusive access, so `from` does not overlap the range.
        unsafe { copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }

    /// # Safety
    /// The memory must be valid and exclusively the caller's until the call returns. The `bytes` bytes from `offset` on
    /// must lie inside the range.
    pub(super) unsafe fn zero(self, offset: usize, bytes: usize) {
        debug_assert!(offset + bytes <= self.bytes);
        // SAFETY: inside, as the caller promises.
        let to = unsafe { self.start.add(offset) };
        // SAFETY: the caller has exclusive access.
        unsafe { write_bytes(to, 0, bytes) };
    }
}

/// Memory that a read fills: initialised or not, and only initialised bytes are written to it.
pub(super) struct ReadTarget<'a> {
    bytes: &'a mut [MaybeUninit<u8>],
    initialised: bool,
}

impl<'a> ReadTarget<'a> {
    pub(super) fn new(to: &'a mut [u8]) -> Self {
        let (start, bytes) = (to.as_mut_ptr().cast(), to.len());
        // SAFETY: it is the same memory, borrowed as long; only initialised bytes are written to it, as this type lets no
        // others be.
        Self { bytes: unsafe { from_raw_parts_mut(start, bytes) }, initialised: true }
    }

    /// Number of bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Splits off the first `bytes` bytes.
    pub(super) fn split_first(&mut self, bytes: usize) -> ReadTarget<'a> {
        let (first, rest) = std::mem::take(&mut self.bytes).split_at_mut(bytes);
        self.bytes = rest;
        ReadTarget { bytes: first, ..*self }
    }

    /// The memory, if it is initialised already.
    pub(super) fn initialised(&mut self) -> Option<RawBytes> {
        self.initialised.then(|| RawBytes::new(self.bytes.as_mut_ptr().cast(), self.bytes.len()))
    }

    /// Copies bytes to all of it. Panics if there are not as many.
    pub(super) fn copy_from(&mut self, from: &[u8]) {
        self.bytes.write_copy_of_slice(from);
    }

    /// Fills all of it with zeros.
    pub(super) fn zero(&mut self) {
        self.bytes.fill(MaybeUninit::new(0));
    }
}

/// Reads `bytes` bytes into new memory.
///
/// # Safety
/// If `read` returns `Ok`, it must have written every byte of its target.
pub(super) async unsafe fn read_new<E>(
    bytes: usize,
    read: impl AsyncFnOnce(ReadTarget<'_>) -> Result<(), E>,
) -> Result<Vec<u8>, E> {
    let mut to = Vec::with_capacity(bytes);
    read(ReadTarget { bytes: &mut to.spare_capacity_mut()[..bytes], initialised: false }).await?;
    // SAFETY: `read` has written the bytes, as the caller promises.
    unsafe { to.set_len(bytes) };
    Ok(to)
}

/// The bytes as a slice, while a shared lease is held.
#[derive(Debug)]
pub(super) struct SharedBytes<'a> {
    raw_bytes: RawBytes,
    _held: PhantomData<&'a [u8]>,
}

impl<'a> SharedBytes<'a> {
    /// # Safety
    /// The memory must be valid, and no thread may write it for as long as `'a`.
    pub(super) unsafe fn new(raw_bytes: RawBytes) -> Self {
        Self { raw_bytes, _held: PhantomData }
    }
}

impl Deref for SharedBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the caller of `new` promised that no thread writes it; it is memory of the system or of a driver,
        // which is initialised.
        unsafe { from_raw_parts(self.raw_bytes.start, self.raw_bytes.bytes) }
    }
}

/// The bytes as a mutable slice, while the exclusive lease is held.
#[derive(Debug)]
pub(super) struct ExclusiveBytes<'a> {
    raw_bytes: RawBytes,
    _held: PhantomData<&'a mut [u8]>,
}

impl<'a> ExclusiveBytes<'a> {
    /// # Safety
    /// The memory must be valid, and no other thread may access it for as long as `'a`.
    pub(super) unsafe fn new(raw_bytes: RawBytes) -> Self {
        Self { raw_bytes, _held: PhantomData }
    }
}

impl Deref for ExclusiveBytes<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the caller of `new` promised exclusive access; it is initialised, as above.
        unsafe { from_raw_parts(self.raw_bytes.start, self.raw_bytes.bytes) }
    }
}

impl DerefMut for ExclusiveBytes<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed for writing.
        unsafe { from_raw_parts_mut(self.raw_bytes.start, self.raw_bytes.bytes) }
    }
}
