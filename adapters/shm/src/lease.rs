//! Leases: typed views of a range, while no other process writes it.
//!
//! Promises upward: a view has whole, aligned elements inside the buffer; a lease ends with its value, also in a panic.
//! Asks from below: an open buffer, whose locks exclude other lessees that keep the rules.
//!
//! Slices are made anew at each access and live no longer than the borrow of the lease.

use crate::backing::BackingMemory;
use crate::error::ShmError;
use crate::offset::{Offset, aligned};
use crate::pages::Pages;
use crate::shared::{LeaseKind, OpenBuffer, Patience};
use bytemuck::{AnyBitPattern, NoUninit};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Deref, DerefMut, Range, RangeBounds};
use std::thread;
use terrace_guard::Process;

/// A lease of either kind.
struct Held<'a> {
    buffer: &'a OpenBuffer,
    /// A forked child has the value but not the lease.
    process: Process,
    kind: LeaseKind,
    /// Bytes behind the header; within the buffer.
    range: Range<usize>,
    /// The bytes, where the way has no mapping.
    copy: Option<Pages>,
    /// Whether the thread was panicking already when it took the lease.
    panicking: bool,
}

impl<'a> Held<'a> {
    /// Takes a lease on a range that holds whole elements.
    fn acquire<T>(
        buffer: &'a OpenBuffer,
        range: Range<usize>,
        kind: LeaseKind,
        patience: Patience,
    ) -> Result<Self, ShmError> {
        aligned::<T>(&range)?;
        buffer.acquire(kind, patience)?;
        let (process, panicking) = (Process::current(), thread::panicking());
        // From here on, dropping it releases the lease.
        let mut held = Self { buffer, process, kind, range, copy: None, panicking };
        buffer.backing.check(&buffer.header)?;
        held.copy = buffer.backing.copy(&held.range)?;
        Ok(held)
    }

    /// Fails where the last writer did not end its lease.
    fn whole(self) -> Result<Self, ShmError> {
        match self.buffer.torn_by()? {
            Some(pid) => Err(ShmError::Torn { name: self.buffer.backing.name.text(), pid }),
            None => Ok(self),
        }
    }

    fn bytes(&self) -> &[u8] {
        match (&self.copy, &self.buffer.backing.memory) {
            (Some(pages), _) => pages.bytes(),
            (None, BackingMemory::Sealed(memory)) if self.process.is_current() => {
                // SAFETY: `self` is a lease, and its range was checked against the buffer's bytes.
                unsafe { memory.bytes(self.range.clone()) }
            }
            _ => &[],
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match (&mut self.copy, &self.buffer.backing.memory) {
            (Some(pages), _) => pages.bytes_mut(),
            (None, BackingMemory::Sealed(memory)) if self.process.is_current() => {
                // SAFETY: only write leases call this, `self` is borrowed exclusively, and its range was checked.
                unsafe { memory.bytes_mut(self.range.clone()) }
            }
            _ => &mut [],
        }
    }

    fn at<U: AnyBitPattern>(&self, offset: Offset<U>, count: usize) -> Result<&[U], ShmError> {
        let within = offset.within(count, &self.range)?;
        self.bytes().get(within).map(slice_of).ok_or_else(|| self.forked())
    }

    fn forked(&self) -> ShmError {
        ShmError::Forked { name: self.buffer.backing.name.text() }
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.process.is_current() {
            self.buffer.release(self.kind);
        }
    }
}

/// Elements of bytes that were checked to be whole and aligned.
fn slice_of<T: AnyBitPattern>(bytes: &[u8]) -> &[T] {
    bytemuck::try_cast_slice(bytes).unwrap_or_default()
}

/// A range of bytes within a buffer.
pub fn checked(range: impl RangeBounds<usize>, bytes: usize) -> Result<Range<usize>, ShmError> {
    let start = match range.start_bound() {
        Bound::Included(&start) => Some(start),
        Bound::Excluded(&start) => start.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&end) => end.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(bytes),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= bytes => Ok(start..end),
        _ => {
            let [start, end] = [start, end].map(|bound| bound.map_or(u64::MAX, |bound| bound as u64));
            Err(ShmError::OutOfRange { start, end, bytes: bytes as u64 })
        }
    }
}

/// Elements that no process writes while the lease lives: a `[T]`.
///
/// Other readers, in this and other processes, may have leases at once. In a forked child the slice is empty.
pub struct ReadLease<'a, T> {
    held: Held<'a>,
    of: PhantomData<T>,
}

impl<'a, T: AnyBitPattern> ReadLease<'a, T> {
    pub(crate) fn new(buffer: &'a OpenBuffer, range: Range<usize>, patience: Patience) -> Result<Self, ShmError> {
        let held = Held::acquire::<T>(buffer, range, LeaseKind::Read, patience)?.whole()?;
        Ok(Self { held, of: PhantomData })
    }

