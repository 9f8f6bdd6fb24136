//! Reading a log after a restart: its contents, and whether it is all that was once durable.
//!
//! Promises upward: either copy of a block suffices; an unfinished group is left out; a hole in what was once durable is an
//! error, not the end of the log; memory is bounded by what a store under its cap can have written.
//! Asks from below: a disk.

use super::block::{BLOCK, BlockHeader, FRAME, Identity, MAGIC, SPACE_AMPLIFICATION, check_format};
use super::error::StoreError;
use super::map::Object;
use super::record::{LogRecord, MAX_PARTS, PIECE_BYTES, PieceEntry};
use super::space::MAX_FILE_NUMBER;
use crate::disk::{Disk, DiskRequest, StoreFile, submit};
use crate::frame::Frame;
use std::collections::{BTreeMap, BTreeSet};

/// The contents of a log.
#[derive(Debug, Default)]
pub(super) struct LogContents {
    /// The objects by number, each with its meta data; their parts are in `parts` until their pieces are recovered.
    pub objects: BTreeMap<u64, Object>,
    /// The object that was added last; `None` once any was removed since.
    last: Option<u64>,
    /// Entries by object and part: a map for each object would take several times the memory.
    pub parts: BTreeMap<(u64, u32), PieceEntry>,
    /// Bytes of a snapshot of these contents, in which each object counts as [`OBJECT_BYTES`] plus its meta data.
    pub bytes: u64,
    /// Whether the log's first group of blocks is whole; if not, the log has no contents.
    pub complete: bool,
    /// Number of blocks at the start of the log that form whole groups.
    pub next: u64,
    /// Number of blocks in one copy of the log.
    pub blocks: u64,
}

/// The log to read, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogInfo {
    pub generation: u32,
    /// The identity of the store; `None` if unknown.
    pub identity: Option<Identity>,
    /// Number of blocks in one copy of the log.
    pub blocks: u64,
    /// Number of blocks at the start of the log that are known to have been durable once.
    pub durable: u64,
    /// The most bytes of records that a store under its cap can have.
    pub limit: u64,
}

/// What the first block of a log shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstBlock {
    /// An intact first block of this log.
    Sound,
    /// Zeros, an unreadable block, or one that begins like ours and is damaged.
    Nothing,
    /// A block that does not begin like ours: another program wrote it, or it is damaged.
    Foreign,
}

/// Reads the blocks of a log.
struct LogReader<'a> {
    disk: &'a dyn Disk,
    file: StoreFile,
    known: LogInfo,
    /// Buffer that holds `held` blocks of the first copy, from block `first` on.
    chunk: Option<Frame>,
    first: u64,
    held: u64,
    /// Buffer to read single blocks into.
    single: Option<Frame>,
}

/// The limit for the records of one group, as a multiple of the limit for the records of all objects: one copy of a log
/// has no room for more.
const GROUP_FACTOR: u64 = 2;

/// How many bytes recovery counts for an object besides its meta data, to bound the memory that it uses; the object's
/// record has only 11. In memory an object takes some 105 bytes (a node of 632 bytes has room for 11 objects and holds 7
/// in practice, plus 15 of the nodes above), and in the next log 11 to 22: together [`SPACE_AMPLIFICATION`] * 15 = 120, or
/// a seventeenth more. More than 15 would refuse directories that are full. The store's files take as much for an object,
/// because every 2998 bytes of records have a block of 4096: 8 * 11 * 4096 / 2998.
pub(super) const OBJECT_BYTES: u64 = 15;

/// Number of blocks that are read at once into `LogReader::chunk`.
const CHUNK_BLOCKS: u64 = (FRAME / BLOCK) as u64;

/// Reads a log, with the two I/O buffers in `frames`, which it puts back.
///
/// # Errors
/// [`StoreError::Damaged`] when a group that was durable is missing, or a record is invalid;
/// [`StoreError::CapTooSmall`] when the log holds more than a store under this cap can have; errors of the disk.
pub(super) async fn read(
    disk: &dyn Disk,
    known: LogInfo,
    frames: &mut [Option<Frame>; 2],
) -> Result<LogContents, StoreError> {
    let mut reader = LogReader::new(disk, known, frames);
    let contents = reader.contents().await;
    *frames = [reader.chunk, reader.single];
    contents
}

/// Classifies a log by its first block, from either copy.
///
/// # Errors
/// [`StoreError::Older`], [`StoreError::Newer`], [`StoreError::OtherStore`].
pub(super) async fn first(
    disk: &dyn Disk,
    known: LogInfo,
    frames: &mut [Option<Frame>; 2],
) -> Result<FirstBlock, StoreError> {
    let mut reader = LogReader::new(disk, known, frames);
    let first = reader.classify().await;
    *frames = [reader.chunk, reader.single];
    first
}

