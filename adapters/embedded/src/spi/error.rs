//! What goes wrong with memory behind a bus.
//!
//! Promises upward: a bus's own error is passed on as it is; each other one says what to do.
//! Asks from below: the core's errors.

use core::fmt;

use terrace_core::{AllocError, FreeError};

/// A chip did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpiError<E> {
    /// The bus failed. Try again.
    Bus(E),
    /// Not all of it lies on the chip. Nothing was sent.
    Outside {
        /// Where it starts.
        address: u32,
        /// How long it is.
        bytes: usize,
        /// Bytes of the chip.
        capacity: u32,
    },
    /// The mode register does not hold what was written to it.
    WrongMode {
        /// What was written.
        written: u8,
        /// What was read back.
        found: u8,
    },
    /// The chip's "known good die" byte is not what every good chip answers.
    WrongId {
        /// What every good chip answers.
        expected: u8,
        /// What was read.
        found: u8,
    },
    /// A flash says that it has 2^log2 bytes: nothing answers, or it is none that three address bytes reach.
    WrongCapacity {
        /// What was read.
        log2: u8,
    },
    /// A flash is still busy after so long.
    Busy {
        /// Milliseconds.
        ms: u32,
    },
    /// A flash does not hold what was written to it, after it said that it was done.
    WornOut {
        /// The page.
        address: u32,
    },
    /// Settings with which no byte would ever be moved: an empty burst, or a capacity that three address bytes cannot say.
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

/// A region's call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessError<E> {
    /// The block is not live, or not of this region. Nothing was sent.
    NotLive(FreeError),
    /// Not all of it lies in the block. Nothing was sent.
    OutsideBlock {
        /// Where in the block it starts.
        offset: u64,
        /// How long it is.
        bytes: usize,
        /// Bytes of the block.
        block: u64,
    },
    /// No block of this size can be had.
    Alloc(AllocError),
    /// The chip.
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
