//! The buffer that programs hold.
//!
//! Promises upward: every call gives its result or a typed error, whatever other processes do; a forked child is refused.
//! Asks from below: an open buffer, and leases on it.

use crate::error::ShmError;
use crate::layout::Way;
use crate::lease::{ReadLease, WriteLease, checked};
use crate::shared::{Holder, LeaseKind, OpenBuffer, Patience};
use bytemuck::{AnyBitPattern, NoUninit};
use std::ops::RangeBounds;
use std::time::Duration;
use terrace_guard::ProcessOwned;

/// Memory with a name, shared between processes.
///
/// Dropping it ends this process's hold; the end of the last hold frees memory and name.
///
/// # Example
/// ```
/// use terrace_shm::SharedBuffer;
/// let name = format!("buffer-{}", std::process::id());
/// let made = SharedBuffer::create(&name, 1 << 20)?;
/// made.write::<u32>(0..16)?.copy_from_slice(&[1, 2, 3, 4]);
///
/// // In another process:
/// let opened = SharedBuffer::open(&name)?;
/// assert_eq!(opened.read::<u32>(0..16)?[3], 4);
/// assert_eq!(opened.holders()?.len(), 2);
/// # Ok::<(), terrace_shm::ShmError>(())
/// ```
#[derive(Debug)]
pub struct SharedBuffer(ProcessOwned<OpenBuffer>);

impl SharedBuffer {
    pub(crate) fn new(buffer: OpenBuffer) -> Self {
        Self(ProcessOwned::new(buffer))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.0.backing.name.as_str()
    }

    /// Bytes it has, without its header. They never change.
    pub fn bytes(&self) -> usize {
        self.0.header.bytes as usize
    }

    /// How it has a name.
    pub fn way(&self) -> Way {
        self.0.header.way
    }

    /// The user whose name it is.
    pub fn owner(&self) -> u32 {
        self.0.header.owner
    }

    /// Leases a range of bytes to read; waits for a writer for as long as it takes.
    ///
    /// A file's bytes are copied.
    ///
    /// One that waits comes before all that ask later. So a thread that has a lease on the buffer must not wait for a second one.
    ///
    /// # Errors
    /// [`OutOfRange`](ShmError::OutOfRange), [`Misaligned`](ShmError::Misaligned); [`Torn`](ShmError::Torn) after a writer died;
    /// [`CutShort`](ShmError::CutShort), [`Damaged`](ShmError::Damaged) for a file; [`Forked`](ShmError::Forked);
    /// [`System`](ShmError::System).
    pub fn read<T: AnyBitPattern>(&self, range: impl RangeBounds<usize>) -> Result<ReadLease<'_, T>, ShmError> {
        ReadLease::new(self.own()?, checked(range, self.bytes())?, Patience::Endless)
    }

    /// As [`read`](Self::read), without waiting.
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`Busy`](ShmError::Busy).
    pub fn try_read<T: AnyBitPattern>(&self, range: impl RangeBounds<usize>) -> Result<ReadLease<'_, T>, ShmError> {
        self.read_timeout(range, Duration::ZERO)
    }

    /// As [`read`](Self::read), waiting for at most `timeout`.
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`Busy`](ShmError::Busy).
    pub fn read_timeout<T: AnyBitPattern>(
        &self,
        range: impl RangeBounds<usize>,
        timeout: Duration,
    ) -> Result<ReadLease<'_, T>, ShmError> {
        ReadLease::new(self.own()?, checked(range, self.bytes())?, Patience::of(timeout))
    }

    /// Leases a range of bytes to write; waits for other lessees for as long as it takes.
    ///
    /// A file's bytes are copied.
    ///
    /// The lease excludes leases on all other ranges too.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn write<T: AnyBitPattern + NoUninit>(
        &self,
        range: impl RangeBounds<usize>,
    ) -> Result<WriteLease<'_, T>, ShmError> {
        WriteLease::new(self.own()?, checked(range, self.bytes())?, Patience::Endless)
    }

    /// As [`write`](Self::write), without waiting.
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`Busy`](ShmError::Busy).
    pub fn try_write<T: AnyBitPattern + NoUninit>(
        &self,
        range: impl RangeBounds<usize>,
    ) -> Result<WriteLease<'_, T>, ShmError> {
        self.write_timeout(range, Duration::ZERO)
    }

    /// As [`write`](Self::write), waiting for at most `timeout`.
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`Busy`](ShmError::Busy).
    pub fn write_timeout<T: AnyBitPattern + NoUninit>(
        &self,
        range: impl RangeBounds<usize>,
        timeout: Duration,
    ) -> Result<WriteLease<'_, T>, ShmError> {
        WriteLease::new(self.own()?, checked(range, self.bytes())?, Patience::of(timeout))
    }

    /// As [`write`](Self::write), also after a writer died: the caller rewrites what may be half new.
    ///
    /// When the lease ends, the buffer is whole for all lessees.
    ///
    /// # Errors
    /// As [`read`](Self::read), without [`Torn`](ShmError::Torn).
    pub fn write_after_crash<T: AnyBitPattern + NoUninit>(
        &self,
        range: impl RangeBounds<usize>,
    ) -> Result<WriteLease<'_, T>, ShmError> {
        WriteLease::after_crash(self.own()?, checked(range, self.bytes())?, Patience::Endless)
    }

    /// Accepts the bytes as they are after a writer died; returns the process that died.
    ///
    /// `None`: no writer died.
    ///
    /// # Errors
    /// As [`read`](Self::read), without [`Torn`](ShmError::Torn).
    pub fn recover(&self) -> Result<Option<u32>, ShmError> {
        let own = self.own()?;
        own.acquire(LeaseKind::Write, Patience::Endless)?;
        let torn = own.torn_by().and_then(|torn| own.end_writing().map(|()| torn));
        own.release(LeaseKind::Write);
        torn
    }

    /// All that hold the buffer, and those that died holding it until their place is taken.
    ///
    /// At most 64, a few system calls each.
    ///
    /// # Errors
    /// [`CutShort`](ShmError::CutShort), [`Forked`](ShmError::Forked), [`System`](ShmError::System).
    pub fn holders(&self) -> Result<Vec<Holder>, ShmError> {
        self.own()?.holders()
    }

    /// The process that created the buffer, and whether it still holds it. A few system calls.
    ///
    /// # Errors
    /// As [`holders`](Self::holders).
    pub fn creator(&self) -> Result<Holder, ShmError> {
        self.own()?.creator()
    }

    fn own(&self) -> Result<&OpenBuffer, ShmError> {
        match self.0.is_own() {
            true => Ok(&self.0),
            false => Err(ShmError::Forked { name: self.name().into() }),
        }
    }
}
