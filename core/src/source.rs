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
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Zeroable))]
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
pub struct SourceUsage {
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

    /// Fills memory of this source with zeros. `address` and `bytes` name usable memory.
    ///
    /// # Errors
    /// [`SourceError::Unsupported`] where the source cannot write to its memory.
    fn zero(&mut self, address: u64, bytes: u64) -> Result<(), SourceError> {
        let _ = (address, bytes);
        Err(SourceError::Unsupported)
    }

    /// Counters.
    fn usage(&self) -> SourceUsage;
}

/// A source of one region: a static array, or any memory the caller has.
///
/// Gives the whole of it once, in pieces of any size from the low end; what is given back last is given out first.
///
/// # Example
/// ```
/// use terrace_core::{FixedSource, Source};
/// let mut memory = [0u64; 512];
/// let mut source = FixedSource::new(&mut memory);
/// let region = source.take(1000)?;
/// assert!(source.take(4096).is_err(), "not that much is left");
/// source.give_back(region)?;
/// # Ok::<(), terrace_core::SourceError>(())
/// ```
#[derive(Debug)]
pub struct FixedSource<'a> {
    memory: &'a mut [u64],
    /// The first whole line.
    base: u64,
    /// Bytes given; regions form a stack.
    used: u64,
    /// Regions out, whatever their order; when none is, everything can be given again.
    out: u64,
    usage: SourceUsage,
}

/// Regions of a [`FixedSource`] source start at, and are multiples of, a cache line.
const LINE: u64 = 64;

impl<'a> FixedSource<'a> {
    /// A source over memory: what lies in it at whole lines of 64 bytes.
    pub fn new(memory: &'a mut [u64]) -> Self {
        let first = memory.as_ptr().addr() as u64;
        let base = first.next_multiple_of(LINE);
        let capacity = (first + size_of_val(memory) as u64).saturating_sub(base) & !(LINE - 1);
        Self { memory, base, used: 0, out: 0, usage: SourceUsage { capacity, ..SourceUsage::default() } }
    }
}

impl Source for FixedSource<'_> {
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError> {
        let available = self.usage.capacity - self.used;
        let bytes = bytes.checked_next_multiple_of(LINE).filter(|&bytes| bytes > 0 && bytes <= available);
        let bytes = bytes.ok_or(SourceError::OutOfMemory { available })?;
        let region = Region { id: self.used, base: self.base + self.used, bytes };
        self.used += bytes;
        self.out += 1;
        self.usage.reserved += bytes;
        self.usage.peak_reserved = self.usage.peak_reserved.max(self.usage.reserved);
        self.usage.calls += 1;
        self.usage.handles += 1;
        Ok(region)
    }

    /// The last region given becomes free at once; others when all are back.
    fn give_back(&mut self, region: Region) -> Result<(), SourceError> {
        let inside = region.base == self.base + region.id && region.id + region.bytes <= self.used;
        if self.out == 0 || !inside || region.bytes > self.usage.reserved {
            return Err(SourceError::Misuse("a region is given back once, to the source it came from"));
        }
        self.out -= 1;
        self.usage.reserved -= region.bytes;
        self.usage.calls += 1;
        if self.out == 0 {
            self.used = 0;
        } else if region.id + region.bytes == self.used {
            self.used = region.id;
        }
        Ok(())
    }

    fn zero(&mut self, address: u64, bytes: u64) -> Result<(), SourceError> {
        let outside = SourceError::Misuse("only memory of this source can be zeroed");
        let first = self.memory.as_ptr().addr() as u64;
        let from = address.checked_sub(first).ok_or(outside)? / 8;
        let words = self.memory.get_mut(from as usize..(from + bytes.div_ceil(8)) as usize).ok_or(outside)?;
        words.fill(0);
        Ok(())
    }

    fn usage(&self) -> SourceUsage {
        self.usage
    }
}
