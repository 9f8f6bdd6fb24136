//! The format of records: what a log says of objects. All numbers are little-endian.
//!
//! ```text
//! piece    1 | object 8 | part 4 | slab 4 | page 4 | bytes 4 | crc 4
//! meta     2 | object 8 | length 2 | bytes
//! removed  3 | object 8
//! ```
//!
//! Promises upward: decoding accepts any bytes, and rejects those that are no record.

/// The most bytes of an object's meta data: its record must fit into a block.
pub const MAX_META_BYTES: usize = 1024;

/// The most parts of an object: 2^24, which are 64 TiB in parts of 4 MiB.
pub const MAX_PARTS: u32 = 1 << 24;

/// Bytes of a piece's record; `META_BYTES`: those of a meta data record without the meta data.
pub(super) const PIECE_BYTES: u64 = 1 + 8 + 5 * 4;
pub(super) const META_BYTES: u64 = 1 + 8 + 2;

/// Bytes of the largest record.
pub(super) const MAX_RECORD_BYTES: usize = META_BYTES as usize + MAX_META_BYTES;

/// A record of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LogRecord<'a> {
    /// Where the bytes of an object's part lie.
    Piece(PieceEntry),
    /// A new object with this meta data; replaces any object of that number.
    Meta { object: u64, meta: &'a [u8] },
    /// The object is removed.
    Removed { object: u64 },
}

/// Where a part of an object lies, and its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PieceEntry {
    pub object: u64,
    pub part: u32,
    pub slab: u32,
    pub page: u32,
    pub bytes: u32,
    pub crc: u32,
}

impl<'a> LogRecord<'a> {
    /// Bytes of the encoded record.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Piece(_) => PIECE_BYTES as usize,
            Self::Meta { meta, .. } => META_BYTES as usize + meta.len(),
            Self::Removed { .. } => 1 + 8,
        }
    }

    pub(super) fn encode(&self, bytes: &mut [u8]) {
        let mut out = ByteWriter { bytes, at: 0 };
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
            Self::Removed { object } => {
                out.put(&[3]);
                out.put(&object.to_le_bytes());
            }
        }
    }

    /// Decodes the first record and advances past it. `None` at the end, or for bytes that are no record.
    pub(super) fn decode(bytes: &mut &'a [u8]) -> Option<Self> {
        let mut input = ByteReader { bytes };
        let [tag] = input.take()?;
        let object = input.u64()?;
        let record = match tag {
            1 => {
                let [part, slab, page, bytes, crc] =
                    [input.u32()?, input.u32()?, input.u32()?, input.u32()?, input.u32()?];
                Self::Piece(PieceEntry { object, part, slab, page, bytes, crc })
            }
            2 => {
                let length = u16::from_le_bytes(input.take()?);
                let (meta, rest) = input.bytes.split_at_checked(length.into())?;
                input.bytes = rest;
                Self::Meta { object, meta }
            }
            3 => Self::Removed { object },
            // seeded: record_tag: return None => Self::Removed { object }
            _ => return None,
        };
        *bytes = input.bytes;
        Some(record)
    }
}

/// Writes bytes to a slice, one run after the other.
pub(super) struct ByteWriter<'a> {
    pub bytes: &'a mut [u8],
    pub at: usize,
}

impl ByteWriter<'_> {
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }
}

/// Takes bytes from the front of a slice.
pub(super) struct ByteReader<'a> {
    pub bytes: &'a [u8],
}

impl ByteReader<'_> {
    pub(super) fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.bytes.split_first_chunk()?;
        self.bytes = rest;
        Some(*first)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}