    /// The element at an offset from the buffer's first byte; constant time.
    ///
    /// # Errors
    /// [`OutOfRange`](ShmError::OutOfRange) outside the leased range, [`Misaligned`](ShmError::Misaligned),
    /// [`Forked`](ShmError::Forked) in a forked child.
    pub fn at<U: AnyBitPattern>(&self, offset: Offset<U>) -> Result<&U, ShmError> {
        self.held.at(offset, 1)?.first().ok_or_else(|| self.held.forked())
    }

    /// As [`at`](Self::at), for `count` elements in a row.
    ///
    /// # Errors
    /// As [`at`](Self::at).
    pub fn slice_at<U: AnyBitPattern>(&self, offset: Offset<U>, count: usize) -> Result<&[U], ShmError> {
        self.held.at(offset, count)
    }
}

impl<T: AnyBitPattern> Deref for ReadLease<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        slice_of(self.held.bytes())
    }
}

/// Elements that no other thread and no other process reads or writes while the lease lives: a `[T]`.
///
/// Under [`Way::Memfd`](crate::Way::Memfd) writes are made in place; under [`Way::File`](crate::Way::File) in a copy, which
/// [`commit`](Self::commit) or the drop writes back. A panic that drops the lease leaves the buffer torn, or the file as it was.
pub struct WriteLease<'a, T> {
    held: Held<'a>,
    /// Whether the bytes were written back.
    ended: bool,
    of: PhantomData<T>,
}

impl<'a, T: AnyBitPattern + NoUninit> WriteLease<'a, T> {
    pub(crate) fn new(buffer: &'a OpenBuffer, range: Range<usize>, patience: Patience) -> Result<Self, ShmError> {
        Self::begin(Held::acquire::<T>(buffer, range, LeaseKind::Write, patience)?.whole()?)
    }

    /// A lease although the last writer did not end its own.
    pub(crate) fn after_crash(
        buffer: &'a OpenBuffer,
        range: Range<usize>,
        patience: Patience,
    ) -> Result<Self, ShmError> {
        Self::begin(Held::acquire::<T>(buffer, range, LeaseKind::Write, patience)?)
    }

    fn begin(held: Held<'a>) -> Result<Self, ShmError> {
        if held.copy.is_none() {
            held.buffer.begin_writing()?;
        }
        Ok(Self { held, ended: false, of: PhantomData })
    }

    /// As [`ReadLease::at`].
    ///
    /// # Errors
    /// As [`ReadLease::at`].
    pub fn at<U: AnyBitPattern>(&self, offset: Offset<U>) -> Result<&U, ShmError> {
        self.held.at(offset, 1)?.first().ok_or_else(|| self.held.forked())
    }

    /// As [`ReadLease::at`], to write.
    ///
    /// # Errors
    /// As [`ReadLease::at`].
    pub fn at_mut<U: AnyBitPattern + NoUninit>(&mut self, offset: Offset<U>) -> Result<&mut U, ShmError> {
        let within = offset.within(1, &self.held.range)?;
        let forked = self.held.forked();
        let bytes = self.held.bytes_mut().get_mut(within).unwrap_or_default();
        bytemuck::try_from_bytes_mut(bytes).map_err(|_| forked)
    }

    /// Ends the lease and makes what was written visible to other lessees.
    ///
    /// Dropping does the same, but cannot tell errors.
    ///
    /// # Errors
    /// [`CutShort`](ShmError::CutShort) and errors of the system for a file; memory has none.
    /// [`Forked`](ShmError::Forked) in a forked child.
    pub fn commit(mut self) -> Result<(), ShmError> {
        self.end()
    }
}

impl<T> WriteLease<'_, T> {
    fn end(&mut self) -> Result<(), ShmError> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        if !self.held.process.is_current() {
            return Err(self.held.forked());
        }
        let buffer = self.held.buffer;
        if let Some(pages) = &self.held.copy {
            buffer.backing.check(&buffer.header)?;
            buffer.begin_writing()?;
            buffer.backing.write_back(&self.held.range, pages)?;
        }
        buffer.end_writing()
    }
}

impl<T> Drop for WriteLease<'_, T> {
    fn drop(&mut self) {
        // A panic may have come between two writes that belong together.
        if thread::panicking() == self.held.panicking {
            _ = self.end();
        }
    }
}

impl<T: AnyBitPattern> Deref for WriteLease<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        slice_of(self.held.bytes())
    }
}

impl<T: AnyBitPattern + NoUninit> DerefMut for WriteLease<'_, T> {
    fn deref_mut(&mut self) -> &mut [T] {
        bytemuck::try_cast_slice_mut(self.held.bytes_mut()).unwrap_or_default()
    }
}

impl<T: AnyBitPattern + fmt::Debug> fmt::Debug for ReadLease<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadLease({:?})", self.held.range)
    }
}

impl<T: AnyBitPattern + fmt::Debug> fmt::Debug for WriteLease<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteLease({:?})", self.held.range)
    }
}
