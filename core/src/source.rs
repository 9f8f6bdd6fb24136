//! Sources of memory for allocators.
//!
//! Promises upward: one trait for a static array, `mmap`, a driver, a file, another allocator.
//! Asks from below: nothing.
//!
//! There are two kinds. A *fixed* source gives whole regions ([`take`](Source::take)); a *growing* source also reserves
//! address space ([`reserve`](Source::reserve)), in which the caller maps, unmaps and moves pages.

use core::fmt;

/// A region of a source: `bytes` bytes at `base`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "bytemuck", derive(bytemuck::Zeroable))]
pub struct Region {
    /// The source's number of the region, unique among the regions that are taken.
    pub id: u64,
    /// First address of the region.
    pub base: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Why a call of a source failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceError {
    /// The capacity of the source is exhausted; `available` bytes are left.
    OutOfMemory {
        /// Bytes that the source can still provide.
        available: u64,
    },
    /// The source does not support the call (pages of a fixed source, for example).
    Unsupported,
    /// The system or driver failed with this code.
    Failed {
        /// The system's own code, 0 when it has none.
        code: i32,
    },
    /// The caller broke a rule of the source; the text says which.
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

/// The counters of a source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceUsage {
    /// Maximum bytes that the source provides at once, 0 when not limited.
    pub capacity: u64,
    /// Bytes taken from the source and not returned.
    pub reserved: u64,
    /// The maximum of `reserved` so far.
    pub peak_reserved: u64,
    /// Number of calls that took or returned a region, or mapped, unmapped or moved a range. Reserving is not counted.
    ///
    /// A source that works a driver counts the driver's calls for these, of which mapping or moving a range takes several.
    pub calls: u64,
    /// Number of handles created: one for each region, one or more for each range that is mapped.
    pub handles: u64,
}

/// A source of memory: whole regions, or pages in reserved address space.
pub trait Source {
    /// Takes a region of at least `bytes` usable bytes. Counts as one call.
    ///
    /// # Errors
    /// [`SourceError`]; after an error nothing is taken.
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError>;

    /// Returns a whole region. Counts as one call (for reserved address space, as one for each mapped range in it).
    ///
    /// # Errors
    /// [`SourceError::Misuse`] when the region is not taken.
    fn give_back(&mut self, region: Region) -> Result<(), SourceError>;

    /// Bytes of a page of a growing source, a power of two; 0 for a fixed source.
    fn page_bytes(&self) -> u64 {
        0
    }

    /// Finds what one call could unmap or move of the mapped range `[offset, offset + bytes)`: its first run of whole handles.
    ///
    /// The run ends once it has `enough` bytes, and has at most `most`, which may be no handle's size. Returns its offset and bytes,
    /// 0 where there is none. By default each page is a handle.
    fn whole_handles(&self, region: Region, offset: u64, bytes: u64, enough: u64, most: u64) -> (u64, u64) {
        let _ = region;
        let down = |bytes: u64| bytes & !(self.page_bytes().max(1) - 1);
        let (from, to) = (offset.next_multiple_of(self.page_bytes().max(1)), down(offset + bytes));
        let wanted = enough.checked_next_multiple_of(self.page_bytes().max(1)).unwrap_or(u64::MAX).min(down(most));
        (from, to.saturating_sub(from).min(wanted))
    }

    /// Reserves address space that no memory backs. Not counted as a call.
    ///
    /// # Errors
    /// [`SourceError::Unsupported`] for fixed sources.
    fn reserve(&mut self, bytes: u64) -> Result<Region, SourceError> {
        let _ = bytes;
        Err(SourceError::Unsupported)
    }

    /// Maps fresh pages at `[offset, offset + bytes)` of a reserved region, all of it unmapped. Counts as one call.
    ///
    /// # Errors
    /// [`SourceError`]; after an error nothing is mapped.
    fn map(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        let _ = (region, offset, bytes);
        Err(SourceError::Unsupported)
    }

    /// Takes what [`map`](Source::map) would map out of the capacity, all of it unmapped; the caller maps it by other means before
    /// it is used, or [cancels](Source::cancel_later) it. Until then it can be neither unmapped nor moved. Not counted as a call.
    ///
    /// # Errors
    /// [`SourceError::Unsupported`] by default: then the arena calls `map`. After an error nothing is taken.
    fn map_later(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        let _ = (region, offset, bytes);
        Err(SourceError::Unsupported)
    }

    /// Puts back what [`map_later`](Source::map_later) took with the same arguments.
    fn cancel_later(&mut self, region: Region, offset: u64, bytes: u64) {
        let _ = (region, offset, bytes);
    }

    /// Takes what [`take`](Source::take) would take out of the capacity; the caller gets the memory by other means, and then the next
    /// `take` of as many bytes gives it, or [cancels](Source::cancel_take). Not counted as a call.
    ///
    /// # Errors
    /// [`SourceError::Unsupported`] by default: then the arena calls `take`. After an error nothing is taken.
    fn take_later(&mut self, bytes: u64) -> Result<(), SourceError> {
        let _ = bytes;
        Err(SourceError::Unsupported)
    }

