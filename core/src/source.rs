//! Where regions come from and go back to.
//!
//! Promises upward: one trait for a static array, `mmap`, a driver, a file, another allocator.
//! Asks from below: nothing. An allocator is itself a source, so allocators nest without glue.
//!
//! Two kinds of source: *fixed* ones give whole regions ([`take`](Source::take)); *growing* ones also lend
//! address space ([`reserve`](Source::reserve)) under which pages are mapped, unmapped and moved.

use core::fmt;

/// One region of a source: `bytes` bytes at `base`. `id` is the source's own name for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The source's name for the region; never used twice while the region lives.
    pub id: u64,
    /// First address.
    pub base: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Why a source refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// Its capacity is spent; `available` bytes are left.
    OutOfMemory {
        /// Bytes that could still be had.
        available: u64,
    },
    /// This source cannot do that (a fixed one asked for pages).
    Unsupported,
    /// The system or driver failed with this code.
    Failed {
        /// The system's own code, 0 when it has none.
        code: i32,
    },
    /// The caller broke the source's rules; the text says which.
    Misuse(&'static str),
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory { available } => write!(f, "the source is out of memory: {available} bytes left"),
            Self::Unsupported => write!(f, "the source cannot map pages; use take and give_back"),
            Self::Failed { code } => write!(f, "the source failed with code {code}"),
            Self::Misuse(rule) => write!(f, "misuse of the source: {rule}"),
        }
    }
}

impl core::error::Error for SourceError {}

/// What a source has given so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The most it gives, 0 when not limited.
    pub capacity: u64,
    /// Bytes given and not returned.
    pub reserved: u64,
    /// The most ever given at once.
    pub peak_reserved: u64,
    /// Calls: one take, give-back, map, unmap or move of a contiguous range. Reserving address space is none.
    pub calls: u64,
    /// Handles made: one a region, one a page.
    pub handles: u64,
}

/// Where regions come from.
pub trait Source {
    /// Takes a region of at least `bytes` bytes, all of it usable. One call.
    ///
    /// # Errors
    /// [`SourceError`]; nothing is taken then.
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError>;

    /// Gives a region back, whole. One call (for a growing region: one for each mapped range in it).
    ///
    /// # Errors
    /// [`SourceError::Misuse`] when the region is not out.
    fn give_back(&mut self, region: Region) -> Result<(), SourceError>;

    /// Bytes of a page of a growing source, a power of two; 0 for a fixed source.
    fn page_bytes(&self) -> u64 {
        0
    }

    /// Lends address space without memory under it. No call is counted.
    ///
    /// # Errors
    /// [`SourceError::Unsupported`] for fixed sources.
    fn reserve(&mut self, bytes: u64) -> Result<Region, SourceError> {
        let _ = bytes;
        Err(SourceError::Unsupported)
    }

    /// Puts fresh pages under `[offset, offset + bytes)` of a reserved region; all of it must be unmapped. One call.
    ///
    /// # Errors
    /// [`SourceError`]; nothing is mapped then.
    fn map(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        let _ = (region, offset, bytes);
        Err(SourceError::Unsupported)
    }

    /// Takes the pages under `[offset, offset + bytes)` away; all of it must be mapped. One call.
    ///
    /// # Errors
    /// [`SourceError`]; nothing is unmapped then.
    fn unmap(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        let _ = (region, offset, bytes);
        Err(SourceError::Unsupported)
    }

    /// Moves the pages under `[from, from + bytes)` to `[to, to + bytes)` (contents undefined afterwards):
    /// the first range must be mapped, the second not. One call.
    ///
    /// # Errors
    /// [`SourceError`]; nothing is moved then.
    fn shift(&mut self, region: Region, from: u64, to: u64, bytes: u64) -> Result<(), SourceError> {
        let _ = (region, from, to, bytes);
        Err(SourceError::Unsupported)
    }

    /// Counters.
    fn usage(&self) -> Usage;
}
