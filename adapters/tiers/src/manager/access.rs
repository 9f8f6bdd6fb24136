//! Reads and writes a buffer wherever its bytes are.
//!
//! Promises upward: a read returns what was written last, or an error; later reads see a write whole, or not at all if
//! it failed in a file tier.
//!
//! In memory, calls hold a brief lease while they copy. In files, a write stores new pieces beside the old
//! ones and then replaces all of them at once. On a device, reads copy the range; a write first moves the bytes to
//! memory, or to files, since a failed copy to a device would leave a mixture of old and new bytes.

use super::ManagerShared;
use super::block::TransferMemory;
use super::buffer_state::BufferState;
use super::device_tier::DeviceCopy;
use super::error::Error;
use super::lease_word::{Attempt, Purpose};
use super::migration::catch_copy_panic;
use super::phase::{BufferPhase, PhaseEvent};
use super::raw_bytes::{RawBytes, ReadTarget, read_new};
use super::stats::Waited;
use crate::ledger::{BufferId, LedgerEvent, Medium};
use std::sync::Arc;
use std::time::Instant;
use terrace_core::residence::Tier;
use terrace_file::{Notified, Notify};

/// Where a buffer's newest bytes are at this moment.
pub(super) enum DataLocation {
    /// In memory: the lease word is open.
    Memory,
    /// On a device, and not in memory: the lease word is open.
    Device,
    /// In files only.
    File(Tier),
    /// A migration is in progress: the caller must check again when it has ended.
    Moving,
}

impl ManagerShared {
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub(super) fn inside(buffer: &BufferState, offset: u64, bytes: u64) -> Result<(), Error> {
        let end = offset.checked_add(bytes).filter(|end| *end <= buffer.bytes);
        end.map(drop).ok_or(Error::OutOfBounds { offset, bytes, of: buffer.bytes })
    }

    /// Reads from memory without waiting.
    pub(super) fn read_memory(
        &self,
        buffer: &BufferState,
        offset: u64,
        to: &mut ReadTarget<'_>,
    ) -> Result<Attempt<()>, Error> {
        let lease = self.acquire_for_call(buffer)?;
        // The bytes of a buffer that was never written are zeros, wherever its memory is.
        if matches!(lease, Attempt::Elsewhere) && !buffer.is_freed() && buffer.copies().is_untouched() {
            to.zero();
            self.count_read(self.stats.memory, to.len());
            return Ok(Attempt::Taken(()));
        }
        lease.and_then(|lease| {
            let Some(memory) = lease.memory else { return Ok(Attempt::Elsewhere) };
            // SAFETY: a shared lease is held; the caller checked the range.
            unsafe { memory.read(offset as usize, to) };
            self.count_read(self.stats.memory, to.len());
            Ok(Attempt::Taken(()))
        })
    }

    /// Writes to memory without waiting.
    pub(super) fn write_memory(
        self: &Arc<Self>,
        buffer: &BufferState,
        offset: u64,
        from: &[u8],
    ) -> Result<Attempt<()>, Error> {
        let range = (offset, from.len() as u64);
        let start = match self.acquire_exclusive_memory(buffer, range, Purpose::Call)? {
            Attempt::Taken(start) => start,
            Attempt::Elsewhere => return self.write_blank(buffer, offset, from),
            Attempt::Brief => return Ok(Attempt::Brief),
        };
        // SAFETY: the exclusive lease is held; the caller checked the range.
        unsafe { RawBytes::new(start, buffer.bytes as usize).write(offset as usize, from) };
        self.release_exclusive(buffer, Purpose::Call);
        self.count_write(self.stats.memory, from.len());
        Ok(Attempt::Taken(()))
    }

    /// Finds where a buffer's newest bytes are.
    pub(super) fn location(self: &Arc<Self>, buffer: &BufferState) -> Result<DataLocation, Error> {
        if buffer.mapped.is_some() {
            return Ok(DataLocation::Memory);
        }
        self.zero_blank(buffer)?;
        let state = self.state();
        let view = state.ledger.view(buffer.id)?;
        if buffer.phase.get() != BufferPhase::Settled {
            return Ok(DataLocation::Moving);
        }
        if self.newest(&view.residence, Medium::Memory).is_some() {
            return Ok(DataLocation::Memory);
        }
        Ok(match self.newest(&view.residence, Medium::Device) {
            Some(_) => DataLocation::Device,
            None => DataLocation::File(view.residence.best()),
        })
    }

