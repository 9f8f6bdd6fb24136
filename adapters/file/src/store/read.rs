//! Reading a log: what it says, and whether it says all that it ever said.
//!
//! Promises upward: of each block, either copy does; a group that was not finished is left out; a hole in what was once durable
//! is told, and is not taken for the end.
//! Asks from below: a disk.

use super::block::{BLOCK, Entry, Header, Record, recognise};
use super::error::StoreError;
use super::log::FRAME;
use super::map::PARTS;
use crate::disk::{Disk, File, Order, ask};
use crate::frame::Frame;
use std::collections::BTreeMap;

/// What a log says of an object.
#[derive(Debug, Default)]
pub(super) struct Raw {
    pub meta: Vec<u8>,
    pub parts: BTreeMap<u32, Entry>,
}

/// What a log says.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub objects: BTreeMap<u64, Raw>,
    /// Whether its first block is another program's, or was overwritten.
    pub stranger: bool,
    /// Whether its first group is whole: before, it says nothing.
    pub whole: bool,
    /// Blocks of whole groups.
    pub next: u64,
    /// Blocks that it has room for.
    pub blocks: u64,
}

/// A log that is being read.
struct Reader<'a> {
    disk: &'a dyn Disk,
    file: File,
    generation: u32,
    blocks: u64,
    /// Blocks of the first copy, from `first` on, as many as could be read.
    chunk: Option<Frame>,
    first: u64,
    held: u64,
    /// For single blocks.
    single: Option<Frame>,
}

/// Blocks in a chunk.
const CHUNK: u64 = (FRAME / BLOCK) as u64;

/// Reads a log of so many bytes, with two frames that are given back.
///
/// # Errors
/// [`StoreError::Newer`]; [`StoreError::Damaged`] when a group is missing that was durable.
pub(super) async fn read(
    disk: &dyn Disk,
    (generation, bytes): (u32, u64),
    frames: &mut [Option<Frame>; 2],
) -> Result<Contents, StoreError> {
    let blocks = bytes / (2 * BLOCK as u64);
    let (chunk, single) = (frames[0].take(), frames[1].take());
    let file = File::Log(generation);
    let mut reader = Reader { disk, file, generation, blocks, chunk, first: 0, held: 0, single };
    let contents = reader.contents().await;
    *frames = [reader.chunk, reader.single];
    contents
}