impl<'a> LogReader<'a> {
    fn new(disk: &'a dyn Disk, known: LogInfo, frames: &mut [Option<Frame>; 2]) -> Self {
        let (chunk, single) = (frames[0].take(), frames[1].take());
        Self { disk, file: StoreFile::Log(known.generation), known, chunk, first: 0, held: 0, single }
    }

    async fn contents(&mut self) -> Result<LogContents, StoreError> {
        let mut contents = LogContents { blocks: self.known.blocks, ..LogContents::default() };
        let limit = self.known.limit;
        let too_small = |bytes: u64| {
            Err(StoreError::CapTooSmall { needs: bytes * SPACE_AMPLIFICATION, cap: limit * SPACE_AMPLIFICATION })
        };
        let (mut group, mut bytes, mut at) = (Vec::new(), 0, 0);
        while at < self.known.blocks {
            let Some((header, records)) = self.block(at).await? else { break };
            bytes += records.len() as u64;
            group.push(records);
            at += 1;
            // seeded: group_limit: bytes > limit * GROUP_FACTOR => false
            if bytes > limit * GROUP_FACTOR {
                return too_small(bytes / GROUP_FACTOR + 1);
            }
            // seeded: group_whole: header.last => true
            if header.last {
                // Free each block as soon as it is applied.
                for block in std::mem::take(&mut group) {
                    // seeded: group_of_records: contents.apply(&block) => Some(_ = contents.apply(&block))
                    contents.apply(&block).ok_or(StoreError::Damaged { file: self.file })?;
                    // seeded: log_limit: contents.bytes > limit => false
                    if contents.bytes > limit {
                        return too_small(contents.bytes);
                    }
                }
                (contents.next, contents.complete, bytes) = (at, true, 0);
            }
        }
        // seeded: log_short: contents.next < self.known.durable => false
        if contents.next < self.known.durable {
            return Err(StoreError::Damaged { file: self.file });
        }
        // A later block may state that more blocks than `contents.next` were durable: then some of them are lost.
        for later in at..self.known.blocks {
            let later = self.first_copy(later).await;
            // seeded: log_hole: header.acked > contents.next => false
            if later.is_some_and(|(header, _)| header.acked > contents.next) {
                return Err(StoreError::Damaged { file: self.file });
            }
        }
        Ok(contents)
    }

    /// Classifies the log by its first block. If the first copy is unreadable or damaged, the mirror decides.
    async fn classify(&mut self) -> Result<FirstBlock, StoreError> {
        let mut judged = Ok(());
        // Read the first copy first: if neither copy is intact, its error prevails.
        for place in [0, self.known.blocks] {
            let (file, generation, expected) = (self.file, self.known.generation, self.known.identity);
            let Ok(block) = self.single(place).await else { continue };
            match BlockHeader::decode(block) {
                // seeded: log_identity: expected.is_some_and(|expected| expected != header.identity) => false
                Some((header, _)) if expected.is_some_and(|expected| expected != header.identity) => {
                    return Err(StoreError::OtherStore { file });
                }
                Some((header, _)) if header.generation == generation && header.sequence == 0 => {
                    return Ok(FirstBlock::Sound);
                }
                _ => judged = judged.and(check_format(file, MAGIC, block)),
            }
        }
        match judged {
            Ok(()) => Ok(FirstBlock::Nothing),
            Err(StoreError::Foreign { .. }) => Ok(FirstBlock::Foreign),
            Err(other) => Err(other),
        }
    }

    /// Reads a block from either copy. `None` if both were read and neither is valid.
    ///
    /// # Errors
    /// A copy is unreadable and no other is valid: the block may exist.
    async fn block(&mut self, at: u64) -> Result<Option<(BlockHeader, Vec<u8>)>, StoreError> {
        let first = self.first_copy(at).await;
        if first.is_some() {
            return Ok(first);
        }
        let known = self.known;
        let mut refused = Ok(());
        // Try the mirror, then the first copy again, which the disk may have misread.
        // seeded: mirror_read: at + known.blocks => at
        for place in [at + known.blocks, at] {
            match self.single(place).await {
                Ok(block) => {
                    let block = validate(block, &known, at);
                    if block.is_some() {
                        return Ok(block);
                    }
                }
                // seeded: unreadable_is_no_end: refused = Err(fault) => ()
                Err(fault) => refused = Err(fault),
            }
        }
        refused.map(|()| None)
    }

    async fn first_copy(&mut self, at: u64) -> Option<(BlockHeader, Vec<u8>)> {
        if !(self.first..self.first + self.held).contains(&at) {
            (self.first, self.held) = (at, 0);
            let blocks = CHUNK_BLOCKS.min(self.known.blocks - at);
            self.held = self.fill_chunk(at, blocks).await.unwrap_or(0);
        }
        let frame = self.chunk.as_ref()?;
        let index = at.checked_sub(self.first).filter(|index| *index < self.held)? as usize;
        validate(&frame[index * BLOCK..(index + 1) * BLOCK], &self.known, at)
    }