    /// Calls `attempt` until it succeeds, again whenever a migration of the buffer has ended.
    pub(super) async fn wait_until<T>(
        &self,
        buffer: &BufferState,
        mut attempt: impl FnMut() -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        loop {
            if let Some(found) = attempt()? {
                return Ok(found);
            }
            // Listens before it checks again, so that no notification is missed.
            let changed = buffer.changed().listen();
            if let Some(found) = attempt()? {
                return Ok(found);
            }
            changed.await;
        }
    }

    /// Returns what an attempt has taken; else waits until the next may succeed. `changed`: since before the attempt.
    async fn taken<T>(buffer: &BufferState, attempt: Attempt<T>, changed: Notified<&Notify>) -> Option<T> {
        match attempt {
            Attempt::Taken(taken) => return Some(taken),
            Attempt::Brief => buffer.brief_leases_end().await,
            Attempt::Elsewhere => changed.await,
        }
        None
    }

    /// Reads a range of a buffer into new memory.
    pub(super) async fn read_new(
        self: &Arc<Self>,
        buffer: &BufferState,
        offset: u64,
        bytes: usize,
    ) -> Result<Vec<u8>, Error> {
        // The range is checked before memory is allocated for the bytes.
        Self::inside(buffer, offset, bytes as u64)?;
        // SAFETY: `read` writes every byte of its target, unless it returns an error.
        unsafe { read_new(bytes, async |to| self.read(buffer, offset, to).await) }.await
    }

    /// Reads a range of a buffer from the tier that has its newest bytes.
    ///
    /// Writes every byte of `to`, unless it returns an error.
    pub(super) async fn read(
        self: &Arc<Self>,
        buffer: &BufferState,
        offset: u64,
        mut to: ReadTarget<'_>,
    ) -> Result<(), Error> {
        Self::inside(buffer, offset, to.len() as u64)?;
        if let Attempt::Taken(()) = self.read_memory(buffer, offset, &mut to)? {
            return Ok(());
        }
        let begun = Instant::now();
        let read = self.read_elsewhere(buffer, offset, to).await;
        self.stats.waited(Waited::Read, begun);
        read
    }

    /// Reads a range of a buffer that was not in memory, or not free.
    async fn read_elsewhere(
        self: &Arc<Self>,
        buffer: &BufferState,
        offset: u64,
        mut to: ReadTarget<'_>,
    ) -> Result<(), Error> {
        loop {
            // Listens before it checks, so that no notification is missed.
            let changed = buffer.changed().listen();
            let read = self.try_read(buffer, offset, &mut to).await?;
            if let Some(()) = Self::taken(buffer, read, changed).await {
                return Ok(());
            }
        }
    }

    /// Reads a range of a buffer where its bytes are, if they are at rest.
    async fn try_read(
        self: &Arc<Self>,
        buffer: &BufferState,
        offset: u64,
        to: &mut ReadTarget<'_>,
    ) -> Result<Attempt<()>, Error> {
        let read = self.read_memory(buffer, offset, to)?;
        if !matches!(read, Attempt::Elsewhere) {
            return Ok(read);
        }
        let bytes = to.len();
        match self.location(buffer)? {
            DataLocation::File(tier) => {
                let Some(parts) = self.parts(buffer, tier, offset, bytes) else { return Ok(Attempt::Elsewhere) };
                self.touch(buffer.id);
                self.count_read(tier, bytes);
                self.read_pieces(buffer, (tier, parts), offset, to.split_first(bytes)).await.map(Attempt::Taken)
            }
            DataLocation::Device => {
                let _lease = match self.acquire_for_call(buffer)? {
                    Attempt::Taken(lease) => lease,
                    refused => return Ok(refused.map(drop)),
                };
                let Some((tier, copy)) = self.device_copy(buffer) else { return Ok(Attempt::Elsewhere) };
                self.count_read(tier, bytes);
                self.read_device(buffer, &copy, offset, to.split_first(bytes)).await.map(Attempt::Taken)
            }
            DataLocation::Memory | DataLocation::Moving => Ok(Attempt::Elsewhere),
        }
    }

    /// Returns a buffer's copy on a device, if it has the newest bytes. The caller must hold a lease.
    fn device_copy(&self, buffer: &BufferState) -> Option<(Tier, Arc<DeviceCopy>)> {
        let residence = self.state().ledger.view(buffer.id).ok()?.residence;
        let tier = self.newest(&residence, Medium::Device)?;
        Some((tier, buffer.copies().device(tier).cloned()?))
    }

