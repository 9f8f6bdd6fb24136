//! The form of a log: blocks of records. Version 1; all numbers are little-endian.
//!
//! ```text
//! file     block 0 .. block n-1 | the same blocks again (mirror)
//! block    magic 8 | version 4 | generation 4 | 0 4 | flags 4 | sequence 8 | acked 8 | length 4 | crc 4 | 0 16 | records
//! records  piece  1 | object 8 | part 4 | slab 4 | page 4 | bytes 4 | crc 4
//!          meta   2 | object 8 | length 2 | bytes
//!          gone   3 | object 8
//! ```
//!
//! Promises upward: a block that was not written whole, or that belongs to another file or another place, is not taken for one
//! of this log's.
//!
//! A block's sequence is its place in the file. Blocks form groups, each ended by [`LAST`]: a group counts whole or not at all.
//! No log is written on after a restart, so what a power cut left behind the end of one is never mixed with what came later.

use super::error::StoreError;
use crate::disk::File;

/// Bytes of a block: what disks write at once.
pub(super) const BLOCK: usize = 4096;

/// Bytes in front of a block's records.
const HEADER: usize = 64;

/// Bytes of records in a block.
const ROOM: usize = BLOCK - HEADER;

/// The first bytes of every block.
const MAGIC: [u8; 8] = *b"terrace\x1a";

/// The version of this form.
const VERSION: u32 = 1;

/// A flag: the group ends here.
const LAST: u32 = 1;

/// Where the checksum stands.
const CRC: std::ops::Range<usize> = 44..48;

/// Bytes of an object's meta data, at most: with its header it must fit into a block.
pub const META: usize = 1024;

/// Bytes of the largest record.
const LARGEST: usize = 1 + 8 + 2 + META;

/// Blocks that records of so many bytes take, at most: a block is left when the next record does not fit into it.
pub(super) fn blocks_for(bytes: u64) -> u64 {
    bytes / (ROOM - LARGEST + 1) as u64 + 1
}

/// What is said of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record<'a> {
    /// A part of it lies here.
    Piece(Entry),
    /// What its owner says of it; whatever was said of an object of that number before is void.
    Meta { object: u64, meta: &'a [u8] },
    /// It is gone.
    Gone { object: u64 },
}

/// Where a part of an object lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub object: u64,
    pub part: u32,
    pub slab: u32,
    pub page: u32,
    pub bytes: u32,
    pub crc: u32,
}

impl Entry {
    /// Whether it names the same bytes.
    pub(super) fn is_same_piece(&self, other: &Self) -> bool {
        let Self { object, part, .. } = *self;
        *self == Self { object, part, ..*other }
    }
}

/// What a block says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub generation: u32,
    pub sequence: u64,
    /// Blocks in front of which all are known to be durable.
    pub acked: u64,
    /// Whether its group ends here.
    pub last: bool,
}

/// Records, put into blocks.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Whole blocks, headers still empty.
    bytes: Vec<u8>,
    /// Bytes of records in each.
    lengths: Vec<u32>,
}

impl Writer {
    /// Adds a record.
    pub(super) fn push(&mut self, record: &Record<'_>) {
        let room = self.lengths.last().map_or(0, |used| ROOM - *used as usize);
        if record.length() > room {
            self.block();
        }
        let at = self.bytes.len() - BLOCK + HEADER;
        if let Some(used) = self.lengths.last_mut() {
            record.encode(&mut self.bytes[at + *used as usize..]);
            *used += record.length() as u32;
        }
    }

    fn block(&mut self) {
        self.bytes.resize(self.bytes.len() + BLOCK, 0);
        self.lengths.push(0);
    }

    /// Blocks so far; a group has at least one.
    pub(super) fn blocks(&self) -> u64 {
        self.lengths.len().max(1) as u64
    }

    /// The blocks of the group, the first of which is `first` says.
    pub(super) fn finish(mut self, first: Header) -> Vec<u8> {
        if self.lengths.is_empty() {
            self.block();
        }
        let count = self.lengths.len();
        for (i, (block, length)) in self.bytes.chunks_mut(BLOCK).zip(&self.lengths).enumerate() {
            let header = Header { sequence: first.sequence + i as u64, last: i + 1 == count, ..first };
            header.seal(block, *length);
        }
        self.bytes
    }
}

