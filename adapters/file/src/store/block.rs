//! The format of a log: blocks of records. Version 2; all numbers are little-endian.
//!
//! ```text
//! file     block 0 .. block n-1 | the same blocks again (mirror)
//! block    magic 8 | version 4 | generation 4 | 0 4 | flags 4 | sequence 8 | acked 8 | length 4 | crc 4 | identity 16 | records
//! ```
//!
//! Promises upward: decoding rejects a block that is torn, or is of another store, another log or another place.
//!
//! A block's sequence is its index in a copy of the log. Blocks form groups, each ended by [`GROUP_END`]: recovery
//! applies a group whole or not at all. After a restart the store appends to no earlier log, so a torn tail never mixes
//! with later blocks.

use super::error::StoreError;
use super::record::{ByteReader, ByteWriter, LogRecord, MAX_RECORD_BYTES};
use crate::disk::StoreFile;
use crate::fault::FileFault;
use rustix::rand::GetRandomFlags;

/// Bytes of a log block, which disks write as one unit.
pub(super) const BLOCK: usize = 4096;

/// Bytes of a log block's header.
const HEADER: usize = 64;

/// Bytes of a log block that hold records.
const PAYLOAD: usize = BLOCK - HEADER;

/// The first bytes of every block.
pub(super) const MAGIC: [u8; 8] = *b"terrace\x1a";

/// The version of the format of logs and superblock. Version 1 had no superblock, and no identity in blocks.
pub(super) const VERSION: u32 = 2;

/// Flag in a block's header: the block is the last of a group, which recovery applies whole or not at all.
const GROUP_END: u32 = 1;

/// Bytes of the header that hold the checksum.
const CRC: std::ops::Range<usize> = 44..48;

/// Bytes of each of the two I/O buffers of a log, so that up to 64 blocks are written at once.
pub(super) const FRAME: usize = 64 * BLOCK;

/// The least ratio of the bytes of a store's files to the bytes of its log records. The log has room for twice the
/// records (2 x), in two copies (2 x), and as much again is reserved for the next log (2 x).
pub(super) const SPACE_AMPLIFICATION: u64 = 8;

/// Bytes of the file of a log with `blocks` blocks: the file holds two copies of it.
pub(super) fn file_bytes(blocks: u64) -> u64 {
    blocks.saturating_mul(2 * BLOCK as u64)
}

/// The most blocks that records of `bytes` bytes in all need: a record that does not fit into the rest of a block
/// begins the next block.
pub(super) fn blocks_for(bytes: u64) -> u64 {
    bytes / (PAYLOAD - MAX_RECORD_BYTES + 1) as u64 + 1
}

/// A store's identity: 128 random bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity(pub [u8; 16]);

impl Identity {
    /// Creates a random identity.
    ///
    /// # Errors
    /// The error of `getrandom`.
    pub(super) fn random() -> Result<Self, StoreError> {
        let mut bytes = [0; 16];
        let refused = |error: rustix::io::Errno| FileFault::new("getrandom", "a new store", 0, error.raw_os_error());
        rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty()).map_err(refused)?;
        Ok(Self(bytes))
    }
}

/// A block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockHeader {
    pub identity: Identity,
    pub generation: u32,
    pub sequence: u64,
    /// How many blocks at the start of the log were durable when this block was written.
    pub acked: u64,
    /// Whether the block is the last of its group of blocks, which recovery applies whole or not at all.
    pub last: bool,
}

/// Collects records into blocks.
#[derive(Debug, Default)]
pub(super) struct BlockWriter {
    /// Whole blocks, whose headers are still zeros.
    bytes: Vec<u8>,
    /// Bytes of records in each block.
    lengths: Vec<u32>,
}

impl BlockWriter {
    /// Appends a record.
    pub(super) fn push(&mut self, record: &LogRecord<'_>) {
        let room = self.lengths.last().map_or(0, |used| PAYLOAD - *used as usize);
        if record.length() > room {
            self.start_block();
        }
        let at = self.bytes.len() - BLOCK + HEADER;
        if let Some(used) = self.lengths.last_mut() {
            record.encode(&mut self.bytes[at + *used as usize..]);
            *used += record.length() as u32;
        }
    }

