//! Pages mapped into reserved address space, each with a driver's handle of its own.
//!
//! Promises upward: a refused call changes nothing; a page that moves is mapped at its new address before it is
//! unmapped at the old one, so that a failure in between can be undone; dropping the source releases everything.
//! Asks from below: [`Backend::reserve`], [`create_page`](Backend::create_page), [`map`](Backend::map),
//! [`allow`](Backend::allow), [`unmap`](Backend::unmap), [`release_page`](Backend::release_page).

use super::{BackendContext, give, left};
use crate::backend::{Backend, Page};
use crate::fault::{Fault, FaultReason};
use crate::health::insist;
use std::collections::BTreeMap;
use terrace_core::{Region, Source, SourceError, SourceUsage};

/// Reserved address space, and the pages mapped into it.
pub(crate) struct MappedPages<B: Backend> {
    context: BackendContext<B>,
    /// Size of a page in bytes.
    page: u64,
    pub(super) usage: SourceUsage,
    pub(super) fault: Option<Fault>,
    /// Reserved address space, by base address.
    spaces: BTreeMap<u64, Region>,
    /// Mapped pages by address, `page` bytes each; their sizes add up to `usage.reserved`.
    mapped: BTreeMap<u64, Page>,
    /// Ordinals of other devices that may access the pages.
    peers: Vec<u32>,
}