    /// Reads a range from a device through staging frames. The caller must hold a lease.
    async fn read_device(
        &self,
        buffer: &BufferState,
        copy: &Arc<DeviceCopy>,
        offset: u64,
        mut to: ReadTarget<'_>,
    ) -> Result<(), Error> {
        let mut at = offset as usize;
        while to.len() > 0 {
            let mut part = to.split_first(to.len().min(buffer.chunk));
            let frame = TransferMemory::frame(self.frame(part.len()).await?, part.len());
            part.copy_from(&copy.download(at, frame).await?.into_owner()[..part.len()]);
            at += part.len();
        }
        Ok(())
    }

    /// Writes a range of a buffer in the tier that has its newest bytes.
    pub(super) async fn write(
        self: &Arc<Self>,
        buffer: &Arc<BufferState>,
        offset: u64,
        from: &[u8],
    ) -> Result<(), Error> {
        Self::inside(buffer, offset, from.len() as u64)?;
        if from.is_empty() || matches!(self.write_memory(buffer, offset, from)?, Attempt::Taken(())) {
            return Ok(());
        }
        let begun = Instant::now();
        let written = self.write_elsewhere(buffer, offset, from).await;
        self.stats.waited(Waited::Write, begun);
        written
    }

    /// Writes a range of a buffer that was not in memory, or not free.
    async fn write_elsewhere(
        self: &Arc<Self>,
        buffer: &Arc<BufferState>,
        offset: u64,
        from: &[u8],
    ) -> Result<(), Error> {
        let claimed = loop {
            // Listens before it checks, so that no notification is missed.
            let changed = buffer.changed().listen();
            let attempt = match self.write_memory(buffer, offset, from)? {
                Attempt::Elsewhere => self.claim_for_write(buffer)?.map(Some),
                attempt => attempt.map(|()| None),
            };
            if matches!(attempt, Attempt::Elsewhere) && matches!(self.location(buffer)?, DataLocation::Device) {
                self.leave_device(buffer).await?;
            } else if let Some(claimed) = Self::taken(buffer, attempt, changed).await {
                break claimed;
            }
        };
        let Some(tier) = claimed else { return Ok(()) };
        let written = catch_copy_panic(self.write_pieces(buffer, tier, offset, from)).await;
        let mut state = self.state();
        if let Ok(pieces) = written.as_ref() {
            self.count_write(tier, from.len());
            let mut copies = buffer.copies();
            copies.wrote(buffer.chunks(offset, from.len() as u64));
            for (chunk, piece) in pieces {
                copies.put_piece(tier, *chunk, piece);
            }
        }
        // A buffer that was freed meanwhile is no error of this write.
        let _ = state.unclaim(self, buffer, written.is_ok().then_some(tier));
        self.unlock(state);
        written.map(drop)
    }

    /// Copies bytes that only a device has to memory; if memory has no room, moves them to files instead.
    async fn leave_device(self: &Arc<Self>, buffer: &Arc<BufferState>) -> Result<(), Error> {
        match self.move_to_memory(buffer).await {
            Err(Error::NoRoom { .. } | Error::Suspended { .. } | Error::NoTier(_)) => {
                let to = self.tiers().find(|tier| self.medium(*tier) == Medium::File);
                let to = to.ok_or(Error::NoTier("that a processor writes in"))?;
                self.request_move(buffer, LedgerEvent::Demote { id: buffer.id, to }, to).await
            }
            fetched => fetched,
        }
    }

    /// Claims a buffer if only files have its bytes, so that no copy and no other write begins; returns its tier. Not if
    /// another tier has the bytes too, a copy is in progress, or the buffer is claimed already.
    fn claim_for_write(&self, buffer: &BufferState) -> Result<Attempt<Tier>, Error> {
        let state = self.state();
        let best = state.ledger.view(buffer.id)?.residence.best();
        let claimed = self.medium(best) == Medium::File && buffer.phase.advance(PhaseEvent::Claim);
        Ok(if claimed { Attempt::Taken(best) } else { Attempt::Elsewhere })
    }

    /// Reports to the ledger a use of a buffer in a file tier.
    pub(super) fn touch(self: &Arc<Self>, id: BufferId) {
        let mut state = self.state();
        let _ = state.handle(self, LedgerEvent::Touch { id });
        self.unlock(state);
    }
}
