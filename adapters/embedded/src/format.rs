//! `defmt::Format` for errors that wrap types of the core, which does not depend on `defmt`.
//!
//! Promises upward: what `Display` says, which the target sends as an index into a table on the host.
//! Asks from below: the logger that the firmware links.

use defmt::{Format, Formatter, write};
use terrace_core::FreeError;
use terrace_core::heap::RegionError;

use crate::error::{BadFree, InitError, RefusedMemory};
use crate::free_queue::{DeferredFree, QueueFull};

impl Format for InitError {
    fn format(&self, f: Formatter<'_>) {
        match self {
            Self::Null => write!(f, "the region's address is null; check the linker script's symbol"),
            Self::Taken => write!(f, "this arena was given to a heap before; call init once"),
            Self::Region(RegionError::TooSmall) => {
                write!(f, "too small: nothing would be left beside the region's tables")
            }
            Self::Region(RegionError::TooLarge { max }) => {
                write!(
                    f,
                    "too large: a region of this heap has at most {=usize} bytes; add it in parts, or use wider records",
                    max
                );
            }
            Self::Region(RegionError::Overlaps) => write!(f, "overlaps a region that this heap has already"),
            Self::Region(RegionError::TooMany) => {
                write!(f, "no room for another region; give the heap a larger REGIONS")
            }
        }
    }
}

impl Format for RefusedMemory {
    fn format(&self, f: Formatter<'_>) {
        self.error.format(f);
    }
}

impl Format for BadFree {
    fn format(&self, f: Formatter<'_>) {
        match self.0 {
            FreeError::Stale { address } => {
                write!(f, "double free: the block at {=u64:#x} is no longer live", address);
            }
            FreeError::WrongLayout { address } => {
                write!(
                    f,
                    "wrong layout: the block at {=u64:#x} is live, and has another size than that given",
                    address
                );
            }
            FreeError::Foreign { address } => {
                write!(f, "foreign block: {=u64:#x} was not given by this allocator", address);
            }
        }
    }
}

impl Format for QueueFull {
    fn format(&self, f: Formatter<'_>) {
        write!(f, "the queue of frees is full: {}", self.0);
    }
}

impl Format for DeferredFree {
    fn format(&self, f: Formatter<'_>) {
        let (block, layout) = self.parts();
        write!(f, "{=usize} bytes at {=usize:#x}", layout.size(), block.addr().get());
    }
}
