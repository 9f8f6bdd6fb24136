//! Memory without bytes: regions, spaces, physical memory.

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
    /// Physical memory that is out, by handle: bytes, and in how many places it is mapped.
    handles: BTreeMap<u64, (u64, u32)>,
    /// By address: bytes and handle of what is mapped there.
    mapped: BTreeMap<u64, (u64, u64)>,
    /// The next address, never used twice, so that old addresses are known to be old.
    address: u64,
}

impl Ground {
    pub(super) fn new(total: u64) -> Self {
        let (regions, spaces) = (BTreeMap::new(), BTreeMap::new());
        let (handles, mapped) = (BTreeMap::new(), BTreeMap::new());
        Self { total, taken: 0, regions, spaces, handles, mapped, address: 1 << 40 }
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

    pub(super) fn create(&mut self, handle: u64, bytes: u64) -> Result<(), FaultReason> {
        if bytes == 0 || !bytes.is_multiple_of(PAGE) {
            return Err(FaultReason::Other);
        }
        if bytes > self.free() {
            return Err(FaultReason::OutOfMemory);
        }
        self.taken += bytes;
        self.handles.insert(handle, (bytes, 0));
        Ok(())
    }

    pub(super) fn release(&mut self, handle: u64) -> bool {
        let free = self.handles.get(&handle).filter(|(_, places)| *places == 0).copied();
        if let Some((bytes, _)) = free {
            self.handles.remove(&handle);
            self.taken -= bytes;
        }
        free.is_some()
    }

    pub(super) fn map(&mut self, address: u64, bytes: u64, handle: u64) -> bool {
        let space = self.spaces.range(..=address).next_back();
        let inside = space.is_some_and(|(start, size)| address + bytes <= start + size);
        let below = self.mapped.range(..address + bytes).next_back();
        let free = below.is_none_or(|(start, (size, _))| start + size <= address);
        let fits = inside && free && address.is_multiple_of(PAGE);
        let known = self.handles.get_mut(&handle).filter(|(whole, _)| fits && *whole == bytes);
        let Some((_, places)) = known else { return false };
        *places += 1;
        self.mapped.insert(address, (bytes, handle));
        true
    }

    pub(super) fn unmap(&mut self, address: u64, bytes: u64) -> bool {
        let whole = self.is_whole(address, bytes);
        if whole {
            let starts: Vec<u64> = self.mapped.range(address..address + bytes).map(|(start, _)| *start).collect();
            for start in starts {
                let handle = self.mapped.remove(&start).and_then(|(_, handle)| self.handles.get_mut(&handle));
                handle.into_iter().for_each(|(_, places)| *places -= 1);
            }
        }
        whole
    }

    /// Whether whole handles are mapped in all of a range, and no part of another.
    pub(super) fn is_whole(&self, address: u64, bytes: u64) -> bool {
        self.mapped.contains_key(&address) && self.covered(address, bytes) == Some(address + bytes)
    }

    /// Whether handles are mapped in all of a range.
    pub(super) fn is_mapped(&self, address: u64, bytes: u64) -> bool {
        self.covered(address, bytes).is_some()
    }

    /// The end of the last of the handles that cover a range without a gap.
    fn covered(&self, address: u64, bytes: u64) -> Option<u64> {
        let mut at = address;
        while at < address + bytes {
            let (start, (size, _)) = self.mapped.range(..=at).next_back()?;
            at = Some(start + size).filter(|end| *end > at)?;
        }
        Some(at)
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
        regions.chain(spaces).chain(self.handles.keys().map(|handle| format!("handle {handle}"))).collect()
    }
}