impl Reader<'_> {
    async fn contents(&mut self) -> Result<Contents, StoreError> {
        let stranger = match self.recognise().await {
            Err(StoreError::Foreign { .. }) => true,
            other => other.map(|()| false)?,
        };
        let mut contents = Contents { blocks: self.blocks, stranger, ..Contents::default() };
        let (mut group, mut at) = (Vec::new(), 0);
        while at < self.blocks {
            let Some((header, records)) = self.block(at).await? else { break };
            group.push(records);
            at += 1;
            // seeded: group_whole: header.last => true
            if header.last {
                // seeded: group_of_records: contents.apply(std::mem::take(&mut group)) => Some(_ = contents.apply(group.split_off(0)))
                contents.apply(std::mem::take(&mut group)).ok_or(StoreError::Damaged { file: self.file })?;
                (contents.next, contents.whole) = (at, true);
            }
        }
        // What follows must not say that anything from here on was durable once: then it was, and is lost.
        for later in at..self.blocks {
            let later = self.first_copy(later).await;
            // seeded: log_hole: header.acked > contents.next => false
            if later.is_some_and(|(header, _)| header.acked > contents.next) {
                return Err(StoreError::Damaged { file: self.file });
            }
        }
        Ok(contents)
    }

    /// Refuses what is not ours. A first copy that cannot be read, or of which a bit has flipped, is not: the mirror tells.
    async fn recognise(&mut self) -> Result<(), StoreError> {
        let (file, generation) = (self.file, self.generation);
        let first = self.single(0).await.map(|block| recognise(file, block)).ok();
        if let Some(Ok(())) = first {
            return Ok(());
        }
        match self.single(self.blocks).await.ok() {
            Some(mirror) if sound(mirror, generation, 0).is_some() => Ok(()),
            mirror => first.or_else(|| mirror.map(|block| recognise(file, block))).unwrap_or(Ok(())),
        }
    }

    /// A block, from either copy. `None`: both copies were read, and are none.
    ///
    /// # Errors
    /// That a copy cannot be read, and the other is none: what cannot be read may well be there.
    async fn block(&mut self, at: u64) -> Result<Option<(Header, Vec<u8>)>, StoreError> {
        let first = self.first_copy(at).await;
        if first.is_some() {
            return Ok(first);
        }
        let generation = self.generation;
        let mut refused = Ok(());
        // The mirror, and then the first copy again: the disk may have read it wrong.
        // seeded: mirror_read: at + self.blocks => at
        for place in [at + self.blocks, at] {
            match self.single(place).await {
                Ok(block) => {
                    let block = sound(block, generation, at);
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

    async fn first_copy(&mut self, at: u64) -> Option<(Header, Vec<u8>)> {
        if !(self.first..self.first + self.held).contains(&at) {
            (self.first, self.held) = (at, 0);
            let blocks = CHUNK.min(self.blocks - at);
            self.held = self.fill(at, blocks).await.unwrap_or(0);
        }
        let frame = self.chunk.as_ref()?;
        let index = at.checked_sub(self.first).filter(|index| *index < self.held)? as usize;
        sound(&frame[index * BLOCK..(index + 1) * BLOCK], self.generation, at)
    }

    /// Fills the chunk; how many blocks are in it.
    async fn fill(&mut self, at: u64, blocks: u64) -> Option<u64> {
        let frame = self.chunk.take()?;
        let bytes = blocks as usize * BLOCK;
        let order = Order::Read { file: self.file, offset: at * BLOCK as u64, bytes, frame };
        let answer = ask(self.disk, order).await;
        self.chunk = answer.frame;
        // seeded: log_short_read: (moved / BLOCK) as u64 => blocks
        answer.result.ok().map(|moved| (moved / BLOCK) as u64)
    }

    /// One block at a place in the file; tried twice.
    async fn single(&mut self, place: u64) -> Result<&[u8], StoreError> {
        let (file, offset) = (self.file, place * BLOCK as u64);
        let mut refused = StoreError::short("read", file, offset);
        for _ in 0..2 {
            let Some(frame) = self.single.take() else { break };
            let answer = ask(self.disk, Order::Read { file, offset, bytes: BLOCK, frame }).await;
            self.single = answer.frame;
            match answer.result {
                // seeded: block_short_read: moved == BLOCK => true
                Ok(moved) if moved == BLOCK => return Ok(self.single.as_ref().map_or(&[], |frame| &frame[..BLOCK])),
                Ok(_) => {}
                Err(fault) => refused = fault.into(),
            }
        }
        Err(refused)
    }
}

/// A block that is this log's, at its place.
fn sound(block: &[u8], generation: u32, at: u64) -> Option<(Header, Vec<u8>)> {
    let (header, records) = Header::open(block)?;
    // seeded: block_generation: header.generation == generation => true
    // seeded: block_sequence: header.sequence == at => true
    let ours = header.generation == generation && header.sequence == at;
    ours.then(|| (header, records.to_vec()))
}

impl Contents {
    /// Takes a whole group. `None` when it does not consist of records.
    fn apply(&mut self, group: Vec<Vec<u8>>) -> Option<()> {
        for block in group {
            let mut records = &block[..];
            while !records.is_empty() {
                match Record::decode(&mut records)? {
                    // seeded: part_number: entry.part >= PARTS => false
                    Record::Piece(entry) if entry.part >= PARTS => return None,
                    Record::Piece(entry) => {
                        _ = self.objects.entry(entry.object).or_default().parts.insert(entry.part, entry);
                    }
                    Record::Meta { object, meta } => {
                        _ = self.objects.insert(object, Raw { meta: meta.to_vec(), parts: BTreeMap::new() });
                    }
                    Record::Gone { object } => _ = self.objects.remove(&object),
                }
            }
        }
        Some(())
    }
}
