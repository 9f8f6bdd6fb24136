//! What goes wrong with a ring, and what to do about it.

use core::fmt;

/// A refused call. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RingError {
    /// Every slot holds a message that was not read yet.
    Full,
    /// Every message was read.
    Empty,
    /// A message, or a part of one, that is longer than what it is to go into. It stays where it is.
    TooLong {
        /// Bytes of it; of a part: where it would end.
        bytes: usize,
        /// Bytes there are.
        max: usize,
    },
    /// The other side closed the ring, and nothing is left to be read; or this side did.
    Closed,
    /// The ring has a producer, or a consumer, already.
    Taken,
    /// The layout has a rule, and this breaks it.
    BadLayout(&'static str),
    /// The header is impossible: other code wrote to the memory, or it is no ring.
    Corrupt {
        /// What is wrong, in words.
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

/// A value in shared memory that cannot be.
pub(super) const fn corrupt(what: &'static str, found: u32) -> RingError {
    RingError::Corrupt { what, found }
}
