//! Whole regions: one driver call allocates a region, one call frees it.
//!
//! Promises upward: each region is handed out once; dropping the source frees the regions that are still out.
//! Asks from below: [`Backend::take`] and [`Backend::give_back`] of one kind of memory.

use super::{BackendContext, left};
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
    /// Bytes of regions that callers are taking, see [`Source::take_later`]: reserved already.
    taking: u64,
    /// First address and bytes of one that a caller took: the next `take` gives it.
    taken: Option<(u64, u64)>,
    /// Whether regions stay allocated until [`Regions::let_go`], since a graph that may be launched again uses them.
    kept: bool,
}

impl<B: Backend> Regions<B> {
    /// `capacity`: limit of the bytes allocated, 0 for none.
    pub(crate) fn new(context: BackendContext<B>, kind: MemoryKind, capacity: u64) -> Self {
        let usage = SourceUsage { capacity, ..SourceUsage::default() };
        Self { context, kind, usage, fault: None, out: BTreeMap::new(), next: 1, taking: 0, taken: None, kept: false }
    }

    /// Keeps all regions allocated until [`Regions::let_go`].
    pub(crate) fn kept(self) -> Self {
        let mut kept = self;
        kept.kept = true;
        kept
    }

    /// What takes a region that [`Source::take_later`] asked for, without the source.
    pub(super) fn take_job(&self, bytes: u64) -> TakeJob {
        TakeJob { kind: self.kind, bytes }
    }

    /// Adds a region that was taken meanwhile, for the next `take` of as many bytes.
    pub(super) fn taken_later(&mut self, base: u64, bytes: u64) {
        self.taken = Some((base, bytes));
    }

    fn has_room(&self, bytes: u64) -> Result<(), SourceError> {
        let available = left(&self.usage);
        if bytes > available { Err(SourceError::OutOfMemory { available }) } else { Ok(()) }
    }

    /// Hands out a region that the driver gave, whose bytes are reserved.
    fn hand_out(&mut self, base: u64, bytes: u64) -> Region {
        let region = Region { id: self.next, base, bytes };
        self.next += 1;
        self.out.insert(region.id, region);
        self.usage.calls += 1;
        self.usage.handles += 1;
        // What is still being taken has no part in the peak: it may be cancelled.
        self.usage.peak_reserved = self.usage.peak_reserved.max(self.usage.reserved - self.taking);
        region
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

/// A region to take, out of the capacity already.
pub(crate) struct TakeJob {
    kind: MemoryKind,
    bytes: u64,
}

impl TakeJob {
    /// Takes the region, and fills it with zeros if `zero`; returns its first address.
    ///
    /// # Errors
    /// The number of driver calls, if one was refused: nothing is taken then.
    pub(crate) fn run<B: Backend>(&self, context: &BackendContext<B>, zero: bool) -> Result<u64, u64> {
        context.health.check().map_err(|_| 0_u64)?;
        let taken = context.afford(self.bytes, || context.backend.take(self.kind, self.bytes)).map_err(|_| 0_u64)?;
        let base = taken.map_err(|fault| context.health.note(fault)).map_err(|_| 1_u64)?;
        // SAFETY: taken in the line above, and not used yet.
        if zero && unsafe { context.zero(base, self.bytes) }.map_err(|fault| context.health.note(fault)).is_err() {
            // SAFETY: taken above, and nothing uses it: a fill that was begun was waited for.
            let _ = insist(|| unsafe { context.backend.give_back(self.kind, base, self.bytes) });
            return Err(2);
        }
        Ok(base)
    }
}

impl<B: Backend> Source for Regions<B> {
    fn take(&mut self, bytes: u64) -> Result<Region, SourceError> {
        if let Some((base, _)) = self.taken.take_if(|(_, of)| *of == bytes) {
            self.taking -= bytes;
            return Ok(self.hand_out(base, bytes));
        }
        self.has_room(bytes)?;
        self.context.health.check().map_err(|fault| self.refused(fault))?;
        let taken = self.context.afford(bytes, || self.context.backend.take(self.kind, bytes))?;
        let base = taken.map_err(|fault| self.refused(fault))?;
        self.usage.reserved += bytes;
        Ok(self.hand_out(base, bytes))
    }

    fn take_later(&mut self, bytes: u64) -> Result<(), SourceError> {
        self.has_room(bytes)?;
        self.context.health.check().map_err(|fault| self.refused(fault))?;
        self.usage.reserved += bytes;
        self.taking += bytes;
        Ok(())
    }

    fn cancel_take(&mut self, bytes: u64) {
        self.usage.reserved -= bytes;
        self.taking -= bytes;
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