    fn start_block(&mut self) {
        self.bytes.resize(self.bytes.len() + BLOCK, 0);
        self.lengths.push(0);
    }

    /// Number of blocks so far; at least 1, because even a group without records takes a block.
    pub(super) fn blocks(&self) -> u64 {
        self.lengths.len().max(1) as u64
    }

    /// Total bytes of the records so far.
    pub(super) fn records(&self) -> u64 {
        self.lengths.iter().map(|length| u64::from(*length)).sum()
    }

    /// Writes the headers, and returns the blocks as one group, whose sequence numbers start with that of `first`.
    pub(super) fn finish(mut self, first: BlockHeader) -> Vec<u8> {
        if self.lengths.is_empty() {
            self.start_block();
        }
        let count = self.lengths.len();
        for (i, (block, length)) in self.bytes.chunks_mut(BLOCK).zip(&self.lengths).enumerate() {
            let header = BlockHeader { sequence: first.sequence + i as u64, last: i + 1 == count, ..first };
            header.encode(block, *length);
        }
        self.bytes
    }
}

impl BlockHeader {
    fn encode(&self, block: &mut [u8], length: u32) {
        let mut out = ByteWriter { bytes: block, at: 0 };
        out.put(&MAGIC);
        out.put(&VERSION.to_le_bytes());
        out.put(&self.generation.to_le_bytes());
        out.put(&[0; 4]);
        out.put(&(if self.last { GROUP_END } else { 0 }).to_le_bytes());
        out.put(&self.sequence.to_le_bytes());
        out.put(&self.acked.to_le_bytes());
        out.put(&length.to_le_bytes());
        out.put(&[0; 4]);
        out.put(&self.identity.0);
        let crc = checksum(block, CRC);
        block[CRC].copy_from_slice(&crc.to_le_bytes());
    }

    /// Decodes a block into its header and records; `None` if it is damaged, or no block of this format version.
    pub(super) fn decode(block: &[u8]) -> Option<(Self, &[u8])> {
        let mut input = ByteReader { bytes: block };
        let magic: [u8; 8] = input.take()?;
        let [version, generation, _, flags] = [input.u32()?, input.u32()?, input.u32()?, input.u32()?];
        let (sequence, acked, length, crc) = (input.u64()?, input.u64()?, input.u32()?, input.u32()?);
        let identity = Identity(input.take()?);
        // seeded: block_magic: magic == MAGIC => true
        // seeded: block_version: version == VERSION => true
        // seeded: block_crc: crc == checksum(block, CRC) => true
        let sound = magic == MAGIC && version == VERSION && crc == checksum(block, CRC);
        let records = block.get(HEADER..HEADER + length as usize).filter(|_| sound)?;
        Some((Self { identity, generation, sequence, acked, last: flags & GROUP_END != 0 }, records))
    }
}

/// Fails if the first block of a log, or a page of a superblock, was written by another program or in another version
/// of the format. Accepts zeros.
///
/// # Errors
/// [`StoreError::Foreign`], [`StoreError::Older`], [`StoreError::Newer`].
pub(super) fn check_format(file: StoreFile, magic: [u8; 8], block: &[u8]) -> Result<(), StoreError> {
    let mut input = ByteReader { bytes: block };
    let (first, version) = (input.take::<8>().unwrap_or_default(), input.u32().unwrap_or(0));
    match first {
        [0, 0, 0, 0, 0, 0, 0, 0] => Ok(()),
        // seeded: log_newer: version > VERSION => false
        _ if first == magic && version > VERSION => Err(StoreError::Newer { file, version }),
        // seeded: log_older: version < VERSION => false
        _ if first == magic && version < VERSION => Err(StoreError::Older { file, version }),
        _ if first == magic => Ok(()),
        // seeded: log_foreign: Err(StoreError::Foreign { file }) => Ok(())
        _ => Err(StoreError::Foreign { file }),
    }
}

