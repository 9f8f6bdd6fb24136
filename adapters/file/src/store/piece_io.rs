//! Pieces written, read and copied.
//!
//! Promises upward: a write goes to a free extent; one that fails is tried again in another extent. A read returns the bytes that
//! were put, or an error; one that fails is tried once more.
//! Asks from below: [`Extent`]s, files, and a disk.

use super::error::StoreError;
use super::extent::Extent;
use super::piece::Piece;
use super::shared::StoreShared;
use crate::disk::{DiskRequest, StoreFile, submit};
use crate::frame::{ALIGN, Frame};
use crate::request::MAX_IO_BYTES;
use std::sync::Arc;

/// How often a write (each time to another extent) or a read (of the same piece) is tried.
const TRIES: usize = 2;

/// The result of [`Store::put`](super::Store::put).
#[derive(Debug)]
pub struct PutResult {
    /// The piece, or the cause of the failure.
    pub result: Result<Arc<Piece>, StoreError>,
    /// The frame that was put; `None` if the disk is gone.
    pub frame: Option<Frame>,
}

impl StoreShared {
    /// Writes the first `bytes` bytes of a frame as a piece that is not durable yet.
    pub(super) async fn put(&self, mut frame: Frame, bytes: usize) -> PutResult {
        // Only whole pages are written, and a packed frame may end inside a page.
        let whole = frame.len() / ALIGN * ALIGN;
        let most = whole.min(self.options.slab_bytes as usize).min(MAX_IO_BYTES);
        // seeded: piece_size: bytes == 0 || bytes > most => false
        if bytes == 0 || bytes > most {
            return PutResult { result: Err(StoreError::TooLarge { asked: bytes, most }), frame: Some(frame) };
        }
        let rounded = bytes.next_multiple_of(ALIGN);
        // Zero the rest of the last page: bytes of the frame's previous holder must not reach the disk. A frame of whole
        // pages is only read: it may be read-only.
        if bytes < rounded {
            // seeded: piece_tail: frame[bytes..rounded].fill(0) => ()
            frame[bytes..rounded].fill(0);
        }
        let crc = crc32fast::hash(&frame[..bytes]);
        match self.write_anywhere(frame, rounded).await {
            (Ok(extent), frame) => PutResult { result: Ok(Arc::new(Piece::new(extent, bytes as u32, crc))), frame },
            (Err(error), frame) => PutResult { result: Err(error), frame },
        }
    }

    /// Writes the first `bytes` bytes of a frame, whole pages, to a new extent; if that fails, to another one.
    async fn write_anywhere(&self, mut frame: Frame, bytes: usize) -> (Result<Extent, StoreError>, Option<Frame>) {
        let mut last = None;
        for _ in 0..TRIES {
            let mut extent = match self.allocate(bytes as u64).await {
                Ok(extent) => extent,
                // If the second allocation fails, report the error of the first write, which tells more.
                Err(error) => return (Err(last.unwrap_or(error)), Some(frame)),
            };
            let (file, offset) = (extent.file(), extent.offset());
            let response = submit(&*self.disk, DiskRequest::Write { file, offset, bytes, frame }).await;
            last = Some(match response.result {
                // seeded: piece_short_write: moved == bytes => true
                Ok(moved) if moved == bytes => {
                    extent.mark_written();
                    return (Ok(extent), response.frame);
                }
                Ok(_) => StoreError::short("write", file, offset),
                Err(fault) => fault.into(),
            });
            extent.poison();
            match response.frame {
                Some(back) => frame = back,
                None => break,
            }
        }
        (Err(last.unwrap_or_else(|| self.space.full(bytes as u64))), None)
    }

    /// Allocates an extent, in a new slab if necessary.
    pub(super) async fn allocate(&self, bytes: u64) -> Result<Extent, StoreError> {
        if let Some(extent) = Extent::allocate(&self.space, bytes) {
            return Ok(extent);
        }
        // One task at a time creates a slab; the tasks that waited for this lock then try again.
        let _growing = self.growing.lock().await;
        loop {
            if let Some(extent) = Extent::allocate(&self.space, bytes) {
                return Ok(extent);
            }
            // Repeat, because tasks that did not need the lock may have allocated all of the new slab.
            // seeded: stumps_retried: self.sweep_partial_files().await => false
            if bytes > self.options.slab_bytes || !(self.grow().await? || self.sweep_partial_files().await) {
                return Err(self.space.full(bytes));
            }
        }
    }

