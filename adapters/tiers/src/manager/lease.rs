//! Leases: the right to use an address while they are held.
//!
//! Promises upward: while a lease is held the bytes do not move; a shared lease of a buffer in memory costs one atomic
//! operation to acquire and one to release.

use super::buffer_state::BufferState;
use super::error::Error;
use super::lease_gate::Lessee;
use super::lease_word::{Attempt, Purpose};
use super::raw_bytes::{ExclusiveBytes, RawBytes, SharedBytes};
use super::stats::Waited;
use super::{Buffer, DataLocation, ManagerShared};
use crate::ledger::{LedgerEvent, Medium};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Instant;
use terrace_core::residence::Tier;
use terrace_file::JoinHandle;

/// The bytes of a buffer, readable while the lease is held.
pub struct Lease<'a> {
    buffer: &'a Buffer,
    bytes: SharedBytes<'a>,
}

/// The bytes of a buffer, writable while the lease is held.
pub struct LeaseMut<'a> {
    buffer: &'a Buffer,
    bytes: ExclusiveBytes<'a>,
}

impl Buffer {
    /// Leases the bytes in the best tier that processors address; they do not move while it is held.
    ///
    /// Moves the bytes there first, up from files or down from a device; waits for calls that write. For an address on
    /// a device see [`lease_device`](Self::lease_device).
    ///
    /// # Errors
    /// [`Error::Leased`] while a [`LeaseMut`] is held; [`Error::PinnedCap`]; [`Error::NoRoom`] when memory has no room
    /// for them, as other buffers are leased; [`Error::Freed`]; the error of a failed read.
    pub fn lease_best(&self) -> Result<Lease<'_>, Error> {
        match self.attempt_lease()? {
            Attempt::Taken(lease) => {
                self.shared.stats.found_in_memory();
                Ok(lease)
            }
            _ => {
                let leased = || {
                    self.lease_by(Lessee::Thread, self.in_memory(), || self.attempt_lease(), || self.move_to_memory())
                };
                self.shared.tasks.block_on(leased)
            }
        }
    }

    /// As [`lease_best`](Self::lease_best), as a future.
    ///
    /// Lessees whose buffers are evicted again before they can lease them proceed one at a time. A future that is not
    /// polled does not block the other lessees: they overtake it, and it starts anew when it is polled.
    ///
    /// # Errors
    /// As [`lease_best`](Self::lease_best).
    pub async fn lease_best_async(&self) -> Result<Lease<'_>, Error> {
        self.lease_by(Lessee::Future, self.in_memory(), || self.attempt_lease(), || self.move_to_memory()).await
    }

    /// Acquires a lease once the bytes are in the requested tier. Every step that it waits for runs as a task, so a
    /// future that is not polled keeps nothing from other lessees. `tier`: where the lease is, for statistics.
    pub(super) async fn lease_by<T>(
        &self,
        lessee: Lessee,
        tier: impl Fn(&T) -> Tier,
        attempt: impl Fn() -> Result<Attempt<T>, Error>,
        transfer: impl Fn() -> JoinHandle<Result<(), Error>>,
    ) -> Result<T, Error> {
        self.shared.check_process()?;
        let (mut brought, mut gate_pass) = (false, self.shared.lease_gate.pass(lessee));
        let (begun, mut waited) = (Instant::now(), false);
        loop {
            let step = match attempt()? {
                Attempt::Taken(lease) => {
                    if !brought {
                        self.shared.stats.found(tier(&lease));
                    }
                    if waited {
                        self.shared.stats.waited(Waited::Lease, begun);
                    }
                    return Ok(lease);
                }
                // In place: a thread that waits for its task to be told would find that others read again.
                Attempt::Brief if lessee == Lessee::Thread => {
                    self.handle.buffer.brief_leases_end().await;
                    waited = true;
                    continue;
                }
                Attempt::Brief => {
                    let buffer = Arc::clone(&self.handle.buffer);
                    self.shared.tasks.spawn(async move {
                        buffer.brief_leases_end().await;
                        Ok(())
                    })
                }
                Attempt::Elsewhere => {
                    // The bytes were moved in, and evicted again before they were leased. Lessees can do that to each
                    // other without end, so they proceed one at a time from here on.
                    if std::mem::replace(&mut brought, true) {
                        gate_pass.take().await;
                        self.shared.check_process()?;
                    } else {
                        self.shared.missed(&self.handle.buffer);
                    }
                    transfer()
                }
            };
            waited = true;
            gate_pass.during(&self.shared.tasks, step).await?;
        }
    }

    /// Tells that a lease is of bytes in memory.
    fn in_memory<T>(&self) -> impl Fn(&T) -> Tier {
        let memory = self.shared.stats.memory;
        move |_| memory
    }

    /// Starts to move the bytes to memory.
    fn move_to_memory(&self) -> JoinHandle<Result<(), Error>> {
        let (shared, buffer) = (Arc::clone(&self.shared), Arc::clone(&self.handle.buffer));
        self.shared.tasks.spawn(async move { shared.move_to_memory(&buffer).await })
    }

    /// Leases the bytes if they are in memory now; never waits.
    ///
    /// # Errors
    /// As [`lease_best`](Self::lease_best); [`Error::Leased`] also while a call writes.
    #[inline]
    pub fn try_lease(&self) -> Result<Option<Lease<'_>>, Error> {
        let lease = self.attempt_lease()?.now()?;
        lease.iter().for_each(|_| self.shared.stats.found_in_memory());
        Ok(lease)
    }

    #[inline]
    fn attempt_lease(&self) -> Result<Attempt<Lease<'_>>, Error> {
        self.shared.check_process()?;
        let buffer = &*self.handle.buffer;
        Ok(self.shared.acquire_shared_memory(buffer)?.map(|start| {
            // SAFETY: the word is held shared until the lease is dropped: no thread writes the bytes or moves them.
            let bytes = unsafe { SharedBytes::new(RawBytes::new(start, buffer.bytes as usize)) };
            Lease { buffer: self, bytes }
        }))
    }

    /// Leases the bytes in the best memory tier to write; durable bytes are outdated until the next sync.
    ///
    /// # Errors
    /// As [`lease_best`](Self::lease_best); [`Error::Leased`] while any lease is held.
    pub fn lease_mut(&self) -> Result<LeaseMut<'_>, Error> {
        let leased =
            || self.lease_by(Lessee::Thread, self.in_memory(), || self.attempt_lease_mut(), || self.move_to_memory());
        self.shared.tasks.block_on(leased)
    }

    /// As [`lease_mut`](Self::lease_mut), as a future.
    ///
    /// # Errors
    /// As [`lease_mut`](Self::lease_mut).
    pub async fn lease_mut_async(&self) -> Result<LeaseMut<'_>, Error> {
        self.lease_by(Lessee::Future, self.in_memory(), || self.attempt_lease_mut(), || self.move_to_memory()).await
    }

    fn attempt_lease_mut(&self) -> Result<Attempt<LeaseMut<'_>>, Error> {
        let buffer = &*self.handle.buffer;
        let start = self.shared.acquire_exclusive_memory(buffer, (0, buffer.bytes), Purpose::Lease)?;
        Ok(start.map(|start| {
            // SAFETY: the word is held exclusively until the lease is dropped: no other thread uses the bytes.
            let bytes = unsafe { ExclusiveBytes::new(RawBytes::new(start, buffer.bytes as usize)) };
            LeaseMut { buffer: self, bytes }
        }))
    }
}