impl Header {
    fn seal(&self, block: &mut [u8], length: u32) {
        let mut out = Out { bytes: block, at: 0 };
        out.put(&MAGIC);
        out.put(&VERSION.to_le_bytes());
        out.put(&self.generation.to_le_bytes());
        out.put(&[0; 4]);
        out.put(&(if self.last { LAST } else { 0 }).to_le_bytes());
        out.put(&self.sequence.to_le_bytes());
        out.put(&self.acked.to_le_bytes());
        out.put(&length.to_le_bytes());
        let crc = checksum(block);
        block[CRC].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a block: its header and its records. `None` for what is not a whole block.
    pub(super) fn open(block: &[u8]) -> Option<(Self, &[u8])> {
        let mut input = In { bytes: block };
        let magic: [u8; 8] = input.take()?;
        let [version, generation, _, flags] = [input.u32()?, input.u32()?, input.u32()?, input.u32()?];
        let (sequence, acked, length, crc) = (input.u64()?, input.u64()?, input.u32()?, input.u32()?);
        // seeded: block_magic: magic == MAGIC => true
        // seeded: block_version: version == VERSION => true
        // seeded: block_crc: crc == checksum(block) => true
        let sound = magic == MAGIC && version == VERSION && crc == checksum(block);
        let records = block.get(HEADER..HEADER + length as usize).filter(|_| sound)?;
        Some((Self { generation, sequence, acked, last: flags & LAST != 0 }, records))
    }
}

/// Refuses a first block that is another program's or a later version's. Nothing but zeros is neither.
///
/// # Errors
/// [`StoreError::Foreign`], [`StoreError::Newer`].
pub(super) fn recognise(file: File, block: &[u8]) -> Result<(), StoreError> {
    let mut input = In { bytes: block };
    let (magic, version) = (input.take::<8>().unwrap_or_default(), input.u32().unwrap_or(0));
    match magic {
        [0, 0, 0, 0, 0, 0, 0, 0] => Ok(()),
        // seeded: log_newer: version <= VERSION => true
        MAGIC if version <= VERSION => Ok(()),
        MAGIC => Err(StoreError::Newer { file, version }),
        // seeded: log_foreign: Err(StoreError::Foreign { file }) => Ok(())
        _ => Err(StoreError::Foreign { file }),
    }
}

/// Of the whole block but the checksum itself.
fn checksum(block: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&block[..CRC.start]);
    hasher.update(&block[CRC.end..]);
    hasher.finalize()
}

impl<'a> Record<'a> {
    /// Bytes of it.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Piece(_) => 1 + 8 + 5 * 4,
            Self::Meta { meta, .. } => 1 + 8 + 2 + meta.len(),
            Self::Gone { .. } => 1 + 8,
        }
    }

    fn encode(&self, bytes: &mut [u8]) {
        let mut out = Out { bytes, at: 0 };
        match self {
            Self::Piece(entry) => {
                out.put(&[1]);
                out.put(&entry.object.to_le_bytes());
                for number in [entry.part, entry.slab, entry.page, entry.bytes, entry.crc] {
                    out.put(&number.to_le_bytes());
                }
            }
            Self::Meta { object, meta } => {
                out.put(&[2]);
                out.put(&object.to_le_bytes());
                out.put(&(meta.len() as u16).to_le_bytes());
                out.put(meta);
            }
            Self::Gone { object } => {
                out.put(&[3]);
                out.put(&object.to_le_bytes());
            }
        }
    }

    /// Takes the first record off. `None` where they end, or are not records.
    pub(super) fn decode(bytes: &mut &'a [u8]) -> Option<Self> {
        let mut input = In { bytes };
        let [tag] = input.take()?;
        let object = input.u64()?;
        let record = match tag {
            1 => {
                let [part, slab, page, bytes, crc] =
                    [input.u32()?, input.u32()?, input.u32()?, input.u32()?, input.u32()?];
                Self::Piece(Entry { object, part, slab, page, bytes, crc })
            }
            2 => {
                let length = u16::from_le_bytes(input.take()?);
                let (meta, rest) = input.bytes.split_at_checked(length.into())?;
                input.bytes = rest;
                Self::Meta { object, meta }
            }
            3 => Self::Gone { object },
            // seeded: record_tag: return None => Self::Gone { object }
            _ => return None,
        };
        *bytes = input.bytes;
        Some(record)
    }
}

