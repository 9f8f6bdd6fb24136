//! The log that is being written: a sequence of groups of changes, in files of rising generation.
//!
//! Promises upward: a group whose commit succeeded survives a power cut; a group whose commit failed is recovered whole or not at
//! all; a log that is full, or whose end is unknown, is followed by a new log that begins with a snapshot.
//! Asks from below: a disk, two frames.
//!
//! Invariants:
//! - a `sealed` log is never written again: the blocks from `next` on are unknown
//! - once a log of a later generation is written, no earlier log is written any more: recovery takes the latest
//!   complete one
//! - the changes of a group that failed after a write may have happened stay `in_doubt` until a later generation is durable:
//!   a power cut may bring them back, so their pieces keep their extents (the pieces that they replace keep theirs in the map)
//! - the next log has `next_blocks` blocks, twice what a snapshot needs; the space reserves them before a group is written that
//!   needs more; a spare file has that size
//! - a log that is not `complete` is `sealed`; only then may it have a `predecessor`
//! - a log is `complete` once the superblock names it: before, the store does not rely on it
//! - once the log or the superblock is `gone` (another program took its name), nothing more is made durable or removed

use super::block::{BlockHeader, file_bytes};
use super::error::StoreError;
use super::map::Change;
use super::space::MAX_FILE_NUMBER;
use super::superblock::Superblock;
use crate::disk::StoreFile;
use crate::frame::Frame;

/// The log that is being written.
#[derive(Debug)]
pub(super) struct Log {
    pub superblock: Superblock,
    pub generation: u32,
    /// The highest generation whose file may exist.
    pub latest: u32,
    /// Number of blocks in one copy of the log; its mirror has as many.
    pub blocks: u64,
    /// Number of blocks in one copy of the next log.
    pub next_blocks: u64,
    /// Sequence number of the next block to write, which is its index in the log.
    pub next: u64,
    /// Whether the log's first group is durable, and the superblock names the log.
    pub complete: bool,
    pub sealed: bool,
    pub in_doubt: Vec<Vec<Change>>,
    /// The file and size in bytes of the log that recovery would use as long as this log is not complete.
    pub predecessor: Option<(StoreFile, u64)>,
    /// The generation of the spare file: a file of zeros for the next log, so that a full log can be followed by
    /// another even when the disk is full. Its bytes are part of the reserve.
    pub spare: Option<u32>,
    /// Files to remove, with their sizes in bytes.
    pub garbage: Vec<(StoreFile, u64)>,
    /// An I/O buffer for each of the two copies; `None` once the disk is gone, when nothing more is written.
    pub frames: [Option<Frame>; 2],
}

impl Log {
    pub(super) fn file(&self) -> StoreFile {
        StoreFile::Log(self.generation)
    }

    /// Size of the log's file in bytes.
    pub(super) fn bytes(&self) -> u64 {
        file_bytes(self.blocks)
    }

    /// The bytes to reserve for next logs: a log of `next_blocks` blocks, and what another of that size would need
    /// beyond the bytes that removing the current log frees.
    pub(super) fn reserve(&self, next_blocks: u64) -> u64 {
        file_bytes(next_blocks) + file_bytes(next_blocks).saturating_sub(self.bytes())
    }

    /// The generation of the next log.
    ///
    /// # Errors
    /// [`StoreError::BadNumber`] if no number is left.
    pub(super) fn next_generation(&self) -> Result<u32, StoreError> {
        let next = self.latest.checked_add(1).filter(|next| *next < MAX_FILE_NUMBER);
        next.ok_or(StoreError::BadNumber { file: StoreFile::Log(self.latest) })
    }

    /// The header of the next block.
    pub(super) fn header(&self) -> BlockHeader {
        let Self { generation, next, .. } = *self;
        // Groups are written one after the other, so all blocks before this group are durable.
        BlockHeader { identity: self.superblock.identity, generation, sequence: next, acked: next, last: false }
    }
}
