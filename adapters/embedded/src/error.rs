//! Errors of the firmware heap: types of this crate around those of the core, so that `defmt` can print them.
//!
//! Promises upward: each message says what to do about the error. Nothing here allocates.
//! Asks from below: the core's errors.

use core::fmt;

use terrace_core::FreeError;
use terrace_core::heap::RegionError;

/// Why a heap refused a region. The heap is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InitError {
    /// The address is null.
    Null,
    /// This [`StaticMemory`](crate::StaticMemory) was handed out before.
    Taken,
    /// The region itself is unsuitable.
    Region(RegionError),
}

impl From<RegionError> for InitError {
    fn from(error: RegionError) -> Self {
        Self::Region(error)
    }
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => write!(f, "the region's address is null; check the linker script's symbol"),
            Self::Taken => write!(f, "this arena was given to a heap before; call init once"),
            Self::Region(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for InitError {}

/// A refused free or resize: the argument of the hook for bad frees.
///
/// The heap is unchanged. If the pointer was that of a live block, a refused free leaks the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadFree(pub FreeError);

impl fmt::Display for BadFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl core::error::Error for BadFree {}
