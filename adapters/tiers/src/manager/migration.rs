//! Copies buffers between tiers, a chunk at a time, several at once.
//!
//! Promises upward: a copy that was begun ends, and its end is reported to the ledger; a failed copy leaves the buffer
//! as it was; chunks that the target has already are not copied.
//! Asks from below: stores, and frames for staging.

use super::block::{BlankBlock, HostBlock, InPlaceSource, TransferMemory};
use super::buffer_state::{BufferState, Pieces, TierCopy};
use super::device_tier::{DeviceCopy, DeviceTier};
use super::error::Error;
use super::lease_word::is_replicating;
use super::phase::PhaseEvent;
use super::raw_bytes::ReadTarget;
use super::state::State;
use super::{ManagerShared, TierStorage};
use crate::ledger::{BufferId, CopyOutcome, LedgerEvent, Medium};
use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::ops::Range;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_device::DeviceError;
use terrace_file::{ALIGN, Frame, Store, StoreError};
use tokio::sync::SemaphorePermit;

/// Number of chunks in flight for one copy, read or write: 16 of 1 MiB keep a disk of 7 GB/s busy for two milliseconds.
pub(super) const CHUNKS: usize = 16;

/// Chunks of at most this many bytes take no turn: 64 of them fit into 8 MiB of staging memory. They are copied from there:
/// a copy of some pages costs less than a request for as many pieces of memory (64 KiB by small pages: 0.8 of the rate).
pub(super) const SMALL_CHUNK: usize = 128 << 10;

/// The source of a copy.
#[derive(Clone)]
enum CopySource {
    /// The buffer was never written: no copy of its bytes is needed.
    Zeros,
    Memory(Arc<HostBlock>),
    Device(Arc<DeviceCopy>),
    Pieces(Arc<Pieces>, Store),
}

/// Turns a panic of a copy into [`Error::Panicked`], so that the ledger and the waiters learn of it as of any other
/// failure.
pub(super) async fn catch_copy_panic<T>(copy: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    #[cfg(test)]
    let copy = async {
        tests::panic_if_told();
        copy.await
    };
    AssertUnwindSafe(copy).catch_unwind().await.unwrap_or(Err(Error::Panicked))
}

/// Most copies to files in progress: more than disks perform at once, and the tasks of so many take less than a MiB.
/// They wait for no other copy, so those in the queue begin.
const FILE_COPIES: usize = 256;

/// Copies to files.
#[derive(Debug, Default)]
pub(super) struct FileCopies {
    pub in_progress: usize,
    /// Those that have not begun: leases of their buffers are still granted.
    pub waiting: VecDeque<(BufferId, Tier, Tier)>,
}

impl State {
    /// Begins copies to files that wait, as many as may be in progress; returns the ends of those that cannot begin.
    pub(super) fn begin_file_copies(&mut self, shared: &Arc<ManagerShared>) -> Vec<LedgerEvent> {
        let mut ends = Vec::new();
        while self.file_copies.in_progress < FILE_COPIES
            && let Some((id, from, to)) = self.file_copies.waiting.pop_front()
        {
            match self.begin_copy(shared, id, from, to) {
                Some(end) => ends.push(end),
                None => self.file_copies.in_progress += 1,
            }
        }
        ends
    }

    pub(super) fn begin_copy(
        &mut self,
        shared: &Arc<ManagerShared>,
        id: BufferId,
        from: Tier,
        to: Tier,
    ) -> Option<LedgerEvent> {
        let busy = LedgerEvent::CopyEnded { id, from, to, outcome: CopyOutcome::Leased };
        let Some(buffer) = self.buffers.get(&id).cloned() else { return Some(busy) };
        // A buffer that was freed meanwhile needs no copy any more.
        if self.ledger.view(id).is_err() {
            return Some(busy);
        }
        // If the lease word cannot be closed, as others read, a replication can still be made under a brief lease: it only
        // reads.
        let begins = match self.close(&buffer) {
            Ok(()) => PhaseEvent::Copy,
            Err(_) if is_replicating(&self.waiters, id) && buffer.lease.acquire_brief(false).is_ok() => {
                PhaseEvent::Replicate
            }
            Err(_) => return Some(busy),
        };
        let begun = buffer.phase.advance(begins);
        debug_assert!(begun, "{id}: the ledger moves what is claimed or moves already");
        shared.copy(buffer, from, to);
        None
    }
}

