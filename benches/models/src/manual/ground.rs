//! Memory without bytes: regions, spaces, pages.

use super::PAGE;
use std::collections::BTreeMap;
use terrace_device::FaultReason;

/// What was taken.
#[derive(Debug)]
pub(super) struct Ground {
    total: u64,
    pub(super) taken: u64,
    /// Regions and address spaces that are out: address and bytes.
    regions: BTreeMap<u64, u64>,
    spaces: BTreeMap<u64, u64>,
    /// Pages that are out: in how many places each is mapped.
    pages: BTreeMap<u64, u32>,
    /// Which page is mapped where.
    mapped: BTreeMap<u64, u64>,
    /// The next address, never used twice, so that old addresses are known to be old.
    address: u64,
}

impl Ground {
    pub(super) fn new(total: u64) -> Self {
        let (regions, spaces) = (BTreeMap::new(), BTreeMap::new());
        Self { total, taken: 0, regions, spaces, pages: BTreeMap::new(), mapped: BTreeMap::new(), address: 1 << 40 }
    }

    pub(super) fn free(&self) -> u64 {
        self.total - self.taken
    }

    fn fresh(&mut self, bytes: u64) -> u64 {
        let address = self.address;
        self.address += bytes.next_multiple_of(PAGE) + PAGE;
        address
    }

    /// A region; with `again`, one that overlaps the last one.
    pub(super) fn take(&mut self, bytes: u64, again: bool) -> Result<u64, FaultReason> {
        if bytes > self.free() {
            return Err(FaultReason::OutOfMemory);
        }
        self.taken += bytes;
        let last = self.regions.last_key_value().map(|(address, _)| address + PAGE / 2);
        let address = last.filter(|_| again).unwrap_or_else(|| self.fresh(bytes));
        self.regions.insert(address, bytes);
        Ok(address)
    }

    pub(super) fn give_back(&mut self, address: u64, bytes: u64) -> bool {
        let out = self.regions.get(&address) == Some(&bytes);
        if out {
            self.regions.remove(&address);
            self.taken -= bytes;
        }
        out
    }

    pub(super) fn reserve(&mut self, bytes: u64) -> u64 {
        let address = self.fresh(bytes);
        self.spaces.insert(address, bytes);
        address
    }

    pub(super) fn unreserve(&mut self, address: u64, bytes: u64) -> bool {
        let empty = self.mapped.range(address..address + bytes).next().is_none();
        empty && self.spaces.get(&address) == Some(&bytes) && self.spaces.remove(&address).is_some()
    }

    pub(super) fn create(&mut self, page: u64) -> Result<(), FaultReason> {
        if PAGE > self.free() {
            return Err(FaultReason::OutOfMemory);
        }
        self.taken += PAGE;
        self.pages.insert(page, 0);
        Ok(())
    }

    pub(super) fn release(&mut self, page: u64) -> bool {
        let free = self.pages.get(&page) == Some(&0);
        if free {
            self.pages.remove(&page);
            self.taken -= PAGE;
        }
        free
    }

    pub(super) fn map(&mut self, address: u64, page: u64) -> bool {
        let space = self.spaces.range(..=address).next_back();
        let inside = space.is_some_and(|(start, bytes)| address + PAGE <= start + bytes);
        let fits = inside && address.is_multiple_of(PAGE) && !self.mapped.contains_key(&address);
        let Some(places) = self.pages.get_mut(&page).filter(|_| fits) else { return false };
        *places += 1;
        self.mapped.insert(address, page);
        true
    }

    pub(super) fn unmap(&mut self, address: u64, bytes: u64) -> bool {
        let whole = self.is_mapped(address, bytes) && address.is_multiple_of(PAGE) && bytes.is_multiple_of(PAGE);
        if whole {
            for at in (address..address + bytes).step_by(PAGE as usize) {
                if let Some(places) = self.mapped.remove(&at).and_then(|page| self.pages.get_mut(&page)) {
                    *places -= 1;
                }
            }
        }
        whole
    }

    pub(super) fn is_mapped(&self, address: u64, bytes: u64) -> bool {
        let first = address - address % PAGE;
        (first..address + bytes).step_by(PAGE as usize).all(|at| self.mapped.contains_key(&at))
    }

    /// Whether there is memory behind all of a range.
    pub(super) fn is_backed(&self, address: u64, bytes: u64) -> bool {
        let region = self.regions.range(..=address).next_back();
        let inside = region.is_some_and(|(start, size)| address + bytes <= start + size);
        inside || self.is_mapped(address, bytes)
    }

    pub(super) fn outstanding(&self) -> Vec<String> {
        let regions = self.regions.iter().map(|(at, bytes)| format!("region {at:#x} of {bytes} bytes"));
        let spaces = self.spaces.iter().map(|(at, bytes)| format!("space {at:#x} of {bytes} bytes"));
        regions.chain(spaces).chain(self.pages.keys().map(|page| format!("page {page}"))).collect()
    }
}
