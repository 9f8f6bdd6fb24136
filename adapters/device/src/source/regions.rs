//! Whole regions: one driver call allocates a region, one call frees it.
//!
//! Promises upward: each region is handed out once; dropping the source frees the regions that are still out.
//! Asks from below: [`Backend::take`] and [`Backend::give_back`] of one kind of memory.

use super::{BackendContext, give, left};
use crate::backend::{Backend, MemoryKind};
use crate::fault::Fault;
use crate::health::insist;
use std::collections::BTreeMap;
use terrace_core::{Region, Source, SourceError, SourceUsage};

/// Regions of one kind of memory.
pub(crate) struct Regions<B: Backend> {
    context: BackendContext<B>,
    kind: MemoryKind,
    pub(super) usage: SourceUsage,
    pub(super) fault: Option<Fault>,
    /// Regions handed out, by id. Their bytes add up to `usage.reserved`.
    out: BTreeMap<u64, Region>,
    /// The id of the next region.
    next: u64,
    /// Whether regions stay allocated until [`Regions::let_go`], since a graph that may be launched again uses them.
    kept: bool,
}

impl<B: Backend> Regions<B> {
    /// `capacity`: limit of the bytes allocated, 0 for none.
    pub(crate) fn new(context: BackendContext<B>, kind: MemoryKind, capacity: u64) -> Self {
        let usage = SourceUsage { capacity, ..SourceUsage::default() };
        Self { context, kind, usage, fault: None, out: BTreeMap::new(), next: 1, kept: false }
    }

    /// Keeps all regions allocated until [`Regions::let_go`].
    pub(crate) fn kept(self) -> Self {
        let mut kept = self;
        kept.kept = true;
        kept
    }

    /// Lets regions be freed from now on.
    pub(super) fn let_go(&mut self) {
        self.kept = false;
    }

    /// Number of regions handed out.
    pub(super) fn table(&self) -> usize {
        self.out.len()
    }

    /// Keeps the driver's refusal for the user's error, and converts it to the core's.
    fn refused(&mut self, fault: Fault) -> SourceError {
        self.fault = Some(self.context.health.note(fault));
        fault.into()
    }
}

impl<B: Backend> Source for Regions<B> {
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError> {
        let available = left(&self.usage);
        if bytes > available {
            return Err(SourceError::OutOfMemory { available });
        }
        self.context.health.check().map_err(|fault| self.refused(fault))?;
        let taken = self.context.afford(bytes, || self.context.backend.take(self.kind, bytes))?;
        let base = taken.map_err(|fault| self.refused(fault))?;
        let region = Region { id: self.next, base, bytes };
        self.next += 1;
        self.out.insert(region.id, region);
        self.usage.calls += 1;
        give(&mut self.usage, bytes, 1);
        Ok(region)
    }

    fn give_back(&mut self, region: Region) -> Result<(), SourceError> {
        if self.out.get(&region.id) != Some(&region) {
            return Err(SourceError::Misuse("a region is given back once, to the source it came from"));
        }
        if self.kept {
            return Err(SourceError::Unsupported);
        }
        self.context.health.check().map_err(|fault| self.refused(fault))?;
        self.context.fences.quiesce().map_err(|fault| self.refused(fault))?;
        let backend = &self.context.backend;
        // SAFETY: the region is in `out`, so it was taken and not given back; the arena gives back only regions without
        // live or waiting blocks, and `quiesce` waited for work in flight on free memory.
        let given = insist(|| unsafe { backend.give_back(self.kind, region.base, region.bytes) });
        given.map_err(|fault| self.refused(fault))?;
        self.out.remove(&region.id);
        self.usage.calls += 1;
        self.usage.reserved -= region.bytes;
        Ok(())
    }

    fn zero(&mut self, address: u64, bytes: u64) -> Result<(), SourceError> {
        // SAFETY: the arena names memory of a region that it just took, not used yet.
        unsafe { self.context.zero(address, bytes) }.map_err(|fault| self.refused(fault))
    }

    fn usage(&self) -> SourceUsage {
        self.usage
    }
}

impl<B: Backend> Drop for Regions<B> {
    fn drop(&mut self) {
        for region in std::mem::take(&mut self.out).into_values() {
            let gone = self.context.health.check().and_then(|()| insist(|| self.context.fences.quiesce()));
            if gone.is_ok() {
                // SAFETY: as in `give_back`; the arena and all of its blocks are dropped before the source.
                let _ = insist(|| unsafe { self.context.backend.give_back(self.kind, region.base, region.bytes) });
            }
        }
    }
}