impl ManagerShared {
    /// Starts a task that copies a buffer between tiers. The lease word must be closed, or a brief lease held for this copy.
    pub(super) fn copy(self: &Arc<Self>, buffer: Arc<BufferState>, from: Tier, to: Tier) {
        let shared = Arc::clone(self);
        drop(self.tasks.spawn(async move {
            let copied = catch_copy_panic(shared.transfer(&buffer, from, to));
            #[cfg(feature = "tracing")]
            let span = super::trace::copy_span(buffer.id, from, to, buffer.bytes);
            #[cfg(feature = "tracing")]
            let copied = tracing::Instrument::instrument(copied, span.clone());
            let brought = copied.await;
            let outcome = match &brought {
                Ok(_) => CopyOutcome::Done,
                // The target did not fail, so it is not suspended.
                Err(Error::Freed | Error::NoRoom { .. }) => CopyOutcome::Leased,
                // The source failed, as the target is of another kind: the target is not suspended.
                Err(Error::Device(_)) if shared.device_tier(to).is_none() => CopyOutcome::SourceFailed,
                Err(Error::Store(_)) if shared.medium(to) != Medium::File => CopyOutcome::SourceFailed,
                Err(Error::Store(StoreError::Full { .. }) | Error::Memory(_)) => CopyOutcome::Full,
                Err(Error::Device(DeviceError::OutOfMemory(_))) => CopyOutcome::Full,
                Err(_) => CopyOutcome::Failed,
            };
            #[cfg(feature = "tracing")]
            span.record("outcome", tracing::field::debug(outcome));
            let refused = brought.as_ref().err().filter(|_| matches!(outcome, CopyOutcome::Full | CopyOutcome::Failed));
            let refused = refused.map(|error| (to, shared.suspension(to, error.clone())));
            let mut state = shared.state();
            state.file_copies.in_progress -= usize::from(shared.medium(to) == Medium::File);
            state.suspensions.extend(refused);
            match brought {
                Ok(brought) => {
                    state.pending_frees.add(buffer.copies().put(to, brought));
                    shared.tracking.copied(&buffer, from, to);
                }
                // The waiters get the error now, instead of waiting until the copy is tried again.
                Err(error) => state.settled(buffer.id, &Err(error)),
            }
            let _ = state.handle(&shared, LedgerEvent::CopyEnded { id: buffer.id, from, to, outcome });
            if outcome == CopyOutcome::Full && shared.medium(to) != Medium::File {
                state.refused_memory(to);
            }
            shared.unlock(state);
        }));
    }

    async fn transfer(self: &Arc<Self>, buffer: &Arc<BufferState>, from: Tier, to: Tier) -> Result<TierCopy, Error> {
        let source = self.source(buffer, from)?;
        match self.storage(to) {
            Some(TierStorage::Memory(_) | TierStorage::Joint(_)) => self.to_memory(buffer, source, to).await,
            Some(TierStorage::Device(gpu)) => self.to_device(buffer, source, (gpu, to)).await.map(TierCopy::Device),
            Some(TierStorage::File(store)) => self.to_files(buffer, source, (store, to)).await.map(TierCopy::Pieces),
            None => Err(Error::NoTier("to copy to")),
        }
    }

    /// Returns the source of a copy: the tier `from` that the ledger chose, but memory rather than a device if both
    /// have the newest bytes.
    fn source(&self, buffer: &BufferState, from: Tier) -> Result<CopySource, Error> {
        let residence = self.state().ledger.view(buffer.id)?.residence;
        let from = match self.medium(from) {
            Medium::Device => self.newest(&residence, Medium::Memory).unwrap_or(from),
            _ => from,
        };
        let copies = buffer.copies();
        if copies.blank().is_some() {
            return Ok(CopySource::Zeros);
        }
        if let Some(block) = copies.memory(from) {
            return Ok(CopySource::Memory(Arc::clone(block)));
        }
        if let Some(copy) = copies.device(from) {
            return Ok(CopySource::Device(Arc::clone(copy)));
        }
        let pieces = copies.pieces(from).cloned().ok_or(Error::NoTier("to copy from"))?;
        Ok(CopySource::Pieces(Arc::new(pieces), self.store(from)?.clone()))
    }

