//! A growing source: address space reserved once, 2 MiB pages mapped, unmapped and moved under it.
//!
//! Promises upward: one call for each map, unmap or move of a contiguous range, one handle a page mapped, no call
//! for a reservation; mapping a mapped page, touching an unmapped one, offsets off the page grid, and unknown
//! regions are refused as misuse; a refused call changes nothing.
//! Asks from below: nothing; there is no memory.

use super::pages::Pages;
use super::segments::{available, grow};
use super::{Addresses, Faults, LARGEST_REGION, PAGE};
use std::collections::HashMap;
use terrace_core::{Region, Source, SourceError, SourceUsage};

/// Simulated virtual memory of a device.
///
/// ```
/// use terrace_core::Source;
/// use terrace_models::Growing;
///
/// let mut device = Growing::new(64 << 20);
/// let space = device.reserve(16 << 40)?; // 16 TiB of addresses: free
/// device.map(space, 0, 4 << 20)?;
/// device.shift(space, 2 << 20, 8 << 20, 2 << 20)?;
/// let usage = device.usage();
/// assert_eq!((usage.reserved, usage.calls, usage.handles), (4 << 20, 2, 2));
/// device.give_back(space)?; // two ranges are mapped: two calls
/// assert_eq!(device.usage().calls, 4);
/// # Ok::<(), terrace_core::SourceError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Growing {
    /// `reserved` is `PAGE` times the mapped pages of `spaces`, at most `capacity` when that is not 0.
    usage: SourceUsage,
    addresses: Addresses,
    faults: Faults,
    /// Reservations, by id.
    spaces: HashMap<u64, Space>,
    /// Name of the next reservation; names are never used twice.
    next_id: u64,
}

/// A reservation and what is mapped in it.
#[derive(Clone, Debug)]
struct Space {
    region: Region,
    pages: Pages,
}

impl Growing {
    /// A device with `capacity` bytes (rounded down to pages), 0 for no limit.
    pub fn new(capacity: u64) -> Self {
        let usage = SourceUsage { capacity, ..SourceUsage::default() };
        Self { usage, addresses: Addresses::new(), faults: Faults::default(), spaces: HashMap::new(), next_id: 1 }
    }

    /// Failures to inject.
    pub fn faults(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// Lets the `n`-th call from now fail with [`SourceError::Failed`] (1 is the next).
    pub fn fail_call(&mut self, n: u64) {
        self.faults.fail_call(n);
    }

    /// Reservations not given back, by address, each with the bytes mapped in it.
    pub fn outstanding(&self) -> Vec<(Region, u64)> {
        let mut spaces: Vec<_> =
            self.spaces.values().map(|space| (space.region, space.pages.mapped() * PAGE)).collect();
        spaces.sort_by_key(|(region, _)| region.base);
        spaces
    }

    /// Adds a reservation of `bytes`, a multiple of the page, with its first `mapped` pages mapped.
    fn add(&mut self, base: u64, bytes: u64, mapped: u64) -> Region {
        let region = Region { id: self.next_id, base, bytes };
        let mut pages = Pages::default();
        pages.set(0, mapped);
        self.next_id += 1;
        self.spaces.insert(region.id, Space { region, pages });
        region
    }

    /// Counts one call that gave `pages` pages.
    fn count(&mut self, pages: u64) {
        self.usage.calls += 1;
        self.usage.handles += pages;
        grow(&mut self.usage, pages * PAGE);
    }
}

/// `bytes` rounded up to pages; refused when zero or beyond any region.
fn whole_pages(bytes: u64) -> Result<u64, SourceError> {
    match bytes {
        0 => Err(SourceError::Misuse("a region has at least one byte")),
        1..=LARGEST_REGION => Ok(bytes.next_multiple_of(PAGE)),
        _ => Err(SourceError::OutOfMemory { available: LARGEST_REGION }),
    }
}

/// The space that `region` names.
fn find(spaces: &mut HashMap<u64, Space>, region: Region) -> Result<&mut Space, SourceError> {
    match spaces.get_mut(&region.id) {
        Some(space) if space.region == region => Ok(space),
        _ => Err(SourceError::Misuse("the region is not out: never reserved, or given back")),
    }
}

impl Space {
    /// `[offset, offset + bytes)` as (first page, pages), when it lies on the grid and in the region.
    fn range(&self, offset: u64, bytes: u64) -> Result<(u64, u64), SourceError> {
        if bytes == 0 || !offset.is_multiple_of(PAGE) || !bytes.is_multiple_of(PAGE) {
            return Err(SourceError::Misuse("offset and bytes are multiples of the page, and bytes is not 0"));
        }
        match offset.checked_add(bytes) {
            Some(end) if end <= self.region.bytes => Ok((offset / PAGE, bytes / PAGE)),
            _ => Err(SourceError::Misuse("the range leaves the region")),
        }
    }
}

impl Source for Growing {
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError> {
        let bytes = whole_pages(bytes)?;
        let available = available(&self.usage);
        if bytes > available {
            return Err(SourceError::OutOfMemory { available });
        }
        let (base, addresses) = self.addresses.plan(bytes).ok_or(SourceError::OutOfMemory { available })?;
        self.faults.call()?;
        self.addresses = addresses;
        self.count(bytes / PAGE);
        Ok(self.add(base, bytes, bytes / PAGE))
    }