/// The checksum of a block or page, of all its bytes but those at `crc`.
pub(super) fn checksum(block: &[u8], crc: std::ops::Range<usize>) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&block[..crc.start]);
    hasher.update(&block[crc.end..]);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::super::record::{MAX_META_BYTES, PieceEntry};
    use super::*;

    fn records() -> Vec<LogRecord<'static>> {
        let piece = |part| {
            LogRecord::Piece(PieceEntry {
                object: 1 << 40,
                part,
                slab: 7,
                page: 3,
                bytes: 65_536,
                crc: part.wrapping_mul(99),
            })
        };
        let meta = LogRecord::Meta { object: 5, meta: &[9; MAX_META_BYTES] };
        (0..300).map(piece).chain([meta, LogRecord::Removed { object: u64::MAX }]).collect()
    }

    #[test]
    fn records_come_back_as_they_were_put() {
        let mut writer = BlockWriter::default();
        records().iter().for_each(|record| writer.push(record));
        let blocks = writer.blocks();
        let first = BlockHeader { identity: Identity([3; 16]), generation: 2, sequence: 10, acked: 9, last: false };
        let bytes = writer.finish(first);
        assert_eq!(bytes.len() as u64, blocks * BLOCK as u64);
        let mut back = Vec::new();
        for (i, block) in bytes.chunks(BLOCK).enumerate() {
            let (header, mut records) = BlockHeader::decode(block).expect("whole");
            let last = i as u64 + 1 == blocks;
            assert_eq!(header, BlockHeader { sequence: 10 + i as u64, last, ..first });
            while let Some(record) = LogRecord::decode(&mut records) {
                back.push(record);
            }
            assert!(records.is_empty());
        }
        assert_eq!(back, records());
    }

    #[test]
    fn records_take_no_more_blocks_than_is_foreseen() {
        // The worst case of unused space in a block: after two records of this length, the largest record does not fit.
        let (half, largest) = ([7; 995], [7; MAX_META_BYTES]);
        for meta in [&half[..], &largest[..], &[]] {
            let (mut writer, mut bytes) = (BlockWriter::default(), 0);
            for object in 0..2000 {
                let meta = if object % 4 == 3 { &largest } else { meta };
                let record = LogRecord::Meta { object, meta };
                writer.push(&record);
                bytes += record.length() as u64;
                assert!(writer.blocks() <= blocks_for(bytes), "{} blocks of {bytes} bytes", writer.blocks());
            }
        }
    }

    #[test]
    fn a_block_with_any_bit_flipped_is_none() {
        let mut writer = BlockWriter::default();
        records().iter().take(3).for_each(|record| writer.push(record));
        let block = writer.finish(BlockHeader {
            identity: Identity([3; 16]),
            generation: 1,
            sequence: 0,
            acked: 0,
            last: false,
        });
        assert!(BlockHeader::decode(&block).is_some());
        for bit in 0..BLOCK * 8 {
            let mut block = block.clone();
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(BlockHeader::decode(&block).is_none(), "bit {bit}");
        }
    }

    /// Recovery reads the mirror where the first copy is bad, so every block must identify itself.
    #[test]
    fn a_whole_block_of_another_kind_or_version_is_none() {
        let block = BlockWriter::default().finish(BlockHeader {
            identity: Identity([3; 16]),
            generation: 1,
            sequence: 0,
            acked: 0,
            last: false,
        });
        for at in [0, MAGIC.len()] {
            let mut other = block.clone();
            other[at] += 1;
            let crc = checksum(&other, CRC);
            other[CRC].copy_from_slice(&crc.to_le_bytes());
            assert!(BlockHeader::decode(&other).is_none(), "byte {at}");
        }
    }

    #[test]
    fn other_programs_and_other_versions_are_told_apart() {
        let file = StoreFile::Log(1);
        let of_version = |version: u32| check_format(file, MAGIC, &[&MAGIC[..], &version.to_le_bytes()].concat());
        assert_eq!(check_format(file, MAGIC, &[0; BLOCK]), Ok(()));
        assert_eq!(check_format(file, MAGIC, b"\x7fELF\x02\x01\x01\x00........"), Err(StoreError::Foreign { file }));
        assert_eq!(of_version(VERSION), Ok(()));
        assert_eq!(of_version(VERSION + 1), Err(StoreError::Newer { file, version: VERSION + 1 }));
        assert_eq!(of_version(1), Err(StoreError::Older { file, version: 1 }));
    }
}
