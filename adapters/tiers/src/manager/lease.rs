//! Leases: the right to an address while they are held.
//!
//! Promises upward: while a lease is held the bytes stay where they are; a shared lease of a buffer that is in memory
//! costs one atomic operation to take and one to give back.

use super::alone::Going;
use super::body::Body;
use super::error::Error;
use super::window::{Exclusive, Shared as SharedBytes, Window};
use super::{Buffer, Seat, Shared};
use crate::ledger::{Event, TierKind};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_file::JoinHandle;

/// The bytes of a buffer, to read.
pub struct Lease<'a> {
    buffer: &'a Buffer,
    bytes: SharedBytes<'a>,
}

/// The bytes of a buffer, to write. What is durable is older from now on.
pub struct LeaseMut<'a> {
    buffer: &'a Buffer,
    bytes: Exclusive<'a>,
}

/// What came of a try to take a lease.
enum Turn<T> {
    Taken(T),
    /// The bytes are not in memory, or are being moved.
    Below,
    /// A call is in the way that will have ended soon.
    Called,
    /// A copy is, which began beside somebody who read.
    Copied,
}

impl Buffer {
    /// The bytes in the best tier that processors address, where they stay while the lease is held.
    ///
    /// Brought there first, up from files or down from a device; takes its turn with calls that write. For an address
    /// on a device see [`lease_device`](Self::lease_device).
    ///
    /// # Errors
    /// [`Error::Leased`] while somebody has a [`LeaseMut`]; [`Error::PinnedCap`]; [`Error::NoRoom`] when no memory can
    /// be had for them, as what is there is leased; [`Error::Freed`]; why they could not be read.
    pub fn lease_best(&self) -> Result<Lease<'_>, Error> {
        match self.try_lease() {
            Ok(Some(lease)) => Ok(lease),
            _ => {
                let leased = || self.lease_by(Going::Blocks, || self.try_lease(), || self.raise_up());
                self.shared.tasks.block_on(leased)
            }
        }
    }

    /// As [`lease_best`](Self::lease_best).
    ///
    /// Of buffers that are evicted again and again before they are leased, one after the other is; a future that is not
    /// polled holds nobody up: it begins anew when it is.
    ///
    /// # Errors
    /// As there.
    pub async fn lease_best_async(&self) -> Result<Lease<'_>, Error> {
        self.lease_by(Going::MayStop, || self.try_lease(), || self.raise_up()).await
    }

    /// Takes a lease, as soon as the bytes are where it is of. What is waited for goes on by itself, as tasks: between
    /// two polls this future holds nothing that others wait for.
    pub(super) async fn lease_by<T>(
        &self,
        going: Going,
        attempt: impl Fn() -> Result<Option<T>, Error>,
        bring: impl Fn() -> JoinHandle<Result<(), Error>>,
    ) -> Result<T, Error> {
        self.shared.is_here()?;
        let (mut brought, mut alone) = (false, self.shared.leasing.seat(going));
        loop {
            let step = match self.in_turn(&attempt)? {
                Turn::Taken(lease) => return Ok(lease),
                // A call gives its lease back before it lets others have their turn.
                Turn::Called => self.wait_for(|body| async move { body.calls_over().await }),
                Turn::Copied => self.wait_for(|body| async move { body.copy_over().await }),
                Turn::Below => {
                    // Evicted again before it was leased, for others who may do the same without an end: one after the
                    // other.
                    if brought {
                        alone.take().await;
                        self.shared.is_here()?;
                    }
                    brought = true;
                    bring()
                }
            };
            alone.during(&self.shared.tasks, step).await?;
        }
    }

    fn wait_for<F: Future<Output = ()> + Send + 'static>(
        &self,
        ends: impl FnOnce(Arc<Body>) -> F,
    ) -> JoinHandle<Result<(), Error>> {
        let ends = ends(Arc::clone(&self.handle.body));
        self.shared.tasks.spawn(async move {
            ends.await;
            Ok(())
        })
    }

    /// Tries to take a lease, which a call may stand in the way of.
    fn in_turn<T>(&self, attempt: impl FnOnce() -> Result<Option<T>, Error>) -> Result<Turn<T>, Error> {
        let body = &self.handle.body;
        let (ended, copies) = (body.ended(), body.copies_beside());
        match attempt() {
            Ok(taken) => Ok(taken.map_or(Turn::Below, Turn::Taken)),
            Err(Error::Leased) if body.was_called(ended) => Ok(Turn::Called),
            Err(Error::Leased) if body.was_copied(copies) => Ok(Turn::Copied),
            Err(error) => Err(error),
        }
    }

    /// Begins to bring the bytes into memory.
    fn raise_up(&self) -> JoinHandle<Result<(), Error>> {
        let (shared, body) = (Arc::clone(&self.shared), Arc::clone(&self.handle.body));
        self.shared.tasks.spawn(async move { shared.raise_up(&body).await })
    }

    /// The same if the bytes are in memory now; never waits.
    ///
    /// # Errors
    /// As [`lease_best`](Self::lease_best); [`Error::Leased`] also while a call writes.
    #[inline]
    pub fn try_lease(&self) -> Result<Option<Lease<'_>>, Error> {
        self.shared.is_here()?;
        let body = &*self.handle.body;
        let start = self.shared.share_memory(body, self.shared.pinned_cap)?;
        Ok(start.map(|start| {
            // SAFETY: the word is shared until the lease is dropped: nobody writes the bytes or moves them.
            let bytes = unsafe { SharedBytes::new(Window::new(start, body.bytes as usize)) };
            Lease { buffer: self, bytes }
        }))
    }

    /// The bytes in the best tier of memory, to write.
    ///
    /// # Errors
    /// As [`lease_best`](Self::lease_best); [`Error::Leased`] while somebody has any lease.
    pub fn lease_mut(&self) -> Result<LeaseMut<'_>, Error> {
        let leased = || self.lease_by(Going::Blocks, || self.try_lease_mut(), || self.raise_up());
        self.shared.tasks.block_on(leased)
    }

    /// As [`lease_mut`](Self::lease_mut).
    ///
    /// # Errors
    /// As there.
    pub async fn lease_mut_async(&self) -> Result<LeaseMut<'_>, Error> {
        self.lease_by(Going::MayStop, || self.try_lease_mut(), || self.raise_up()).await
    }

    fn try_lease_mut(&self) -> Result<Option<LeaseMut<'_>>, Error> {
        let body = &*self.handle.body;
        let start = self.shared.exclude_memory(body, (0, body.bytes), self.shared.pinned_cap)?;
        Ok(start.map(|start| {
            // SAFETY: the word is excluded until the lease is dropped: nobody else uses the bytes.
            let bytes = unsafe { Exclusive::new(Window::new(start, body.bytes as usize)) };
            LeaseMut { buffer: self, bytes }
        }))
    }
}