    /// Reads `blocks` blocks of the first copy into the chunk; returns the number of blocks read.
    async fn fill_chunk(&mut self, at: u64, blocks: u64) -> Option<u64> {
        let frame = self.chunk.take()?;
        let bytes = blocks as usize * BLOCK;
        let request = DiskRequest::Read { file: self.file, offset: at * BLOCK as u64, bytes, frame };
        let response = submit(self.disk, request).await;
        self.chunk = response.frame;
        // seeded: log_short_read: (moved / BLOCK) as u64 => blocks
        response.result.ok().map(|moved| (moved / BLOCK) as u64)
    }

    /// Reads the block at index `place` of the file; tries twice.
    async fn single(&mut self, place: u64) -> Result<&[u8], StoreError> {
        let (file, offset) = (self.file, place * BLOCK as u64);
        let mut refused = StoreError::short("read", file, offset);
        for _ in 0..2 {
            let Some(frame) = self.single.take() else { break };
            let response = submit(self.disk, DiskRequest::Read { file, offset, bytes: BLOCK, frame }).await;
            self.single = response.frame;
            match response.result {
                // seeded: block_short_read: moved == BLOCK => true
                Ok(moved) if moved == BLOCK => return Ok(self.single.as_ref().map_or(&[], |frame| &frame[..BLOCK])),
                Ok(_) => {}
                Err(fault) => refused = fault.into(),
            }
        }
        Err(refused)
    }
}

/// Decodes a block; `None` unless it is block number `at` of this log.
fn validate(block: &[u8], known: &LogInfo, at: u64) -> Option<(BlockHeader, Vec<u8>)> {
    let (header, records) = BlockHeader::decode(block)?;
    // seeded: block_generation: header.generation == known.generation => true
    let log = header.generation == known.generation;
    // seeded: block_identity: known.identity.is_none_or(|identity| identity == header.identity) => true
    let store = known.identity.is_none_or(|identity| identity == header.identity);
    // seeded: block_sequence: header.sequence == at => true
    let ours = log && store && header.sequence == at;
    ours.then(|| (header, records.to_vec()))
}

impl LogContents {
    /// The slabs that the entries name.
    pub(super) fn slabs(&self) -> BTreeSet<u32> {
        self.parts.values().map(|entry| entry.slab).collect()
    }

    /// Applies the records of one block; `None` if one is invalid.
    fn apply(&mut self, mut records: &[u8]) -> Option<()> {
        while !records.is_empty() {
            match LogRecord::decode(&mut records)? {
                // seeded: part_number: entry.part >= MAX_PARTS => false
                LogRecord::Piece(entry) if entry.part >= MAX_PARTS => return None,
                // seeded: piece_of_nothing: entry.bytes == 0 => false
                LogRecord::Piece(entry) if entry.bytes == 0 => return None,
                // seeded: slab_number: entry.slab >= MAX_FILE_NUMBER => false
                LogRecord::Piece(entry) if entry.slab >= MAX_FILE_NUMBER => return None,
                LogRecord::Piece(entry) => {
                    // An object's pieces mostly follow its meta data.
                    if self.last != Some(entry.object) && !self.objects.contains_key(&entry.object) {
                        self.add_object(entry.object, &[]);
                    }
                    if self.parts.insert((entry.object, entry.part), entry).is_none() {
                        self.bytes += PIECE_BYTES;
                    }
                }
                LogRecord::Meta { object, meta } => self.add_object(object, meta),
                LogRecord::Removed { object } => self.remove_object(object),
            }
        }
        Some(())
    }

    /// Adds an object without parts, in place of any object of that number.
    fn add_object(&mut self, object: u64, meta: &[u8]) {
        // All empty meta data share one allocation.
        let new = if meta.is_empty() { Object::default() } else { Object { meta: meta.into(), ..Object::default() } };
        let replaced = self.objects.insert(object, new);
        self.bytes += OBJECT_BYTES + meta.len() as u64;
        self.forget_parts(object, replaced);
        self.last = Some(object);
    }

    fn remove_object(&mut self, object: u64) {
        let removed = self.objects.remove(&object);
        self.forget_parts(object, removed);
        self.last = None;
    }

    /// Forgets the parts of an object that was replaced or removed, if there was one.
    fn forget_parts(&mut self, object: u64, gone: Option<Object>) {
        let Some(Object { meta, .. }) = gone else { return };
        self.bytes -= OBJECT_BYTES + meta.len() as u64;
        while let Some((&part, _)) = self.parts.range((object, 0)..=(object, u32::MAX)).next() {
            self.parts.remove(&part);
            self.bytes -= PIECE_BYTES;
        }
    }
}
