//! Bounded reads and writes of varints and texts, and the errors of encoding and decoding.
//!
//! Promises upward: no read or write outside the slice; every failure typed.
//! Asks from below: nothing.

use core::fmt;

/// Why a record cannot be encoded. The encoder is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The record needs more room than `out` has; give [`RECORD_MAX`](super::RECORD_MAX) bytes.
    NoSpace,
    /// The alignment is neither 0 nor a power of two.
    BadAlign {
        /// The alignment given.
        align: u64,
    },
    /// The text is longer than [`TEXT_MAX`](super::TEXT_MAX).
    TextTooLong {
        /// The length of the text, in bytes.
        bytes: usize,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSpace => write!(f, "no space left for the record; give {} bytes", super::RECORD_MAX),
            Self::BadAlign { align } => write!(f, "alignment {align} is not a power of two"),
            Self::TextTooLong { bytes } => {
                write!(f, "a text of {bytes} bytes; shorten it to {}", super::TEXT_MAX)
            }
        }
    }
}

impl core::error::Error for EncodeError {}

/// Why bytes cannot be decoded as a record. The decoder is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The input ends inside a record: pass more bytes, or the recording was cut short.
    Short,
    /// The first byte names no kind of record of this version.
    BadKind(u8),
    /// A number is too large for the field of this name.
    BadField(&'static str),
    /// A number takes more than 64 bits.
    LongNumber,
    /// A text is longer than [`TEXT_MAX`](super::TEXT_MAX).
    LongText,
    /// A text is not UTF-8.
    NotUtf8,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short => write!(f, "the record is cut short"),
            Self::BadKind(head) => write!(f, "{head:#04x} starts no record of version {}", super::VERSION),
            Self::BadField(field) => write!(f, "the number in `{field}` is too large"),
            Self::LongNumber => write!(f, "a number has more than 64 bits"),
            Self::LongText => write!(f, "a text is longer than {} bytes", super::TEXT_MAX),
            Self::NotUtf8 => write!(f, "a text is not UTF-8"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Maps small differences of either sign to small numbers: 0, -1, 1, -2 to 0, 1, 2, 3.
pub(super) fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ ((difference as i64 >> 63) as u64)
}

/// The inverse of [`zigzag`].
pub(super) fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// A slice that is written from front to back.
pub(super) struct Output<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> Output<'a> {
    pub(super) fn new(out: &'a mut [u8]) -> Self {
        Self { out, len: 0 }
    }

    /// Number of bytes written so far.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn byte(&mut self, byte: u8) -> Result<(), EncodeError> {
        self.slice(&[byte])
    }

    pub(super) fn slice(&mut self, bytes: &[u8]) -> Result<(), EncodeError> {
        let end = self.len + bytes.len();
        self.out.get_mut(self.len..end).ok_or(EncodeError::NoSpace)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// Writes a LEB128 number: 7 bits a byte, low bits first; the high bit is set in all bytes but the last.
    pub(super) fn varint(&mut self, mut number: u64) -> Result<(), EncodeError> {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80)?;
            number >>= 7;
        }
        self.byte(number as u8)
    }
}

/// A slice that is read from front to back.
pub(super) struct Input<'a> {
    input: &'a [u8],
    used: usize,
}

impl<'a> Input<'a> {
    pub(super) fn new(input: &'a [u8]) -> Self {
        Self { input, used: 0 }
    }

    /// Number of bytes read so far.
    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn byte(&mut self) -> Result<u8, DecodeError> {
        let byte = *self.input.get(self.used).ok_or(DecodeError::Short)?;
        self.used += 1;
        Ok(byte)
    }

    pub(super) fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut number = 0;
        // 64 bits are nine bytes of 7 bits and one of 1 bit, at shift 63.
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                return Err(DecodeError::LongNumber);
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(DecodeError::LongNumber)
    }

    /// Reads a length of at most `max`, then that many bytes of UTF-8.
    pub(super) fn text(&mut self, max: usize) -> Result<&'a str, DecodeError> {
        let len = usize::try_from(self.varint()?).ok().filter(|&len| len <= max).ok_or(DecodeError::LongText)?;
        let bytes = self.input.get(self.used..self.used + len).ok_or(DecodeError::Short)?;
        self.used += len;
        core::str::from_utf8(bytes).map_err(|_| DecodeError::NotUtf8)
    }
}
