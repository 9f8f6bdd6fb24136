//! Physical memory mapped into reserved address space, by handles of one page or many.
//!
//! ```text
//!   address space   |  32 MiB   |  32 MiB   | 12 |        | 2 | 2 | 6  |          a handle is mapped, moved and unmapped as a whole
//!                   `-- one SetAccess for all of a range --'
//! ```
//!
//! Promises upward: a refused call changes nothing; memory that moves is mapped at its new address before it is
//! unmapped at the old one, so that a failure in between can be undone; dropping the source releases everything.
//! Asks from below: [`Backend::reserve`], [`create_handle`](Backend::create_handle), [`map`](Backend::map),
//! [`allow`](Backend::allow), [`unmap`](Backend::unmap), [`release_handle`](Backend::release_handle).

use super::handles::{MapDone, MapJob, Mapped, Mapper};
use super::{BackendContext, left};
use crate::backend::Backend;
use crate::fault::{Fault, FaultReason};
use crate::health::insist;
use std::collections::BTreeMap;
use terrace_core::{Region, Source, SourceError, SourceUsage};

/// A handle takes at most this part of what might still be mapped when its call began.
///
/// Near the limit handles are small, so that a live block keeps little free memory from moving. A pool that fills 10 GiB makes 304
/// handles of 32 MiB, then about 60 smaller ones; of one page each, 5,120.
const PART: u64 = 16;

/// Reserved address space, and the memory mapped into it.
pub(crate) struct MappedPages<B: Backend> {
    context: BackendContext<B>,
    /// Size of a page in bytes.
    page: u64,
    /// Most bytes of a handle, whole pages.
    largest: u64,
    pub(super) usage: SourceUsage,
    pub(super) fault: Option<Fault>,
    /// Reserved address space, by base address.
    spaces: BTreeMap<u64, Region>,
    /// Mapped handles by address; their bytes and those of `later` add up to `usage.reserved`.
    mapped: BTreeMap<u64, Mapped>,
    /// Ordinals of other devices that may access the memory.
    peers: Vec<u32>,
    /// Ranges that are taken and not mapped yet, by address: their bytes, and most bytes of a handle of theirs.
    later: BTreeMap<u64, (u64, u64)>,
}

impl<B: Backend> MappedPages<B> {
    /// `capacity`: limit of the bytes mapped, 0 for none. `largest`: most bytes of a handle. `peers`: ordinals of other devices that
    /// may access all memory.
    pub(crate) fn new(context: BackendContext<B>, capacity: u64, largest: u64, peers: &[u32]) -> Self {
        let page = context.backend.description().page_bytes;
        let largest = (largest & !(page - 1)).max(page);
        let usage = SourceUsage { capacity, ..SourceUsage::default() };
        let (spaces, mapped, later) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { context, page, largest, usage, fault: None, spaces, mapped, peers: peers.into(), later }
    }

    /// Maps a page and releases it, to find out whether the driver grants all `peers` access to a page.
    ///
    /// # Errors
    /// The driver's error.
    pub(crate) fn try_one(&mut self) -> Result<(), Fault> {
        let (page, usage) = (self.page, self.usage);
        let tried = self.reserve(page).and_then(|space| {
            let mapped = self.map(space, 0, page);
            mapped.and(self.give_back(space))
        });
        self.usage = SourceUsage { reserved: self.usage.reserved, ..usage };
        tried.map_err(|_| self.fault.take().unwrap_or(Fault::of("open a page to other devices", FaultReason::Other)))
    }

    /// The most bytes of address space that the driver reserves: `bytes`, halved until it succeeds, but not below
    /// `least`.
    pub(crate) fn reservable(context: &BackendContext<B>, mut bytes: u64, least: u64) -> Result<u64, Fault> {
        loop {
            match context.backend.reserve(bytes) {
                Ok(base) => {
                    // SAFETY: the space was reserved above with this size; nothing was mapped in it.
                    insist(|| unsafe { context.backend.unreserve(base, bytes) })?;
                    return Ok(bytes);
                }
                Err(fault) if fault.is_fatal() || bytes / 2 < least => return Err(fault),
                Err(_) => bytes /= 2,
            }
        }
    }

    /// Number of mapped handles.
    pub(super) fn table(&self) -> usize {
        self.mapped.len()
    }

    fn refused(&mut self, fault: Fault) -> SourceError {
        self.fault = Some(self.context.health.note(fault));
        fault.into()
    }

    /// Checks that a range is whole pages in reserved space; returns its address.
    fn judge(&self, region: Region, offset: u64, bytes: u64) -> Result<u64, SourceError> {
        if self.spaces.get(&region.base) != Some(&region) {
            return Err(SourceError::Misuse("the address space was reserved here and not given back"));
        }
        let end = offset.checked_add(bytes).filter(|&end| end <= region.bytes && bytes > 0);
        if end.is_none() || !offset.is_multiple_of(self.page) || !bytes.is_multiple_of(self.page) {
            return Err(SourceError::Misuse("a range is whole pages inside the address space"));
        }
        Ok(region.base + offset)
    }

