//! Errors of a ring, with what to do about them.

use core::fmt;

/// Why a call of a ring failed. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RingError {
    /// Every slot has a message that was not read yet.
    Full,
    /// All messages have been read.
    Empty,
    /// A message, or a part of one, does not fit into its destination. Nothing was copied.
    TooLong {
        /// Length of the message in bytes; for a part, the offset of its end.
        bytes: usize,
        /// Length of the destination in bytes.
        max: usize,
    },
    /// The other side has closed the ring, and no message is left to read; or this side has closed it.
    Closed,
    /// The ring already has an endpoint of this kind: a producer or a consumer.
    Taken,
    /// The layout breaks the rule that the text states.
    BadLayout(&'static str),
    /// The header is impossible: other code wrote to the memory, or the memory has no ring.
    Corrupt {
        /// What is wrong.
        what: &'static str,
        /// The value that was found.
        found: u32,
    },
}

impl fmt::Display for RingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => write!(f, "the ring is full: let the consumer read, or give the ring more slots"),
            Self::Empty => write!(f, "the ring is empty: nothing was sent yet"),
            Self::TooLong { bytes, max } => {
                write!(f, "too long: {bytes} bytes where there is room for {max}; send less at once, or lend more")
            }
            Self::Closed => write!(f, "the ring is closed"),
            Self::Taken => write!(f, "the ring has one already: drop the other producer or consumer first"),
            Self::BadLayout(rule) => write!(f, "bad layout of a ring: {rule}"),
            Self::Corrupt { what, found } => {
                write!(f, "corrupt ring: {what} (found {found:#x}); make a new ring, and mend who writes to it")
            }
        }
    }
}

impl core::error::Error for RingError {}

/// The error for an impossible value in shared memory.
pub(super) const fn corrupt(what: &'static str, found: u32) -> RingError {
    RingError::Corrupt { what, found }
}
