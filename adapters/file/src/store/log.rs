//! The log: groups of changes, each durable as a whole before it is told.
//!
//! Promises upward: a group that was told done is found after a power cut; one that was not is found whole or not at all; a log
//! that is full, or of whose end nobody knows, is followed by another that says everything anew.
//! Asks from below: a disk, two frames.
//!
//! Invariants:
//! - a log that is `sealed` is never written again: what lies behind `next` is not known
//! - once a log of a later generation was written to, nothing more is written to an earlier one: the latest whole one counts
//! - changes of a group that failed after some of it may have been written are in `in_doubt` until a later generation is durable: a power cut may still bring them to
//!   light, so the pieces they name keep their room (those they replace do, being in the map)
//! - the next log holds twice what there is to say, in `next_blocks` blocks: as much is kept free for it, before anything is said that
//!   would need more; a file that is laid by for it has as much
//! - a log that is not `complete` is `sealed`; there is an `predecessor` only while the log is not whole
//! - a log is `complete` once the superblock names it: before, what it says was never relied on
//! - once the log or the superblock is `gone`, having lost its name to another program, nothing is made durable or removed any more

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
    /// The latest generation that there is a file of.
    pub latest: u32,
    /// Blocks of it; there are as many again in the mirror.
    pub blocks: u64,
    /// Blocks that the next log will have.
    pub next_blocks: u64,
    /// The sequence of the next block.
    pub next: u64,
    /// Whether its first group is durable.
    pub complete: bool,
    pub sealed: bool,
    pub in_doubt: Vec<Vec<Change>>,
    /// The generation that a power cut would bring back, while this one is not whole yet, with its bytes.
    pub predecessor: Option<(StoreFile, u64)>,
    /// The generation of a file for the next log, all zeros: so a log that is full can be followed by another when the disk has
    /// become full. It is the reserve of the space, and not counted besides.
    pub spare: Option<u32>,
    /// Files that nobody needs and that are still there, with their bytes.
    pub garbage: Vec<(StoreFile, u64)>,
    /// One for each copy. `None` after the disk was gone: nothing is written any more.
    pub frames: [Option<Frame>; 2],
}

impl Log {
    pub(super) fn file(&self) -> StoreFile {
        StoreFile::Log(self.generation)
    }

    /// Bytes of its file.
    pub(super) fn bytes(&self) -> u64 {
        file_bytes(self.blocks)
    }

    /// What is to be kept free when the next log has so many blocks: it, and one as large that follows it when this one is gone.
    pub(super) fn reserve(&self, next_blocks: u64) -> u64 {
        file_bytes(next_blocks) + file_bytes(next_blocks).saturating_sub(self.bytes())
    }

    /// The number of the next log.
    ///
    /// # Errors
    /// [`StoreError::BadNumber`]: there is none.
    pub(super) fn next_generation(&self) -> Result<u32, StoreError> {
        let next = self.latest.checked_add(1).filter(|next| *next < MAX_FILE_NUMBER);
        next.ok_or(StoreError::BadNumber { file: StoreFile::Log(self.latest) })
    }

    /// The header of the next block.
    pub(super) fn header(&self) -> BlockHeader {
        let Self { generation, next, .. } = *self;
        // Only one group is under way: all blocks in front of it are durable.
        BlockHeader { identity: self.superblock.identity, generation, sequence: next, acked: next, last: false }
    }
}