/// Bytes to write to, and how far they are written.
struct Out<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

/// Bytes that are read from the front.
struct In<'a> {
    bytes: &'a [u8],
}

impl In<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> Vec<Record<'static>> {
        let piece = |part| {
            Record::Piece(Entry { object: 1 << 40, part, slab: 7, page: 3, bytes: 65_536, crc: part.wrapping_mul(99) })
        };
        let meta = Record::Meta { object: 5, meta: &[9; META] };
        (0..300).map(piece).chain([meta, Record::Gone { object: u64::MAX }]).collect()
    }

    #[test]
    fn records_come_back_as_they_were_put() {
        let mut writer = Writer::default();
        records().iter().for_each(|record| writer.push(record));
        let blocks = writer.blocks();
        let first = Header { generation: 2, sequence: 10, acked: 9, last: false };
        let bytes = writer.finish(first);
        assert_eq!(bytes.len() as u64, blocks * BLOCK as u64);
        let mut back = Vec::new();
        for (i, block) in bytes.chunks(BLOCK).enumerate() {
            let (header, mut records) = Header::open(block).expect("whole");
            let last = i as u64 + 1 == blocks;
            assert_eq!(header, Header { sequence: 10 + i as u64, last, ..first });
            while let Some(record) = Record::decode(&mut records) {
                back.push(record);
            }
            assert!(records.is_empty());
        }
        assert_eq!(back, records());
    }

    #[test]
    fn records_take_no_more_blocks_than_is_foreseen() {
        // As much as can be is left over: after two of these, the largest does not fit.
        let (half, largest) = ([7; 995], [7; META]);
        for meta in [&half[..], &largest[..], &[]] {
            let (mut writer, mut bytes) = (Writer::default(), 0);
            for object in 0..2000 {
                let meta = if object % 4 == 3 { &largest } else { meta };
                let record = Record::Meta { object, meta };
                writer.push(&record);
                bytes += record.length() as u64;
                assert!(writer.blocks() <= blocks_for(bytes), "{} blocks of {bytes} bytes", writer.blocks());
            }
        }
    }

    #[test]
    fn a_block_with_any_bit_flipped_is_none() {
        let mut writer = Writer::default();
        records().iter().take(3).for_each(|record| writer.push(record));
        let block = writer.finish(Header { generation: 1, sequence: 0, acked: 0, last: false });
        assert!(Header::open(&block).is_some());
        for bit in 0..BLOCK * 8 {
            let mut block = block.clone();
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::open(&block).is_none(), "bit {bit}");
        }
    }

    /// A mirror may be read where the first copy is bad, so every block must say what it is.
    #[test]
    fn a_whole_block_of_another_kind_or_version_is_none() {
        let block = Writer::default().finish(Header { generation: 1, sequence: 0, acked: 0, last: false });
        for at in [0, MAGIC.len()] {
            let mut other = block.clone();
            other[at] += 1;
            let crc = checksum(&other);
            other[CRC].copy_from_slice(&crc.to_le_bytes());
            assert!(Header::open(&other).is_none(), "byte {at}");
        }
    }

    #[test]
    fn other_programs_and_later_versions_are_told_apart() {
        let file = File::Log(1);
        assert_eq!(recognise(file, &[0; BLOCK]), Ok(()));
        assert_eq!(recognise(file, b"\x7fELF\x02\x01\x01\x00........"), Err(StoreError::Foreign { file }));
        let newer = [&MAGIC[..], &2u32.to_le_bytes()].concat();
        assert_eq!(recognise(file, &newer), Err(StoreError::Newer { file, version: 2 }));
    }
}
