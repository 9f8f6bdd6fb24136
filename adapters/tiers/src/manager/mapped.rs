//! Mapped files as buffers: read in place; never written, moved or made durable.
//!
//! Promises upward: a lease has the mapping's own address; nothing of it counts as used in a tier or as pinned, since
//! the kernel reclaims its pages when it needs them; dropping the last handle unmaps it.
//! Asks from below: [`MappedFile`], whose creator promised that the bytes do not change.

use super::buffer_state::BufferState;
use super::error::Error;
use super::{Buffer, BufferInfo, Manager, ManagerShared};
use crate::ledger::BufferId;
use std::sync::atomic::AtomicPtr;
use std::sync::{Arc, Weak};
use terrace_core::lease::LeaseWord;
use terrace_file::{AccessPattern, MappedFile};

impl Manager {
    /// Adds a mapped file as a buffer, read where it is mapped.
    ///
    /// [`Buffer::lease_best`] and [`Buffer::read`] work as with any other buffer, [`prefetch`](Self::prefetch) starts
    /// to read the file; calls that would write or move the buffer or make it durable return [`Error::Mapped`].
    ///
    /// # Example
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("weights");
    /// # std::fs::write(&path, [7; 10_000])?;
    /// use terrace_tiers::{Error, Manager, manager::MappedFile};
    ///
    /// let manager = Manager::builder().memory(1 << 20).build()?;
    /// // SAFETY: no process writes to the file while it is mapped.
    /// let weights = manager.map_file(unsafe { MappedFile::open_unchecked(&path) }?);
    /// assert_eq!(weights.lease_best()?[9_999], 7);
    /// assert_eq!(weights.write(0, &[8]), Err(Error::Mapped));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map_file(&self, file: MappedFile) -> Buffer {
        let buffer = Arc::new(BufferState::over(file));
        // Adds the buffer to the list of buffers, except in a forked child, where lists are empty.
        if self.shared.check_process().is_ok() {
            let mut state = self.shared.state();
            state.mapped.retain(|buffer| buffer.strong_count() > 0);
            state.mapped.push(Arc::downgrade(&buffer));
        }
        self.buffer(buffer)
    }
}

impl BufferState {
    /// The state of a mapped file as a buffer, which no ledger knows. Its lease word is never closed, and never held
    /// exclusively.
    fn over(file: MappedFile) -> Self {
        let bytes = file.len();
        let mut buffer = Self::new(BufferId::NONE, bytes as u64, bytes.max(1), None);
        (buffer.best, buffer.lease) = (AtomicPtr::new(file.as_ptr().cast_mut()), LeaseWord::open());
        buffer.mapped = Some(Box::new(file));
        buffer
    }

    /// Bytes of the buffer that count as pinned while it is leased.
    pub(super) fn weight(&self) -> u64 {
        if self.mapped.is_some() { 0 } else { self.bytes }
    }

    /// # Errors
    /// [`Error::Mapped`].
    pub(super) fn check_unmapped(&self) -> Result<(), Error> {
        if self.mapped.is_some() { Err(Error::Mapped) } else { Ok(()) }
    }

    /// Starts to read a mapped file into memory; returns false if the buffer is not a mapped file.
    pub(super) fn read_ahead(&self) -> Result<bool, Error> {
        self.mapped
            .as_ref()
            .map_or(Ok(false), |file| Ok(file.advise(0..file.len(), AccessPattern::WillNeed).map(|()| true)?))
    }
}

impl ManagerShared {
    /// The entries of mapped files in the list of buffers.
    pub(super) fn listed_files(&self, mapped: &[Weak<BufferState>]) -> impl Iterator<Item = BufferInfo> {
        let tier = self.tiers().end;
        mapped.iter().filter_map(Weak::upgrade).map(move |buffer| BufferInfo {
            name: None,
            file: buffer.mapped.as_ref().map(|file| file.name().into()),
            bytes: buffer.bytes,
            tier,
            durable: false,
            leased: buffer.lease.is_held(),
        })
    }
}
