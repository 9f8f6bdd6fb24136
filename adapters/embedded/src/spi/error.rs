//! Errors of memory behind a bus.
//!
//! Promises upward: the bus's own error is passed on unchanged; the message of every other error says what to do.
//! Asks from below: the core's errors.

use core::fmt;

use terrace_core::{AllocError, FreeError};

/// Why an access to a chip failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpiError<E> {
    /// The bus failed. Try again.
    Bus(E),
    /// The access reaches beyond the chip. Nothing was sent.
    Outside {
        /// First address of the access.
        address: u32,
        /// Length of the access in bytes.
        bytes: usize,
        /// Capacity of the chip in bytes.
        capacity: u32,
    },
    /// The mode register holds another value than was written to it.
    WrongMode {
        /// The value written to the mode register.
        written: u8,
        /// The value read back from the mode register.
        found: u8,
    },
    /// The chip's "known good die" byte is wrong.
    WrongId {
        /// Value of the "known good die" byte on every good chip.
        expected: u8,
        /// Value of the "known good die" byte that was read.
        found: u8,
    },
    /// A flash reports a capacity below 2^16 or above 2^24 bytes.
    ///
    /// Either no chip answers, or the chip needs more than three address bytes.
    WrongCapacity {
        /// Base-2 logarithm of the capacity, as read from the chip.
        log2: u8,
    },
    /// A flash stayed busy until the driver gave up polling.
    Busy {
        /// Milliseconds that the driver polled.
        ms: u32,
    },
    /// A page of a flash differs from what was programmed, although the flash reported success.
    WornOut {
        /// First address of the page that differs.
        address: u32,
    },
    /// The settings have a burst of 0 bytes, or a capacity above 2^24 bytes.
    BadSettings,
}

impl<E: fmt::Debug> fmt::Display for SpiError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bus(error) => write!(f, "the SPI bus failed ({error:?}); try again"),
            Self::Outside { address, bytes, capacity } => {
                write!(f, "{bytes} bytes at {address:#x} do not lie on a chip of {capacity} bytes")
            }
            Self::WrongMode { written, found } => write!(
                f,
                "mode register {found:#04x} after {written:#04x} was written; check the wiring and the chip's type"
            ),
            Self::WrongId { expected, found } => write!(
                f,
                "the chip answers {found:#04x} where a good one answers {expected:#04x}; \
                 check the wiring and that the bus runs at no more than 33 MHz while it is opened"
            ),
            Self::WrongCapacity { log2 } => {
                write!(f, "the flash says that it has 2^{log2} bytes, not 2^16 to 2^24; check the wiring and its type")
            }
            Self::Busy { ms } => write!(f, "the flash is still busy after {ms} ms; check its supply"),
            Self::WornOut { address } => {
                write!(f, "the flash does not hold what was written at {address:#x}: worn out, or write-protected")
            }
            Self::BadSettings => write!(f, "a burst needs at least one byte, and the capacity at most 2^24"),
        }
    }
}

impl<E: fmt::Debug> core::error::Error for SpiError<E> {}

/// Why a call of a region failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError<E> {
    /// The block is not live, or belongs to another region. Nothing was sent to the chip.
    NotLive(FreeError),
    /// The access reaches beyond the block. Nothing was sent to the chip.
    OutsideBlock {
        /// Offset in the block at which the access begins.
        offset: u64,
        /// Length of the access in bytes.
        bytes: usize,
        /// Size of the block in bytes.
        block: u64,
    },
    /// No free block is large enough.
    Alloc(AllocError),
    /// The access to the chip failed.
    Memory(SpiError<E>),
}

impl<E: fmt::Debug> fmt::Display for AccessError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLive(error) => error.fmt(f),
            Self::OutsideBlock { offset, bytes, block } => {
                write!(f, "{bytes} bytes at offset {offset} do not lie in a block of {block} bytes")
            }
            Self::Alloc(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
        }
    }
}

impl<E: fmt::Debug> core::error::Error for AccessError<E> {}

impl<E> From<FreeError> for AccessError<E> {
    fn from(error: FreeError) -> Self {
        Self::NotLive(error)
    }
}

impl<E> From<AllocError> for AccessError<E> {
    fn from(error: AllocError) -> Self {
        Self::Alloc(error)
    }
}

impl<E> From<SpiError<E>> for AccessError<E> {
    fn from(error: SpiError<E>) -> Self {
        Self::Memory(error)
    }
}
