//! Why a lease is refused.

use core::fmt;

/// Why a call failed. The word is unchanged.
///
/// But for WANTED: see [`LeaseWord::close`](super::LeaseWord::close).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseError {
    /// The bytes are being moved, or the buffer is not resident.
    Closed,
    /// Another holder has a lease that excludes the call.
    Busy,
    /// Only brief leases exclude the call: their holders release them without waiting.
    Brief,
    /// The bytes are not counted as pinned yet: count them, then try again.
    Uncounted,
    /// There are 2^16 - 1 shared leases already.
    TooMany,
}

impl fmt::Display for LeaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the bytes are being moved or are not here: wait until they are, then try again",
            Self::Busy => "another holder has a lease that excludes this one: wait until it is released",
            Self::Brief => "a call or a copy has a brief lease that excludes this one: wait for its end",
            Self::Uncounted => "the bytes are not counted as pinned yet: count them, then try again",
            Self::TooMany => "there are 65535 shared leases of this buffer: give some back",
        })
    }
}

impl core::error::Error for LeaseError {}
