//! A place in a buffer that means the same in every process.
//!
//! Promises upward: resolving an offset never goes beyond the bytes it is resolved in, whatever the number is.
//! Asks from below: nothing.

use crate::error::ShmError;
use bytemuck::{Pod, Zeroable};
use std::marker::PhantomData;
use std::ops::Range;

/// Bytes from the buffer's first byte to a `T`: to store in the buffer where a pointer would stand.
///
/// # Example
/// ```
/// use terrace_shm::{Offset, SharedBuffer};
/// let buffer = SharedBuffer::create(&format!("offset-{}", std::process::id()), 4096)?;
/// let mut lease = buffer.write::<u64>(..)?;
/// lease[100] = 7;
/// lease[0] = Offset::<u64>::new(800).bytes();
/// let found = *lease.at(Offset::<u64>::new(lease[0]))?;
/// assert_eq!(found, 7);
/// assert!(lease.at(Offset::<u64>::new(4090)).is_err());
/// # Ok::<(), terrace_shm::ShmError>(())
/// ```
#[derive(Zeroable, Pod)]
#[repr(transparent)]
pub struct Offset<T>(u64, PhantomData<T>);

impl<T> Offset<T> {
    /// An offset of so many bytes; any number is one.
    pub const fn new(bytes: u64) -> Self {
        Self(bytes, PhantomData)
    }

    /// Bytes from the buffer's first byte.
    pub const fn bytes(self) -> u64 {
        self.0
    }

    /// Where `count` elements lie in bytes that begin at `window.start` of the buffer.
    pub(crate) fn within(self, count: usize, window: &Range<usize>) -> Result<Range<usize>, ShmError> {
        let start = usize::try_from(self.0).unwrap_or(usize::MAX);
        let end = count.checked_mul(size_of::<T>()).and_then(|bytes| start.checked_add(bytes)).unwrap_or(usize::MAX);
        if start < window.start || end > window.end {
            let (start, end, bytes) = (self.0, end as u64, window.end as u64);
            return Err(ShmError::OutOfRange { start, end, bytes });
        }
        aligned::<T>(&(start..end))?;
        Ok(start - window.start..end - window.start)
    }
}

/// Checks that a range of a buffer holds whole, aligned elements.
pub fn aligned<T>(range: &Range<usize>) -> Result<(), ShmError> {
    let (size, align) = (size_of::<T>(), align_of::<T>());
    let fits = size != 0 && align <= crate::pages::PAGE_BYTES;
    match fits && range.start.is_multiple_of(align) && range.len().is_multiple_of(size) {
        true => Ok(()),
        false => Err(ShmError::Misaligned { start: range.start as u64, end: range.end as u64, size, align }),
    }
}

impl<T> Clone for Offset<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Offset<T> {}

impl<T> PartialEq for Offset<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T> Eq for Offset<T> {}

impl<T> std::fmt::Debug for Offset<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Offset({})", self.0)
    }
}