    /// As [`Self::judge`], for a range in which nothing may be mapped.
    fn judge_unmapped(&self, region: Region, offset: u64, bytes: u64) -> Result<u64, SourceError> {
        let start = self.judge(region, offset, bytes)?;
        let below = self.mapped.range(..start + bytes).next_back().map(|(at, mapped)| at + mapped.bytes);
        let later = self.later.range(..start + bytes).next_back().map(|(at, (bytes, _))| at + bytes);
        if below.max(later).is_some_and(|end| end > start) {
            return Err(SourceError::Misuse("nothing is mapped in the range"));
        }
        Ok(start)
    }

    /// As [`Self::judge_unmapped`], for new memory of a device that lives, within the capacity.
    fn judge_new(&mut self, region: Region, offset: u64, bytes: u64) -> Result<u64, SourceError> {
        let start = self.judge_unmapped(region, offset, bytes)?;
        let available = left(&self.usage);
        if bytes > available {
            return Err(SourceError::OutOfMemory { available });
        }
        self.context.health.check().map_err(|fault| self.refused(fault))?;
        Ok(start)
    }

    /// As [`Self::judge`], for a range of whole handles; returns them too.
    fn judge_mapped(&self, region: Region, offset: u64, bytes: u64) -> Result<(u64, Vec<Mapped>), SourceError> {
        let start = self.judge(region, offset, bytes)?;
        let (mut end, mut handles) = (start, Vec::new());
        while let Some(&mapped) = self.mapped.get(&end).filter(|_| end < start + bytes) {
            end += mapped.bytes;
            handles.push(mapped);
        }
        let whole = end == start + bytes;
        if whole {
            Ok((start, handles))
        } else {
            Err(SourceError::Misuse("whole handles are mapped in all of the range"))
        }
    }

    /// The range from `start` on that `map_later` took.
    pub(super) fn job(&self, start: u64) -> Option<MapJob> {
        let &(bytes, most) = self.later.get(&start)?;
        Some(MapJob { start, bytes, most, page: self.page, peers: self.peers.clone() })
    }

    /// Adds a range that was mapped meanwhile.
    pub(super) fn mapped_later(&mut self, done: MapDone) {
        self.later.remove(&done.start);
        self.remember(done.start, &done.handles);
        self.usage.calls += done.calls;
        self.count_mapped(done.handles.len());
    }

    /// Counts handles that were mapped. What is to be mapped later has no part in the peak: it may be cancelled.
    fn count_mapped(&mut self, handles: usize) {
        let later: u64 = self.later.values().map(|(bytes, _)| bytes).sum();
        self.usage.handles += handles as u64;
        self.usage.peak_reserved = self.usage.peak_reserved.max(self.usage.reserved - later);
    }

    /// Most bytes of a handle: as large as the moment allows.
    fn most(&self) -> u64 {
        ((left(&self.usage) / PART) & !(self.page - 1)).clamp(self.page, self.largest)
    }

    /// Makes driver calls, and counts them.
    fn call<R>(&mut self, calls: impl FnOnce(&mut Mapper<'_, B>) -> R) -> R {
        let mut mapper = Mapper { context: &self.context, page: self.page, peers: &self.peers, calls: 0 };
        let result = calls(&mut mapper);
        self.usage.calls += mapper.calls;
        result
    }

    /// Lets another device access the memory, present and future.
    ///
    /// # Errors
    /// The driver's error; the device may then access some of the memory.
    pub(super) fn share(&mut self, ordinal: u32) -> Result<(), Fault> {
        if self.peers.contains(&ordinal) {
            return Ok(());
        }
        let peers: Vec<u32> = self.peers.iter().copied().chain([ordinal]).collect();
        for (&start, mapped) in &self.mapped {
            // SAFETY: a handle is mapped at `start`.
            unsafe { self.context.backend.allow(start, mapped.bytes, &peers) }
                .map_err(|fault| self.context.health.note(fault))?;
        }
        self.peers = peers;
        Ok(())
    }

    /// Removes the handles of a range from the table.
    fn forget(&mut self, start: u64, handles: &[Mapped]) {
        let mut at = start;
        for mapped in handles {
            self.mapped.remove(&at);
            at += mapped.bytes;
        }
    }

    fn remember(&mut self, start: u64, handles: &[Mapped]) {
        let mut at = start;
        for &mapped in handles {
            self.mapped.insert(at, mapped);
            at += mapped.bytes;
        }
    }
}

impl<B: Backend> Source for MappedPages<B> {
    fn take(&mut self, _: u64) -> Result<Region, SourceError> {
        Err(SourceError::Unsupported)
    }

