//! Errors of the firmware heap: types of this crate around those of the core, so that `defmt` can print them.
//!
//! Promises upward: each message says what to do about the error. Nothing here allocates.
//! Asks from below: the core's errors.

use core::fmt;
use core::mem::MaybeUninit;

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

/// Memory that a heap refused, and why.
///
/// The memory is unchanged: offer it to another heap, or use it otherwise.
///
/// # Example
/// ```
/// # #[cfg(feature = "critical-section")] {
/// use terrace_embedded::{Bounded, FirmwareHeap, InitError, RefusedMemory, RegionError, StaticMemory};
/// static HEAP: FirmwareHeap = FirmwareHeap::empty(); // one region
/// static OTHER: FirmwareHeap = FirmwareHeap::empty();
/// static FIRST: StaticMemory<4096> = StaticMemory::new();
/// static SECOND: StaticMemory<8192> = StaticMemory::new();
///
/// HEAP.add_memory(FIRST.take().expect("the first time"))?;
/// let refused = HEAP.add_memory(SECOND.take().expect("the first time")).expect_err("a second region");
/// assert_eq!(refused.error, InitError::Region(RegionError::TooMany));
/// OTHER.add_memory(refused.memory)?;
/// # }
/// # Ok::<(), terrace_embedded::InitError>(())
/// ```
pub struct RefusedMemory {
    /// Why.
    pub error: InitError,
    /// The memory, still the caller's.
    pub memory: &'static mut [MaybeUninit<u8>],
}

impl From<RefusedMemory> for InitError {
    fn from(refused: RefusedMemory) -> Self {
        refused.error
    }
}

impl fmt::Debug for RefusedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RefusedMemory").field("error", &self.error).field("bytes", &self.memory.len()).finish()
    }
}

impl fmt::Display for RefusedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl core::error::Error for RefusedMemory {}

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