    /// Creates a slab; returns false if the cap has no room for one.
    async fn grow(&self) -> Result<bool, StoreError> {
        let bytes = self.options.slab_bytes;
        let Some(slab) = self.space.plan_slab(bytes) else { return Ok(false) };
        match self.create(StoreFile::Slab(slab), bytes).await {
            Ok(()) => self.space.slab_created(slab, bytes).map(|()| true),
            Err(error) => {
                self.space.uncount(bytes);
                Err(error)
            }
        }
    }

    /// Reads a piece into a frame of the pool, and verifies its checksum.
    pub(super) async fn get(&self, piece: &Piece) -> Result<Frame, StoreError> {
        let bytes = piece.rounded();
        // Fail before waiting for a frame if the piece is lost, or larger than any frame can be.
        self.check_piece(piece)?;
        // seeded: piece_frame: bytes > self.largest => false
        if bytes > self.largest {
            return Err(StoreError::TooLarge { asked: bytes, most: self.largest });
        }
        let frame = self.frames.wait(bytes).await.map_err(|most| StoreError::TooLarge { asked: bytes, most })?;
        self.read(piece, frame).await
    }

    /// Reads a piece into this frame, and verifies its checksum.
    pub(super) async fn get_into(&self, piece: &Piece, frame: Frame) -> Result<Frame, StoreError> {
        self.check_piece(piece)?;
        if frame.len() < piece.rounded() {
            return Err(StoreError::TooLarge { asked: piece.rounded(), most: frame.len() });
        }
        let asked = frame.pointer().addr();
        let read = self.read(piece, frame).await?;
        // The holder looks at its own memory, not at what a disk hands back in its place.
        if read.pointer().addr() != asked {
            let extent = piece.extent()?;
            return Err(StoreError::short("read", extent.file(), extent.offset()));
        }
        Ok(read)
    }

    /// Fails if a piece is another store's, or lost.
    fn check_piece(&self, piece: &Piece) -> Result<(), StoreError> {
        // seeded: piece_of_another_got: piece.is_in(&self.space) => true
        if !piece.is_in(&self.space) {
            return Err(StoreError::OtherPiece);
        }
        piece.extent().map(drop)
    }

    async fn read(&self, piece: &Piece, mut frame: Frame) -> Result<Frame, StoreError> {
        let (bytes, mut last) = (piece.rounded(), None);
        for _ in 0..TRIES {
            let extent = piece.extent()?;
            let (file, offset) = (extent.file(), extent.offset());
            let response = submit(&*self.disk, DiskRequest::Read { file, offset, bytes, frame }).await;
            let Some(back) = response.frame else {
                return Err(response.result.err().map_or_else(|| StoreError::short("read", file, offset), Into::into));
            };
            frame = back;
            last = Some(match response.result {
                // seeded: piece_short_read: moved < bytes => false
                Ok(moved) if moved < bytes => StoreError::short("read", file, offset),
                // seeded: piece_crc: crc32fast::hash(&frame[..piece.bytes()]) == piece.crc => true
                Ok(_) if crc32fast::hash(&frame[..piece.bytes()]) == piece.crc => return Ok(frame),
                Ok(_) => StoreError::corrupt(file, offset),
                Err(fault) => fault.into(),
            });
        }
        Err(last.unwrap_or_else(|| self.space.full(bytes as u64)))
    }

    /// Copies a piece to another extent.
    pub(super) async fn copy(&self, piece: &Piece) -> Result<Piece, StoreError> {
        let frame = self.get(piece).await?;
        let (extent, _frame) = self.write_anywhere(frame, piece.rounded()).await;
        Ok(Piece::new(extent?, piece.bytes() as u32, piece.crc))
    }
}