    /// Puts back what [`take_later`](Source::take_later) took.
    fn cancel_take(&mut self, bytes: u64) {
        let _ = bytes;
    }

    /// Unmaps the pages at `[offset, offset + bytes)`, all of which must be mapped, by whole handles. Counts as one call.
    ///
    /// # Errors
    /// [`SourceError`]; after an error nothing is unmapped.
    fn unmap(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        let _ = (region, offset, bytes);
        Err(SourceError::Unsupported)
    }

    /// Moves the pages of `[from, from + bytes)` to `[to, to + bytes)`. Counts as one call.
    ///
    /// The first range must be mapped, by whole handles, the second must be unmapped. The contents are undefined afterwards.
    ///
    /// # Errors
    /// [`SourceError`]; after an error nothing is moved.
    fn shift(&mut self, region: Region, from: u64, to: u64, bytes: u64) -> Result<(), SourceError> {
        let _ = (region, from, to, bytes);
        Err(SourceError::Unsupported)
    }

    /// Zeroes memory of this source. The range from `address` on must be usable memory.
    ///
    /// # Errors
    /// [`SourceError::Unsupported`] where the source cannot write to its memory.
    fn zero(&mut self, address: u64, bytes: u64) -> Result<(), SourceError> {
        let _ = (address, bytes);
        Err(SourceError::Unsupported)
    }

    /// The counters of the source.
    fn usage(&self) -> SourceUsage;
}

/// A source over lent memory: a static array, for example.
///
/// Regions are cut from the low end. The space of the region taken last is free as soon as that region is returned; the
/// space of any other region is free when all regions have been returned. Until then the source stores two words in a
/// returned region, by which it recognises a second return of the region.
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
    /// The first address in the memory that is a multiple of a cache line.
    base: u64,
    /// Bytes of the stack of regions, which begins at `base`.
    used: u64,
    /// Number of regions taken and not returned; at 0 the stack is empty.
    out: u64,
    /// Head of the list of regions returned below the top of the stack: an id, or [`NONE`]. The first two words of such
    /// a region are the id of the next one, and this region's bytes.
    returned: u64,
    usage: SourceUsage,
}

/// Bytes of a cache line. Start and size of a region of a [`FixedSource`] are multiples of it.
const LINE: u64 = 64;

/// The end of the list of returned regions.
const NONE: u64 = u64::MAX;

impl<'a> FixedSource<'a> {
    /// A source over the whole cache lines of 64 bytes in `memory`.
    pub fn new(memory: &'a mut [u64]) -> Self {
        let first = memory.as_ptr().addr() as u64;
        let base = first.next_multiple_of(LINE);
        let capacity = (first + size_of_val(memory) as u64).saturating_sub(base) & !(LINE - 1);
        let usage = SourceUsage { capacity, ..SourceUsage::default() };
        Self { memory, base, used: 0, out: 0, returned: NONE, usage }
    }

    /// Whether `region` may be taken and not returned: whole lines of the stack, none of them in a returned region.
    ///
    /// O(regions returned below the top of the stack).
    fn is_out(&self, region: Region) -> bool {
        let Region { id, base, bytes } = region;
        let in_stack = id <= self.used && bytes > 0 && bytes <= self.used - id && (id | bytes) & (LINE - 1) == 0;
        if !in_stack || base != self.base + id || (self.out == 1) != (bytes == self.usage.reserved) {
            return false;
        }
        // A holder that writes to a region after its return can break the list: then every return is refused.
        let (mut at, mut left) = (self.returned, self.used / LINE);
        while at != NONE {
            let record = self.first_word(at).and_then(|word| self.memory.get(word..)?.first_chunk());
            let Some(&[next, length]) = record.filter(|_| left > 0) else { return false };
            if at < id + bytes && id < at.saturating_add(length) {
                return false;
            }
            (at, left) = (next, left - 1);
        }
        true
    }

    /// Index in `memory` of the first word of a region.
    fn first_word(&self, id: u64) -> Option<usize> {
        let first = self.memory.as_ptr().addr() as u64;
        usize::try_from((self.base - first).checked_add(id)? / size_of::<u64>() as u64).ok()
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

    /// Frees the region at once if it was taken last; else when all regions have been returned.
    ///
    /// A copy of a handle that was returned is refused until some of the region's bytes are taken again; from then on
    /// the copy cannot be told from a handle of a taken region.
    fn give_back(&mut self, region: Region) -> Result<(), SourceError> {
        let misuse = SourceError::Misuse("a region is given back once, to the source it came from");
        if !self.is_out(region) {
            return Err(misuse);
        }
        if self.out == 1 {
            (self.used, self.returned) = (0, NONE);
        } else if region.id + region.bytes == self.used {
            self.used = region.id;
        } else {
            let word = self.first_word(region.id).ok_or(misuse)?;
            let record = self.memory.get_mut(word..).and_then(<[u64]>::first_chunk_mut).ok_or(misuse)?;
            *record = [self.returned, region.bytes];
            self.returned = region.id;
        }
        self.out -= 1;
        self.usage.reserved -= region.bytes;
        self.usage.calls += 1;
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
