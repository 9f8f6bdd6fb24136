//! A copy of a range of bytes, aligned as the range is in the buffer.
//!
//! Promises upward: an element that is aligned in the buffer, to at most a page, is aligned in the copy.
//! Asks from below: the global allocator.

use crate::error::ShmError;
use std::io::{Error, ErrorKind};
use std::ops::Range;

/// Bytes of a page, and the largest alignment of elements.
pub const PAGE_BYTES: usize = 4096;

/// One page.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(4096))]
struct AlignedPage([u8; PAGE_BYTES]);

/// A range's bytes.
pub struct Pages {
    /// Pages that the range touches, from its first.
    pages: Vec<AlignedPage>,
    /// Where the bytes begin in `pages`; less than a page.
    skip: usize,
    /// Bytes of the range.
    bytes: usize,
}

impl Pages {
    /// Zeros for a range of the buffer.
    pub fn new(range: &Range<usize>) -> Result<Self, ShmError> {
        let (skip, bytes) = (range.start % PAGE_BYTES, range.len());
        let count = (skip + bytes).div_ceil(PAGE_BYTES);
        let mut pages = Vec::new();
        let reserved = pages.try_reserve_exact(count);
        reserved
            .map_err(|_| ShmError::System { what: "copying a range", error: Error::from(ErrorKind::OutOfMemory) })?;
        pages.resize(count, AlignedPage([0; PAGE_BYTES]));
        Ok(Self { pages, skip, bytes })
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.pages)[self.skip..self.skip + self.bytes]
    }

    /// The bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.pages)[self.skip..self.skip + self.bytes]
    }
}
