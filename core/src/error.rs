//! Errors of allocators, with what to do about them.
//!
//! Promises upward: every error has the request and the obstacle; nothing here allocates.
//! Asks from below: nothing.

use core::fmt;

/// Why an allocation, a resize or a map failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum Cause {
    /// No free block is large enough, and the source has no more memory.
    OutOfMemory,
    /// No record is left to describe a block, though memory may be free: lend more slots.
    OutOfSlots,
    /// The request can never be met: larger than the whole capacity or than offsets can express.
    TooLarge,
    /// Zero bytes, or an alignment that is not a power of two.
    BadRequest,
    /// The block cannot grow in place: the memory after it is not free, or not enough.
    NoRoom,
    /// The block is not live: it was freed before, or is from another allocator.
    NotLive,
    /// The request would exceed a cap (a limit, a tenant's share).
    OverLimit,
    /// The source failed for a reason of its own (a driver error, an injected fault).
    SourceFailed,
}

/// Why an allocation or resize failed: the cause, the request, and the largest free block.
///
/// # Example
/// ```
/// use terrace_core::{AllocError, Cause};
/// let error = AllocError { cause: Cause::OutOfMemory, asked: 4096, largest_free: 1024 };
/// assert_eq!(
///     error.to_string(),
///     "out of memory: asked for 4096 bytes, the largest free block has 1024; \
///      free something, raise the capacity, or ask for less"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocError {
    /// The cause.
    pub cause: Cause,
    /// Bytes requested.
    pub asked: u64,
    /// Bytes of the largest free block when the call failed (0 when nothing is free or it is not known).
    pub largest_free: u64,
}

impl AllocError {
    /// An error whose `largest_free` is not known or does not matter.
    pub const fn new(cause: Cause, asked: u64) -> Self {
        Self { cause, asked, largest_free: 0 }
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let asked = self.asked;
        match self.cause {
            Cause::OutOfMemory => write!(
                f,
                "out of memory: asked for {asked} bytes, the largest free block has {}; \
                 free something, raise the capacity, or ask for less",
                self.largest_free
            ),
            Cause::OutOfSlots => {
                write!(f, "out of slots: no record left to describe a block of {asked} bytes; lend more slots")
            }
            Cause::TooLarge => {
                write!(f, "too large: {asked} bytes can never fit here; raise the capacity or the granule")
            }
            Cause::BadRequest => {
                write!(f, "bad request: {asked} bytes; the size must not be 0 and the alignment a power of two")
            }
            Cause::NoRoom => {
                write!(f, "no room: the block cannot become {asked} bytes in place; allocate, copy and free")
            }
            Cause::NotLive => write!(f, "not live: the block was freed before or came from another allocator"),
            Cause::OverLimit => {
                write!(f, "over the limit: {asked} bytes would pass the cap; free something or raise the cap")
            }
            Cause::SourceFailed => write!(f, "the source failed while {asked} bytes were asked for; see its own error"),
        }
    }
}

impl core::error::Error for AllocError {}

/// Why a free was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeError {
    /// The block is not live: it was freed before, and its record may describe another block now.
    Stale {
        /// Address in the refused handle.
        address: u64,
    },
    /// A live block starts at the address, and has another size than it was freed with. Found by the checked heap alone.
    WrongLayout {
        /// Address of the block.
        address: u64,
    },
    /// This allocator never issued the handle.
    Foreign {
        /// Address in the refused handle.
        address: u64,
    },
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale { address } => write!(f, "double free: the block at {address:#x} is no longer live"),
            Self::WrongLayout { address } => {
                write!(f, "wrong layout: the block at {address:#x} is live, and has another size than that given")
            }
            Self::Foreign { address } => write!(f, "foreign block: {address:#x} was not given by this allocator"),
        }
    }
}

impl core::error::Error for FreeError {}

/// An invariant that does not hold, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant, as documented at the fields that it is about.
    pub clause: &'static str,
    /// The slot, bin or address at which it is violated.
    pub at: u64,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant broken at {:#x}: {}", self.at, self.clause)
    }
}

impl core::error::Error for Violation {}

/// `Ok` if `holds`, else the violation of `clause` at a slot, bin or address.
///
/// For the `check` methods of allocators.
///
/// # Errors
/// The [`Violation`].
///
/// # Example
/// ```
/// use terrace_core::error::ensure;
/// assert!(ensure(true, "live <= capacity", 3_u32).is_ok());
/// assert_eq!(ensure(false, "live <= capacity", 3_u32).unwrap_err().at, 3);
/// ```
pub fn ensure(holds: bool, clause: &'static str, at: impl TryInto<u64>) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { clause, at: at.try_into().unwrap_or(u64::MAX) }) }
}