impl<B: Backend> MappedPages<B> {
    /// `capacity`: limit of the bytes mapped, 0 for none. `peers`: ordinals of other devices that may access all pages.
    pub(crate) fn new(context: BackendContext<B>, capacity: u64, peers: &[u32]) -> Self {
        let page = context.backend.description().page_bytes;
        let usage = SourceUsage { capacity, ..SourceUsage::default() };
        let (spaces, mapped) = (BTreeMap::new(), BTreeMap::new());
        Self { context, page, usage, fault: None, spaces, mapped, peers: peers.into() }
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

    /// Number of mapped pages.
    pub(super) fn table(&self) -> usize {
        self.mapped.len()
    }

    fn refused(&mut self, fault: Fault) -> SourceError {
        self.fault = Some(self.context.health.note(fault));
        fault.into()
    }

    /// Checks that a range is whole pages in reserved space, all mapped or none (`mapped`); returns its address.
    fn judge(&self, region: Region, offset: u64, bytes: u64, mapped: bool) -> Result<u64, SourceError> {
        if self.spaces.get(&region.base) != Some(&region) {
            return Err(SourceError::Misuse("the address space was reserved here and not given back"));
        }
        let end = offset.checked_add(bytes).filter(|&end| end <= region.bytes && bytes > 0);
        if end.is_none() || !offset.is_multiple_of(self.page) || !bytes.is_multiple_of(self.page) {
            return Err(SourceError::Misuse("a range is whole pages inside the address space"));
        }
        let start = region.base + offset;
        let count = self.mapped.range(start..start + bytes).count() as u64;
        match (mapped, count) {
            (true, count) if count * self.page != bytes => Err(SourceError::Misuse("the whole range is mapped")),
            (false, 1..) => Err(SourceError::Misuse("nothing is mapped in the range")),
            _ => Ok(start),
        }
    }

    /// Maps pages in order from `start` on, and grants the peers access. Maps all pages or none.
    fn put(&self, start: u64, pages: &[Page]) -> Result<(), Fault> {
        let backend = &self.context.backend;
        for (i, &page) in pages.iter().enumerate() {
            let bytes = i as u64 * self.page;
            // SAFETY: `judge` found nothing mapped in the range, which is whole pages of reserved space.
            if let Err(fault) = unsafe { backend.map(start + bytes, page) } {
                self.take_out(start, bytes);
                return Err(fault);
            }
        }
        let bytes = pages.len() as u64 * self.page;
        // SAFETY: the loop above mapped the whole range.
        let allowed = unsafe { backend.allow(start, bytes, &self.peers) };
        allowed.inspect_err(|_| self.take_out(start, bytes))
    }

    /// Unmaps pages that [`Self::put`] mapped; they stay allocated.
    fn take_out(&self, start: u64, bytes: u64) {
        if bytes > 0 {
            // SAFETY: `put` has just mapped the range, and no work has used it.
            let _ = insist(|| unsafe { self.context.backend.unmap(start, bytes) });
        }
    }

    fn release(&self, pages: &[Page]) {
        for &page in pages {
            // SAFETY: `create` made the page; it has just left the table, or was never in it. A refused call released
            // nothing.
            let _ = insist(|| unsafe { self.context.backend.release_page(page) });
        }
    }

    fn create(&self, count: u64) -> Result<Vec<Page>, Fault> {
        let mut pages = Vec::with_capacity(count as usize);
        for _ in 0..count {
            match self.context.backend.create_page() {
                Ok(page) => pages.push(page),
                Err(fault) => {
                    self.release(&pages);
                    return Err(fault);
                }
            }
        }
        Ok(pages)
    }

    /// Lets another device access the pages, present and future.
    ///
    /// # Errors
    /// The driver's error; the device may then access some of the pages.
    pub(super) fn share(&mut self, ordinal: u32) -> Result<(), Fault> {
        if self.peers.contains(&ordinal) {
            return Ok(());
        }
        let peers: Vec<u32> = self.peers.iter().copied().chain([ordinal]).collect();
        for &start in self.mapped.keys() {
            // SAFETY: a page is mapped at `start`.
            unsafe { self.context.backend.allow(start, self.page, &peers) }
                .map_err(|fault| self.context.health.note(fault))?;
        }
        self.peers = peers;
        Ok(())
    }

    /// Removes pages from the table, where all of them must be.
    fn forget(&mut self, start: u64, bytes: u64) -> Vec<Page> {
        let pages = (start..start + bytes).step_by(self.page as usize);
        pages.filter_map(|address| self.mapped.remove(&address)).collect()
    }

    fn remember(&mut self, start: u64, pages: &[Page]) {
        let page = self.page;
        self.mapped.extend(pages.iter().enumerate().map(|(i, &handle)| (start + i as u64 * page, handle)));
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
        while let Some(&start) = self.mapped.range(region.base..region.base + region.bytes).next().map(|(at, _)| at) {
            self.unmap(region, start - region.base, self.page)?;
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

    fn reserve(&mut self, bytes: u64) -> Result<Region, SourceError> {
        let base = self.context.backend.reserve(bytes).map_err(|fault| self.refused(fault))?;
        let region = Region { id: base, base, bytes };
        self.spaces.insert(base, region);
        Ok(region)
    }

    fn map(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        let start = self.judge(region, offset, bytes, false)?;
        let available = left(&self.usage);
        if bytes > available {
            return Err(SourceError::OutOfMemory { available });
        }
        self.context.health.check().map_err(|fault| self.refused(fault))?;
        self.context.afford(bytes)?;
        let pages = self.create(bytes / self.page).map_err(|fault| self.refused(fault))?;
        if let Err(fault) = self.put(start, &pages) {
            self.release(&pages);
            return Err(self.refused(fault));
        }
        self.remember(start, &pages);
        give(&mut self.usage, bytes, pages.len() as u64);
        Ok(())
    }

    fn unmap(&mut self, region: Region, offset: u64, bytes: u64) -> Result<(), SourceError> {
        let start = self.judge(region, offset, bytes, true)?;
        self.context.health.check().map_err(|fault| self.refused(fault))?;
        self.context.fences.quiesce().map_err(|fault| self.refused(fault))?;
        let backend = &self.context.backend;
        // SAFETY: `judge` found the whole range mapped; the arena unmaps only free memory, and `quiesce` waited for
        // work in flight on it.
        insist(|| unsafe { backend.unmap(start, bytes) }).map_err(|fault| self.refused(fault))?;
        let pages = self.forget(start, bytes);
        self.release(&pages);
        self.usage.calls += 1;
        self.usage.reserved -= bytes;
        Ok(())
    }

    fn shift(&mut self, region: Region, from: u64, to: u64, bytes: u64) -> Result<(), SourceError> {
        let source = self.judge(region, from, bytes, true)?;
        let target = self.judge(region, to, bytes, false)?;
        self.context.health.check().map_err(|fault| self.refused(fault))?;
        self.context.fences.quiesce().map_err(|fault| self.refused(fault))?;
        let pages: Vec<Page> = self.mapped.range(source..source + bytes).map(|(_, &page)| page).collect();
        self.put(target, &pages).map_err(|fault| self.refused(fault))?;
        let backend = &self.context.backend;
        // SAFETY: as in `unmap`.
        if let Err(fault) = insist(|| unsafe { backend.unmap(source, bytes) }) {
            self.take_out(target, bytes);
            return Err(self.refused(fault));
        }
        self.forget(source, bytes);
        self.remember(target, &pages);
        self.usage.calls += 1;
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
