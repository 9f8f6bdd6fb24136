//! Mapped files as buffers: read where they are; never written, moved or made durable.
//!
//! Promises upward: a lease has the mapping's own address; nothing of it counts as memory of a tier or as pinned, since
//! the system takes its pages back whenever it needs them; when the last handle goes it is unmapped.
//! Asks from below: [`MappedFile`], of which its maker has promised that the bytes stay as they are.

use super::body::Body;
use super::error::Error;
use super::{Buffer, Listed, Manager, Shared};
use crate::ledger::Id;
use std::sync::atomic::AtomicPtr;
use std::sync::{Arc, Weak};
use terrace_core::lease::LeaseWord;
use terrace_file::{AccessPattern, MappedFile};

impl Manager {
    /// A buffer whose bytes are a file's, where it is mapped.
    ///
    /// [`Buffer::lease_best`] and [`Buffer::read`] work as with any other, [`prefetch`](Self::prefetch) begins to read
    /// the file; what would write, move or keep it says [`Error::Mapped`].
    ///
    /// # Example
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("weights");
    /// # std::fs::write(&path, [7; 10_000])?;
    /// use terrace_tiers::{Error, Manager, manager::MappedFile};
    ///
    /// let manager = Manager::builder().memory(1 << 20).build()?;
    /// // SAFETY: nobody writes to the file while it is mapped.
    /// let weights = manager.map_file(unsafe { MappedFile::open_unchecked(&path) }?);
    /// assert_eq!(weights.lease_best()?[9_999], 7);
    /// assert_eq!(weights.write(0, &[8]), Err(Error::Mapped));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map_file(&self, file: MappedFile) -> Buffer {
        let body = Arc::new(Body::over(file));
        // Listed, but not in a forked child, where nothing is.
        if self.shared.is_here().is_ok() {
            let mut state = self.shared.state();
            state.mapped.retain(|body| body.strong_count() > 0);
            state.mapped.push(Arc::downgrade(&body));
        }
        self.buffer(body)
    }
}

impl Body {
    /// A buffer that no ledger knows. Its word is never closed, and never excluded.
    fn over(file: MappedFile) -> Self {
        let bytes = file.len();
        let mut body = Self::new(Id::NONE, bytes as u64, bytes.max(1), None);
        (body.best, body.lease) = (AtomicPtr::new(file.as_ptr().cast_mut()), LeaseWord::open());
        body.mapped = Some(Box::new(file));
        body
    }

    /// Bytes that count as pinned while it is leased.
    pub(super) fn weight(&self) -> u64 {
        if self.mapped.is_some() { 0 } else { self.bytes }
    }

    /// # Errors
    /// [`Error::Mapped`].
    pub(super) fn is_own(&self) -> Result<(), Error> {
        if self.mapped.is_some() { Err(Error::Mapped) } else { Ok(()) }
    }

    /// Begins to read a mapped file. False: it is none.
    pub(super) fn read_ahead(&self) -> Result<bool, Error> {
        self.mapped
            .as_ref()
            .map_or(Ok(false), |file| Ok(file.advise(0..file.len(), AccessPattern::WillNeed).map(|()| true)?))
    }
}

impl Shared {
    /// Mapped files, for people.
    pub(super) fn listed_files(&self, mapped: &[Weak<Body>]) -> impl Iterator<Item = Listed> {
        let tier = self.tiers().end;
        mapped.iter().filter_map(Weak::upgrade).map(move |body| Listed {
            name: None,
            file: body.mapped.as_ref().map(|file| file.name().into()),
            bytes: body.bytes,
            tier,
            durable: false,
            leased: body.lease.is_held(),
        })
    }
}