    /// Copies a buffer to memory, over a stale copy if there is one.
    async fn to_memory(
        self: &Arc<Self>,
        buffer: &Arc<BufferState>,
        source: CopySource,
        to: Tier,
    ) -> Result<TierCopy, Error> {
        let old = buffer.copies().take(to);
        let block = match old {
            Some(TierCopy::Memory(block)) => block,
            Some(TierCopy::Blank(blank)) => Arc::clone(blank.block()),
            _ => self.block(to, buffer.bytes).await?,
        };
        if buffer.copies().is_untouched() {
            return Ok(TierCopy::Blank(BlankBlock::new(block, &self.blank_bytes)));
        }
        if let CopySource::Device(copy) = source {
            let block = copy.download(0, TransferMemory::block(block, buffer.bytes as usize)).await?.into_owner();
            return Ok(TierCopy::Memory(block));
        }
        let chunks = buffer.chunks(0, buffer.bytes);
        self.for_each_chunk(chunks, |shared, chunk| {
            let (buffer, source, block) = (Arc::clone(buffer), source.clone(), Arc::clone(&block));
            async move { shared.read_chunk(&buffer, source, chunk, &block).await }
        })
        .await?;
        Ok(TierCopy::Memory(block))
    }

    /// Runs `transfer` for each chunk, many at once; returns the first error once all of them have ended. If there
    /// are several, each is a task of its own, so that one that panics interrupts no other.
    async fn for_each_chunk<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
        self: &Arc<Self>,
        chunks: Range<usize>,
        transfer: impl Fn(Arc<Self>, usize) -> F,
    ) -> Result<Vec<T>, Error> {
        if chunks.len() == 1 {
            return Ok(vec![transfer(Arc::clone(self), chunks.start).await?]);
        }
        let begun = chunks.map(|chunk| self.tasks.spawn(catch_copy_panic(transfer(Arc::clone(self), chunk))));
        let ended: Vec<Result<T, Error>> = stream::iter(begun).buffered(CHUNKS).collect().await;
        ended.into_iter().collect()
    }

    /// Reads a chunk of a source into its place in a block, which only this copy uses.
    async fn read_chunk(
        &self,
        buffer: &Arc<BufferState>,
        source: CopySource,
        chunk: usize,
        block: &Arc<HostBlock>,
    ) -> Result<(), Error> {
        let (at, bytes) = (chunk * buffer.chunk, buffer.chunk_bytes(chunk));
        if let CopySource::Pieces(pieces, store) = &source
            && let Some((piece, _)) = &pieces[chunk]
            // SAFETY: only this copy uses the block until it has ended, and no two chunks overlap; its memory is
            // initialised, as all memory of pools is.
            && let Some(part) = unsafe { block.part(at, bytes) }
        {
            return Ok(store.get_here(piece, Some(part)).await.map(drop)?);
        }
        let frame = self.chunk(buffer, source, chunk).await?;
        // SAFETY: only this copy uses the block until it has ended, and no two chunks overlap.
        unsafe { block.raw_bytes().write(at, &frame[..bytes]) };
        Ok(())
    }

    /// Copies a buffer to a device, over a stale copy if there is one.
    async fn to_device(
        self: &Arc<Self>,
        buffer: &Arc<BufferState>,
        source: CopySource,
        (gpu, to): (&DeviceTier, Tier),
    ) -> Result<Arc<DeviceCopy>, Error> {
        let old = buffer.copies().take(to);
        let copy = match old {
            Some(TierCopy::Device(copy)) => copy,
            _ => self.take_from_device(|| gpu.allocate(buffer.bytes, &self.tasks)).await?,
        };
        if buffer.copies().is_untouched() {
            copy.zero().await?;
            return Ok(copy);
        }
        if let CopySource::Memory(block) = source {
            // SAFETY: the word is closed, or held shared for this copy, until that has ended: no thread writes the memory or
            // frees it.
            let bytes = unsafe { InPlaceSource::new(block.raw_bytes(), Arc::clone(buffer)) };
            copy.upload(0, bytes).await?;
            return Ok(copy);
        }
        let chunks = buffer.chunks(0, buffer.bytes).map(|chunk| {
            let (shared, buffer) = (Arc::clone(self), Arc::clone(buffer));
            let (source, copy) = (source.clone(), Arc::clone(&copy));
            async move {
                let frame = shared.chunk(&buffer, source, chunk).await?;
                let frame = TransferMemory::frame(frame, buffer.chunk_bytes(chunk));
                copy.upload(chunk * buffer.chunk, frame).await.map(drop)
            }
        });
        stream::iter(chunks).buffer_unordered(CHUNKS).try_collect::<()>().await?;
        Ok(copy)
    }

    /// Copies to files those chunks of a buffer whose newest version the target does not have yet.
    async fn to_files(
        self: &Arc<Self>,
        buffer: &Arc<BufferState>,
        source: CopySource,
        (store, to): (&Store, Tier),
    ) -> Result<Pieces, Error> {
        let (versions, old) = {
            let copies = buffer.copies();
            (copies.versions.clone(), copies.pieces(to).cloned())
        };
        let pieces = self.for_each_chunk(0..versions.len(), |shared, chunk| {
            let version = versions[chunk];
            let kept = old.as_ref().and_then(|old| old[chunk].clone()).filter(|(_, has)| *has == version);
            let (buffer, source, store) = (Arc::clone(buffer), source.clone(), store.clone());
            async move {
                // A chunk of version 0 was never written: it is zeros, and needs no piece.
                if kept.is_some() || version == 0 {
                    return Ok(kept);
                }
                let frame = shared.chunk(&buffer, source, chunk).await?;
                Ok(Some((store.put_here(frame, buffer.chunk_bytes(chunk)).await.result?, version)))
            }
        });
        Ok(pieces.await?.into_iter().collect())
    }

    /// Returns a chunk of a source as a frame: in memory where it is, if it fills whole pages.
    async fn chunk(&self, buffer: &Arc<BufferState>, source: CopySource, chunk: usize) -> Result<Frame, Error> {
        let (at, bytes) = (chunk * buffer.chunk, buffer.chunk_bytes(chunk));
        if let CopySource::Pieces(pieces, store) = &source
            && let Some((piece, _)) = &pieces[chunk]
        {
            return Ok(store.get_here(piece, None).await?);
        }
        if let CopySource::Memory(block) = &source
            && bytes.is_multiple_of(ALIGN)
            // SAFETY: the word is closed, or held shared for the copy, until that has ended: no thread writes the
            // memory or frees it; the frame is read-only.
            && let Some(part) = unsafe { block.part(at, bytes) }
        {
            return Ok(part.read_only());
        }
        let mut frame = self.frame(bytes).await?;
        match source {
            CopySource::Zeros | CopySource::Pieces(..) => frame[..bytes].fill(0),
            // SAFETY: as above.
            CopySource::Memory(block) => unsafe {
                block.raw_bytes().read(at, &mut ReadTarget::new(&mut frame[..bytes]))
            },
            CopySource::Device(copy) => {
                return Ok(copy.download(at, TransferMemory::frame(frame, bytes)).await?.into_owner());
            }
        }
        Ok(frame)
    }

    /// Waits for a turn to hold staging memory for a large chunk: first come, first served. Small chunks do not wait here, since
    /// many of them fit.
    pub(super) async fn turn(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        if bytes > SMALL_CHUNK { self.staged.acquire().await.ok() } else { None }
    }

    /// Returns a frame of staging memory; waits until one is free.
    pub(super) async fn frame(&self, bytes: usize) -> Result<Frame, Error> {
        self.frames.wait(bytes).await.map_err(|_| Error::Memory(ErrorKind::OutOfMemory))
    }
}

#[cfg(test)]
mod tests;