impl Shared {
    /// Has a buffer brought into memory, or waits until what is under way with it has ended.
    pub(super) async fn raise_up(self: &Arc<Self>, body: &Arc<Body>) -> Result<(), Error> {
        let changed = body.changed().listen();
        match self.seat(body)? {
            Seat::Memory => Ok(()),
            Seat::Moving => {
                changed.await;
                Ok(())
            }
            Seat::File(_) => {
                let to = self.large(body.bytes, TierKind::Memory)?;
                self.wish(body, Event::Promote { id: body.id, to }, to).await
            }
            Seat::Device => {
                let to = self.large(body.bytes, TierKind::Memory)?;
                self.wish(body, Event::Save { id: body.id, to }, to).await
            }
        }
    }

    /// The best tier of a kind that is large enough.
    pub(super) fn large(&self, bytes: u64, kind: TierKind) -> Result<Tier, Error> {
        let state = self.state();
        let large = |tier: &Tier| state.ledger.tier(*tier).is_some_and(|view| view.capacity >= bytes);
        let mut tiers = self.tiers().filter(|tier| self.kind(*tier) == kind);
        tiers.find(large).ok_or(Error::NoTier(match kind {
            TierKind::Device => "on a device that is large enough for the buffer",
            _ => "of memory that is large enough for the buffer",
        }))
    }
}

impl Deref for Lease<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Lease<'_> {
    #[inline]
    fn drop(&mut self) {
        self.buffer.shared.unshare(&self.buffer.handle.body);
    }
}

impl Deref for LeaseMut<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for LeaseMut<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for LeaseMut<'_> {
    fn drop(&mut self) {
        self.buffer.shared.include(&self.buffer.handle.body);
    }
}

impl fmt::Debug for Lease<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for LeaseMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseMut").field("bytes", &self.len()).finish_non_exhaustive()
    }
}
