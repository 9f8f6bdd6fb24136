//! The bytes of a buffer in memory, by address. All that reads or writes them is here.
//!
//! Asks from below: a lease word ([`Body`](super::body::Body)) that says who may.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::{copy_nonoverlapping, write_bytes};
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Bytes somewhere in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: an address; what is done with it is each method's contract.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

impl Window {
    pub(super) fn new(start: *mut u8, bytes: usize) -> Self {
        Self { start, bytes }
    }

    /// The first bytes of it.
    pub(super) fn first(self, bytes: usize) -> Self {
        debug_assert!(bytes <= self.bytes);
        Self { bytes: bytes.min(self.bytes), ..self }
    }

    /// # Safety
    /// The memory is there, and nobody writes it until the call returns. The range lies in the window.
    pub(super) unsafe fn read(self, offset: usize, to: &mut [u8]) {
        debug_assert!(offset + to.len() <= self.bytes);
        // SAFETY: inside, as the caller promises.
        let from = unsafe { self.start.add(offset) };
        // SAFETY: nobody writes it meanwhile; `to` is borrowed for writing, so it is no part of the window.
        unsafe { copy_nonoverlapping(from, to.as_mut_ptr(), to.len()) };
    }

    /// # Safety
    /// The memory is there, and is the caller's alone until the call returns. The range lies in the window.
    pub(super) unsafe fn write(self, offset: usize, from: &[u8]) {
        debug_assert!(offset + from.len() <= self.bytes);
        // SAFETY: inside, as the caller promises.
        let to = unsafe { self.start.add(offset) };
        // SAFETY: it is the caller's alone, so `from` is no part of it.
        unsafe { copy_nonoverlapping(from.as_ptr(), to, from.len()) };
    }

    /// # Safety
    /// The memory is there, and is the caller's alone until the call returns. The range lies in the window.
    pub(super) unsafe fn zero(self, offset: usize, bytes: usize) {
        debug_assert!(offset + bytes <= self.bytes);
        // SAFETY: inside, as the caller promises.
        let to = unsafe { self.start.add(offset) };
        // SAFETY: it is the caller's alone.
        unsafe { write_bytes(to, 0, bytes) };
    }
}

/// The bytes as a slice, while a shared lease is held.
#[derive(Debug)]
pub(super) struct Shared<'a> {
    window: Window,
    _held: PhantomData<&'a [u8]>,
}

impl<'a> Shared<'a> {
    /// # Safety
    /// The memory is there and nobody writes it for as long as `'a`.
    pub(super) unsafe fn new(window: Window) -> Self {
        Self { window, _held: PhantomData }
    }
}

impl Deref for Shared<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: who made this promised that nobody writes it; it is memory of the system's or a driver's, which is
        // initialised.
        unsafe { from_raw_parts(self.window.start, self.window.bytes) }
    }
}

/// The bytes as a slice to write, while the exclusive lease is held.
#[derive(Debug)]
pub(super) struct Exclusive<'a> {
    window: Window,
    _held: PhantomData<&'a mut [u8]>,
}

impl<'a> Exclusive<'a> {
    /// # Safety
    /// The memory is there and nobody else uses it for as long as `'a`.
    pub(super) unsafe fn new(window: Window) -> Self {
        Self { window, _held: PhantomData }
    }
}

impl Deref for Exclusive<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: who made this promised that it is its alone; it is initialised, as above.
        unsafe { from_raw_parts(self.window.start, self.window.bytes) }
    }
}

impl DerefMut for Exclusive<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed for writing.
        unsafe { from_raw_parts_mut(self.window.start, self.window.bytes) }
    }
}