impl ManagerShared {
    /// Moves a buffer to memory, or waits until a migration in progress has ended.
    pub(super) async fn move_to_memory(self: &Arc<Self>, buffer: &Arc<BufferState>) -> Result<(), Error> {
        let changed = buffer.changed().listen();
        match self.location(buffer)? {
            DataLocation::Memory => Ok(()),
            DataLocation::Moving => {
                if let Some(to) = self.memory() {
                    let mut state = self.state();
                    state.hasten(self, buffer, to);
                    self.unlock(state);
                }
                changed.await;
                Ok(())
            }
            DataLocation::File(_) => {
                let to = self.large(buffer.bytes, Medium::Memory)?;
                self.request_move(buffer, LedgerEvent::Promote { id: buffer.id, to }, to).await
            }
            DataLocation::Device => {
                let to = self.large(buffer.bytes, Medium::Memory)?;
                self.request_move(buffer, LedgerEvent::Replicate { id: buffer.id, to }, to).await
            }
        }
    }

    /// The best tier of a medium with a capacity of at least `bytes`.
    pub(super) fn large(&self, bytes: u64, medium: Medium) -> Result<Tier, Error> {
        let state = self.state();
        let large = |tier: &Tier| state.ledger.tier(*tier).is_some_and(|view| view.limit >= bytes);
        let mut tiers = self.tiers().filter(|tier| self.medium(*tier) == medium);
        tiers.find(large).ok_or(Error::NoTier(match medium {
            Medium::Device => "on a device that is large enough for the buffer",
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
        self.buffer.shared.release_shared(&self.buffer.handle.buffer, Purpose::Lease);
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
        self.buffer.shared.release_exclusive(&self.buffer.handle.buffer, Purpose::Lease);
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