    fn give_back(&mut self, region: Region) -> Result<(), SourceError> {
        let space = find(&mut self.spaces, region)?;
        let (ranges, mapped) = (space.pages.ranges(), space.pages.mapped());
        for _ in 0..ranges {
            self.faults.call()?;
        }
        self.spaces.remove(&region.id);
        self.usage.calls += ranges;
        self.usage.reserved -= mapped * PAGE;
        Ok(())
    }

    fn page_bytes(&self) -> u64 {
        PAGE
    }

    fn reserve(&mut self, bytes: u64) -> Result<Region, SourceError> {
        let bytes = whole_pages(bytes)?;
        let (base, addresses) =
            self.addresses.plan(bytes).ok_or(SourceError::OutOfMemory { available: LARGEST_REGION })?;
        self.addresses = addresses;
        Ok(self.add(base, bytes, 0))
    }

    fn map(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        let available = available(&self.usage);
        let space = find(&mut self.spaces, region)?;
        let (first, count) = space.range(offset, bytes)?;
        if !space.pages.none(first, count) {
            return Err(SourceError::Misuse("a page of the range is mapped already"));
        }
        if bytes > available {
            return Err(SourceError::OutOfMemory { available });
        }
        self.faults.call()?;
        space.pages.set(first, count);
        self.count(count);
        Ok(())
    }

    fn unmap(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        let space = find(&mut self.spaces, region)?;
        let (first, count) = space.range(offset, bytes)?;
        if !space.pages.all(first, count) {
            return Err(SourceError::Misuse("a page of the range is not mapped"));
        }
        self.faults.call()?;
        space.pages.clear(first, count);
        self.usage.calls += 1;
        self.usage.reserved -= bytes;
        Ok(())
    }

    fn shift(&mut self, region: Region, from: u64, to: u64, bytes: u64) -> Result<(), SourceError> {
        let space = find(&mut self.spaces, region)?;
        let (source, count) = space.range(from, bytes)?;
        let (target, _) = space.range(to, bytes)?;
        if !space.pages.all(source, count) || !space.pages.none(target, count) {
            return Err(SourceError::Misuse("pages move from where they are mapped to where none is"));
        }
        self.faults.call()?;
        space.pages.clear(source, count);
        space.pages.set(target, count);
        self.usage.calls += 1;
        Ok(())
    }

    fn usage(&self) -> SourceUsage {
        self.usage
    }
}