    fn give_back(&mut self, region: Region) -> Result<(), SourceError> {
        if self.spaces.get(&region.base) != Some(&region) {
            return Err(SourceError::Misuse("the address space was reserved here and not given back"));
        }
        while let Some((&start, &mapped)) = self.mapped.range(region.base..region.base + region.bytes).next() {
            self.unmap(region, start - region.base, mapped.bytes)?;
        }
        // SAFETY: `reserve` reserved the space with this size; the loop left nothing mapped in it.
        let gone = insist(|| unsafe { self.context.backend.unreserve(region.base, region.bytes) });
        gone.map_err(|fault| self.refused(fault))?;
        self.spaces.remove(&region.base);
        Ok(())
    }

    fn page_bytes(&self) -> u64 {
        self.page
    }

    fn whole_handles(&self, region: Region, offset: u64, bytes: u64, enough: u64, most: u64) -> (u64, u64) {
        let (from, to) = (region.base + offset, region.base + offset + bytes);
        let (mut start, mut run) = (from, 0);
        for (&at, mapped) in self.mapped.range(from..to) {
            if at + mapped.bytes > to || run >= enough {
                break;
            }
            if run + mapped.bytes <= most {
                start = if run == 0 { at } else { start };
                run += mapped.bytes;
            } else if run > 0 {
                break;
            }
        }
        (start - region.base, run)
    }

    fn reserve(&mut self, bytes: u64) -> Result<Region, SourceError> {
        let base = self.context.backend.reserve(bytes).map_err(|fault| self.refused(fault))?;
        let region = Region { id: base, base, bytes };
        self.spaces.insert(base, region);
        Ok(region)
    }

    fn map(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        let start = self.judge_new(region, offset, bytes)?;
        let most = self.most();
        let made = self.call(|mapper| mapper.context.afford(bytes, || mapper.create(bytes, most)))?;
        let handles = made.map_err(|fault| self.refused(fault))?;
        if let Err(fault) = self.call(|mapper| mapper.put(start, &handles)) {
            self.call(|mapper| mapper.release(&handles));
            return Err(self.refused(fault));
        }
        self.remember(start, &handles);
        self.usage.reserved += bytes;
        self.count_mapped(handles.len());
        Ok(())
    }

    fn map_later(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        let start = self.judge_new(region, offset, bytes)?;
        self.later.insert(start, (bytes, self.most()));
        self.usage.reserved += bytes;
        Ok(())
    }

    fn cancel_later(&mut self, region: Region, offset: u64, bytes: u64) {
        if self.later.remove(&(region.base + offset)).is_some() {
            self.usage.reserved -= bytes;
        }
    }

    fn unmap(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        let (start, handles) = self.judge_mapped(region, offset, bytes)?;
        self.context.health.check().map_err(|fault| self.refused(fault))?;
        self.context.fences.quiesce().map_err(|fault| self.refused(fault))?;
        self.usage.calls += 1;
        let backend = &self.context.backend;
        // SAFETY: `judge_mapped` found whole handles in the whole range; the arena unmaps only free memory, and `quiesce` waited
        // for work in flight on it.
        insist(|| unsafe { backend.unmap(start, bytes) }).map_err(|fault| self.refused(fault))?;
        self.forget(start, &handles);
        self.call(|mapper| mapper.release(&handles));
        self.usage.reserved -= bytes;
        Ok(())
    }

    fn shift(&mut self, region: Region, from: u64, to: u64, bytes: u64) -> Result<(), SourceError> {
        let (source, handles) = self.judge_mapped(region, from, bytes)?;
        let target = self.judge_unmapped(region, to, bytes)?;
        self.context.health.check().map_err(|fault| self.refused(fault))?;
        self.context.fences.quiesce().map_err(|fault| self.refused(fault))?;
        self.call(|mapper| mapper.put(target, &handles)).map_err(|fault| self.refused(fault))?;
        self.usage.calls += 1;
        let backend = &self.context.backend;
        // SAFETY: as in `unmap`.
        if let Err(fault) = insist(|| unsafe { backend.unmap(source, bytes) }) {
            self.call(|mapper| mapper.take_out(target, bytes));
            return Err(self.refused(fault));
        }
        self.forget(source, &handles);
        self.remember(target, &handles);
        Ok(())
    }

    fn zero(&mut self, address: u64, bytes: u64) -> Result<(), SourceError> {
        // SAFETY: the arena names pages that it just mapped, not used yet.
        unsafe { self.context.zero(address, bytes) }.map_err(|fault| self.refused(fault))
    }

    fn usage(&self) -> SourceUsage {
        self.usage
    }
}

impl<B: Backend> Drop for MappedPages<B> {
    fn drop(&mut self) {
        for region in self.spaces.clone().into_values() {
            if self.context.health.check().is_ok() && self.give_back(region).is_err() {
                let _ = self.give_back(region);
            }
        }
    }
}
