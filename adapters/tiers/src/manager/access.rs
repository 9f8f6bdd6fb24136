//! Reads and writes a buffer wherever its bytes are.
//!
//! Promises upward: a read returns what was written last, or an error; later reads see a write whole, or not at all if
//! it failed in a file tier.
//!
//! In memory, calls hold a brief lease while they copy. In files, a write stores new pieces beside the old
//! ones and then replaces all of them at once. On a device, reads copy the range; a write first moves the bytes to
//! memory, or to files, since a failed copy to a device would leave a mixture of old and new bytes.

use super::ManagerShared;
use super::block::{HostBlock, TransferMemory};
use super::buffer_state::{BufferState, TierCopy};
use super::device_tier::DeviceCopy;
use super::error::Error;
use super::lease_word::{Attempt, Purpose};
use super::migration::CHUNKS;
use super::phase::{Phase, PhaseEvent};
use super::raw_bytes::RawBytes;
use crate::ledger::{BufferId, LedgerEvent, Medium};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::ops::Range;
use std::sync::Arc;
use terrace_core::lease::LeaseError;
use terrace_core::residence::Tier;
use terrace_file::Piece;

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

/// One chunk of a buffer in files; without a piece it was never written.
struct ChunkPiece {
    chunk: usize,
    piece: Option<Arc<Piece>>,
}

impl ManagerShared {
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub(super) fn inside(buffer: &BufferState, offset: u64, bytes: u64) -> Result<(), Error> {
        let end = offset.checked_add(bytes).filter(|end| *end <= buffer.bytes);
        end.map(drop).ok_or(Error::OutOfBounds { offset, bytes, of: buffer.bytes })
    }

