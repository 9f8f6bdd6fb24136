//! Reads and writes of buffers in files, by pieces.
//!
//! Promises upward: many pieces are in flight at once, and all of them have ended when a call ends; whole pages of the
//! caller's memory are read and written without a copy.
//! Asks from below: stores; staging memory for all other bytes.

use super::ManagerShared;
use super::block::LentMemory;
use super::buffer_state::BufferState;
use super::error::Error;
use super::migration::{CHUNKS, catch_copy_panic};
use super::raw_bytes::{RawBytes, ReadTarget};
use futures_util::stream::{self, StreamExt};
use std::sync::Arc;
use terrace_core::residence::Tier;
use terrace_file::{Frame, Piece, Store, StoreError};

/// One chunk of a buffer in files; without a piece it was never written.
pub(super) struct ChunkPiece {
    chunk: usize,
    piece: Option<Arc<Piece>>,
}

impl ManagerShared {
    /// Returns the pieces of a range in a file tier; `None` if the tier has no copy any more.
    pub(super) fn parts(&self, buffer: &BufferState, tier: Tier, offset: u64, bytes: usize) -> Option<Vec<ChunkPiece>> {
        let copies = buffer.copies();
        let pieces = copies.pieces(tier)?;
        let part =
            |chunk: usize| ChunkPiece { chunk, piece: pieces[chunk].as_ref().map(|(piece, _)| Arc::clone(piece)) };
        Some(buffer.chunks(offset, bytes as u64).map(part).collect())
    }

    /// Reads a range of a buffer from its pieces in a file tier, many at once.
    pub(super) async fn read_pieces(
        &self,
        buffer: &BufferState,
        (tier, parts): (Tier, Vec<ChunkPiece>),
        offset: u64,
        mut to: ReadTarget<'_>,
    ) -> Result<(), Error> {
        let (store, end, lent) = (self.store(tier)?, offset + to.len() as u64, LentMemory::new());
        let many = parts.len() > 1;
        let reads = parts.into_iter().map(|ChunkPiece { chunk, piece }| {
            let range = buffer.overlap(chunk, offset..end);
            let (mut target, lent) = (to.split_first(range.len()), &lent);
            catch_copy_panic(async move {
                let Some(piece) = piece else {
                    target.zero();
                    return Ok(());
                };
                if range.len() == piece.bytes()
                    && let Some(memory) = target.initialised()
                    // SAFETY: the target borrows the memory for longer than `lent` lives, and is not used any more.
                    && let Some(frame) = unsafe { lent.frame(memory) }
                {
                    return Ok(self.get(store, &piece, Some(frame), many).await.map(drop)?);
                }
                let _turn = self.turn(piece.bytes()).await;
                target.copy_from(&self.get(store, &piece, None, many).await?[range]);
                Ok(())
            })
        });
        // All reads end, also after one has failed or panicked: none may be dropped while the disk writes to the caller's memory.
        let read: Vec<Result<(), Error>> = stream::iter(reads).buffer_unordered(CHUNKS).collect().await;
        read.into_iter().collect()
    }

    /// Stores new pieces for the chunks that a range overlaps, beside the old ones.
    pub(super) async fn write_pieces(
        &self,
        buffer: &Arc<BufferState>,
        tier: Tier,
        offset: u64,
        from: &[u8],
    ) -> Result<Vec<(usize, Arc<Piece>)>, Error> {
        let (store, end, mut left) = (self.store(tier)?, offset + from.len() as u64, from);
        let lent = LentMemory::new();
        let Some(parts) = self.parts(buffer, tier, offset, from.len()) else { return Err(Error::Freed) };
        let many = parts.len() > 1;
        let writes = parts.into_iter().map(|ChunkPiece { chunk, piece }| {
            let (bytes, range) = (buffer.chunk_bytes(chunk), buffer.overlap(chunk, offset..end));
            let part;
            (part, left) = left.split_at(range.len());
            let lent = &lent;
            catch_copy_panic(async move {
                let memory = RawBytes::new(part.as_ptr().cast_mut(), part.len());
                if range.len() == bytes
                    // SAFETY: `from` borrows the memory for longer than `lent` lives; the frame is read-only.
                    && let Some(frame) = unsafe { lent.frame(memory) }
                {
                    return Ok((chunk, self.put(store, frame.read_only(), bytes, many).await?));
                }
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
                Ok((chunk, self.put(store, frame, bytes, many).await?))
            })
        });
        // All writes end, also after one has failed: none may be dropped while the disk performs it.
        let written: Vec<Result<_, Error>> = stream::iter(writes).buffer_unordered(CHUNKS).collect().await;
        written.into_iter().collect()
    }

    /// Reads a piece; if it is one of many, as a task of its own, so that several threads take checksums.
    async fn get(&self, store: &Store, piece: &Arc<Piece>, to: Option<Frame>, many: bool) -> Result<Frame, StoreError> {
        let get = store.get_here(piece, to);
        if many { self.tasks.spawn(get).in_child(|| Err(StoreError::forked())).await } else { get.await }
    }

    /// Writes a piece; if it is one of many, as a task of its own.
    async fn put(&self, store: &Store, frame: Frame, bytes: usize, many: bool) -> Result<Arc<Piece>, StoreError> {
        let put = if many { store.put(frame, bytes).await } else { store.put_here(frame, bytes).await };
        put.result
    }
}