    /// Reads from memory without waiting.
    pub(super) fn read_memory(&self, buffer: &BufferState, offset: u64, to: &mut [u8]) -> Result<Attempt<()>, Error> {
        let lease = self.acquire_for_call(buffer)?;
        // The bytes of a buffer that was never written are zeros, wherever its memory is.
        if matches!(lease, Attempt::Elsewhere) && !buffer.is_freed() && buffer.copies().is_untouched() {
            to.fill(0);
            return Ok(Attempt::Taken(()));
        }
        lease.and_then(|lease| {
            let Some(memory) = lease.memory else { return Ok(Attempt::Elsewhere) };
            // SAFETY: a shared lease is held; the caller checked the range.
            unsafe { memory.read(offset as usize, to) };
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
        Ok(Attempt::Taken(()))
    }

    /// Claims the blank memory of a buffer that was never written, if it has such memory and is not in use.
    ///
    /// # Errors
    /// [`Error::Leased`] if the memory is to be written while the copy on a device, which is zeros, is leased.
    fn claim_blank(&self, buffer: &BufferState, writes: bool) -> Result<Attempt<(Tier, Arc<HostBlock>)>, Error> {
        let mut state = self.state();
        state.ledger.view(buffer.id)?;
        let blank = buffer.copies().blank();
        let Some(blank) = blank.filter(|_| buffer.phase.get() == Phase::Settled) else { return Ok(Attempt::Elsewhere) };
        match if writes { state.close(buffer) } else { Ok(()) } {
            Ok(()) => {}
            Err(LeaseError::Brief) => return Ok(Attempt::Brief),
            Err(_) => return Err(Error::Leased),
        }
        buffer.phase.advance(PhaseEvent::Claim);
        Ok(Attempt::Taken(blank))
    }

    /// Opens memory that [`claim_blank`](Self::claim_blank) claimed, once it is initialised.
    fn open_blank(
        self: &Arc<Self>,
        buffer: &BufferState,
        (tier, block): (Tier, Arc<HostBlock>),
        wrote: Range<usize>,
    ) -> Result<(), Error> {
        let mut state = self.state();
        buffer.copies().put(tier, TierCopy::Memory(block));
        let mut recorded = Ok(());
        if !wrote.is_empty() {
            // The policy shall see this use as it sees that of a lease.
            buffer.lease.record_visit();
            recorded = state.handle(self, LedgerEvent::Wrote { id: buffer.id, tier });
            if recorded.is_ok() {
                buffer.copies().wrote(wrote);
            }
        }
        state.unclaim(self, buffer);
        self.unlock(state);
        recorded.map_err(Into::into)
    }

    /// Writes to the blank memory of a buffer that was never written, and zeroes the rest of it.
    fn write_blank(self: &Arc<Self>, buffer: &BufferState, offset: u64, from: &[u8]) -> Result<Attempt<()>, Error> {
        self.claim_blank(buffer, true)?.and_then(|blank| {
            let (bytes, at, end) = (buffer.bytes as usize, offset as usize, offset as usize + from.len());
            let memory = blank.1.raw_bytes().first(bytes);
            // SAFETY: the buffer is claimed and its word closed: no other thread uses its memory.
            unsafe { memory.zero(0, at) };
            // SAFETY: as above; the caller checked the range.
            unsafe { memory.write(at, from) };
            // SAFETY: as above.
            unsafe { memory.zero(end, bytes - end) };
            self.open_blank(buffer, blank, buffer.chunks(offset, from.len() as u64)).map(Attempt::Taken)
        })
    }

    /// Zeroes the memory of a buffer that was never written, if it is blank.
    pub(super) fn zero_blank(self: &Arc<Self>, buffer: &BufferState) -> Result<(), Error> {
        if buffer.copies().blank().is_some()
            && let Attempt::Taken(blank) = self.claim_blank(buffer, false)?
        {
            // SAFETY: the buffer is claimed, and no lease is of blank memory: no other thread uses it.
            unsafe { blank.1.raw_bytes().zero(0, buffer.bytes as usize) };
            self.open_blank(buffer, blank, 0..0)?;
        }
        Ok(())
    }

    /// Finds where a buffer's newest bytes are.
    pub(super) fn location(self: &Arc<Self>, buffer: &BufferState) -> Result<DataLocation, Error> {
        if buffer.mapped.is_some() {
            return Ok(DataLocation::Memory);
        }
        self.zero_blank(buffer)?;
        let state = self.state();
        let view = state.ledger.view(buffer.id)?;
        if buffer.phase.get() != Phase::Settled {
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

    /// Reads a range of a buffer from the tier that has its newest bytes.
    pub(super) async fn read(self: &Arc<Self>, buffer: &BufferState, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        Self::inside(buffer, offset, to.len() as u64)?;
        loop {
            // Listens before it checks, so that no notification is missed.
            let changed = buffer.changed().listen();
            match self.read_memory(buffer, offset, to)? {
                Attempt::Taken(()) => return Ok(()),
                Attempt::Brief => {
                    buffer.brief_leases_end().await;
                    continue;
                }
                Attempt::Elsewhere => {}
            }
            match self.location(buffer)? {
                DataLocation::File(tier) => {
                    if let Some(parts) = self.parts(buffer, tier, buffer.chunks(offset, to.len() as u64)) {
                        self.touch(buffer.id);
                        return self.read_pieces(buffer, (tier, parts), offset, to).await;
                    }
                }
                DataLocation::Device => match self.acquire_for_call(buffer)? {
                    Attempt::Taken(_lease) => {
                        if let Some(copy) = self.device_copy(buffer) {
                            return self.read_device(buffer, &copy, offset, to).await;
                        }
                    }
                    Attempt::Brief => {
                        buffer.brief_leases_end().await;
                        continue;
                    }
                    Attempt::Elsewhere => {}
                },
                DataLocation::Memory | DataLocation::Moving => {}
            }
            changed.await;
        }
    }

    /// Reads a range of a buffer from its pieces in a file tier, many at once.
    async fn read_pieces(
        &self,
        buffer: &BufferState,
        (tier, parts): (Tier, Vec<ChunkPiece>),
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), Error> {
        let (store, end, mut left) = (self.store(tier)?, offset + to.len() as u64, to);
        let reads = parts.into_iter().map(|ChunkPiece { chunk, piece }| {
            let range = buffer.overlap(chunk, offset..end);
            let (target, rest) = std::mem::take(&mut left).split_at_mut(range.len());
            left = rest;
            async move {
                let _turn = self.turn(piece.as_ref().map_or(0, |piece| piece.bytes())).await;
                match piece {
                    Some(piece) => target.copy_from_slice(&store.get_here(&piece, None).await?[range]),
                    None => target.fill(0),
                }
                Ok(())
            }
        });
        stream::iter(reads).buffer_unordered(CHUNKS).try_collect().await
    }

    /// Returns a buffer's copy on a device, if it has the newest bytes. The caller must hold a lease.
    fn device_copy(&self, buffer: &BufferState) -> Option<Arc<DeviceCopy>> {
        let residence = self.state().ledger.view(buffer.id).ok()?.residence;
        let tier = self.newest(&residence, Medium::Device)?;
        buffer.copies().device(tier).cloned()
    }

    /// Reads a range from a device through staging frames. The caller must hold a lease.
    async fn read_device(
        &self,
        buffer: &BufferState,
        copy: &Arc<DeviceCopy>,
        offset: u64,
        to: &mut [u8],
    ) -> Result<(), Error> {
        let mut at = offset as usize;
        for part in to.chunks_mut(buffer.chunk) {
            let frame = TransferMemory::frame(self.frame(part.len()).await?, part.len());
            part.copy_from_slice(&copy.download(at, frame).await?.into_owner()[..part.len()]);
            at += part.len();
        }
        Ok(())
    }

    /// Returns the pieces of these chunks in a file tier; `None` if the tier has no copy any more.
    fn parts(&self, buffer: &BufferState, tier: Tier, chunks: Range<usize>) -> Option<Vec<ChunkPiece>> {
        let copies = buffer.copies();
        let pieces = copies.pieces(tier)?;
        let part =
            |chunk: usize| ChunkPiece { chunk, piece: pieces[chunk].as_ref().map(|(piece, _)| Arc::clone(piece)) };
        Some(chunks.map(part).collect())
    }

    /// Writes a range of a buffer in the tier that has its newest bytes.
    pub(super) async fn write(
        self: &Arc<Self>,
        buffer: &Arc<BufferState>,
        offset: u64,
        from: &[u8],
    ) -> Result<(), Error> {
        Self::inside(buffer, offset, from.len() as u64)?;
        if from.is_empty() {
            return Ok(());
        }
        let tier = loop {
            // Listens before it checks, so that no notification is missed.
            let changed = buffer.changed().listen();
            match self.write_memory(buffer, offset, from)? {
                Attempt::Taken(()) => return Ok(()),
                Attempt::Brief => {
                    buffer.brief_leases_end().await;
                    continue;
                }
                Attempt::Elsewhere => {}
            }
            if let Some(tier) = self.claim_for_write(buffer)? {
                break tier;
            }
            match self.location(buffer)? {
                DataLocation::Device => self.leave_device(buffer).await?,
                _ => changed.await,
            }
        };
        let written = self.write_pieces(buffer, tier, offset, from).await;
        let mut state = self.state();
        if let Ok(pieces) = written.as_ref() {
            let mut copies = buffer.copies();
            copies.wrote(buffer.chunks(offset, from.len() as u64));
            for (chunk, piece) in pieces {
                copies.put_piece(tier, *chunk, piece);
            }
            drop(copies);
            let _ = state.handle(self, LedgerEvent::Wrote { id: buffer.id, tier });
        }
        state.unclaim(self, buffer);
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

    /// Claims a buffer if only files have its bytes, so that no copy and no other write begins; returns its tier. `None`
    /// if another tier has the bytes too, a copy is in progress, or the buffer is claimed already.
    fn claim_for_write(&self, buffer: &BufferState) -> Result<Option<Tier>, Error> {
        let state = self.state();
        let best = state.ledger.view(buffer.id)?.residence.best();
        let claimed = self.medium(best) == Medium::File && buffer.phase.advance(PhaseEvent::Claim);
        Ok(claimed.then_some(best))
    }

    /// Stores new pieces for the chunks that a range overlaps, beside the old ones.
    async fn write_pieces(
        &self,
        buffer: &Arc<BufferState>,
        tier: Tier,
        offset: u64,
        from: &[u8],
    ) -> Result<Vec<(usize, Arc<Piece>)>, Error> {
        let (store, end, mut left) = (self.store(tier)?, offset + from.len() as u64, from);
        let Some(parts) = self.parts(buffer, tier, buffer.chunks(offset, from.len() as u64)) else {
            return Err(Error::Freed);
        };
        let writes = parts.into_iter().map(|ChunkPiece { chunk, piece }| {
            let (bytes, range) = (buffer.chunk_bytes(chunk), buffer.overlap(chunk, offset..end));
            let part;
            (part, left) = left.split_at(range.len());
            async move {
                let _turn = self.turn(bytes).await;
                let mut frame = match &piece {
                    Some(piece) if range.len() < bytes => store.get_here(piece, None).await?,
                    _ => self.frame(bytes).await?,
                };
                if piece.is_none() {
                    frame[..range.start].fill(0);
                    frame[range.end..bytes].fill(0);
                }
                frame[range].copy_from_slice(part);
                Ok((chunk, store.put_here(frame, bytes).await.result?))
            }
        });
        // All writes end, also after one has failed: none may be dropped while the disk performs it.
        let written: Vec<Result<_, Error>> = stream::iter(writes).buffer_unordered(CHUNKS).collect().await;
        written.into_iter().collect()
    }

    /// Reports to the ledger a use of a buffer in a file tier.
    pub(super) fn touch(self: &Arc<Self>, id: BufferId) {
        let mut state = self.state();
        let _ = state.handle(self, LedgerEvent::Touch { id });
        self.unlock(state);
    }
}
