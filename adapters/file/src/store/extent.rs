//! Extents: allocated ranges of slabs.
//!
//! Promises upward: an extent belongs to its holder alone, and is freed on drop.

use super::space::Space;
use crate::disk::StoreFile;
use crate::frame::ALIGN;
use std::sync::Arc;
use terrace_core::{Allocator, Block, Owner};

/// An allocated range of a slab, freed on drop.
#[derive(Debug)]
pub(super) struct Extent {
    space: Arc<Space>,
    slab: u32,
    block: Block,
    /// Number of the write to the slab that filled the extent, counted from 1. 0 if no write has filled it yet, or if
    /// it was durable when the store was opened.
    stamp: u64,
    /// Whether the range stays allocated on drop.
    poisoned: bool,
}

/// What an extent still needs to survive a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// The extent is durable, and needs nothing.
    Durable,
    /// A sync of the slab with this number and, if the flag is set, of the directory.
    NeedsSync(u32, bool),
    /// A move to another slab: a sync of the slab with this number has failed.
    Suspect(u32),
}

impl Extent {
    /// Allocates `bytes` bytes, rounded up to pages; `None` if no slab that is open for allocation has room.
    pub(super) fn allocate(space: &Arc<Space>, bytes: u64) -> Option<Self> {
        space.allocate(bytes).map(|(slab, block)| Self::new(space, slab, block))
    }

    /// Allocates the range that a log names; `None` if the slab does not exist, or the range overlaps an allocated one.
    pub(super) fn claim(space: &Arc<Space>, slab: u32, offset: u64, bytes: u64) -> Option<Self> {
        space.claim(slab, offset, bytes).map(|block| Self::new(space, slab, block))
    }

    fn new(space: &Arc<Space>, slab: u32, block: Block) -> Self {
        Self { space: Arc::clone(space), slab, block, stamp: 0, poisoned: false }
    }

    /// Whether the extent belongs to this space.
    pub(super) fn is_in(&self, space: &Arc<Space>) -> bool {
        Arc::ptr_eq(&self.space, space)
    }

    /// The file of the extent's slab.
    pub(super) fn file(&self) -> StoreFile {
        StoreFile::Slab(self.slab)
    }

    /// The number of the extent's slab.
    pub(super) fn slab(&self) -> u32 {
        self.slab
    }

    /// Offset in the slab's file at which the extent begins, in bytes.
    pub(super) fn offset(&self) -> u64 {
        self.block.address - ALIGN as u64
    }

    /// Records that a write to the extent has completed.
    pub(super) fn mark_written(&mut self) {
        let mut state = self.space.state();
        if let Some(area) = state.areas.get_mut(&self.slab) {
            area.written += 1;
            self.stamp = area.written;
        }
    }

    /// What the extent still needs to survive a power cut.
    pub(super) fn durability(&self) -> Durability {
        let state = self.space.state();
        let Some(area) = state.areas.get(&self.slab) else { return Durability::Suspect(self.slab) };
        // An extent that a sync has covered stays durable, even if a later sync of its slab fails.
        // seeded: sync_covers: self.stamp <= area.synced => true
        // seeded: slab_named: area.name_durable => true
        match self.stamp == 0 || (self.stamp <= area.synced && area.name_durable) {
            true => Durability::Durable,
            // seeded: slab_suspect: area.suspect => false
            false if area.suspect => Durability::Suspect(self.slab),
            false => Durability::NeedsSync(self.slab, !area.name_durable),
        }
    }

    /// Keeps the range allocated until the store is opened again: the device failed here.
    pub(super) fn poison(mut self) {
        // seeded: poison: self.poisoned = true => ()
        self.poisoned = true;
    }
}

impl Drop for Extent {
    fn drop(&mut self) {
        if self.poisoned || !self.space.process.is_current() {
            return;
        }
        let mut state = self.space.state();
        if let Some(area) = state.areas.get_mut(&self.slab) {
            // `free` fails only for a block that is not allocated.
            let _ = area.range.free(self.block, Owner(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_durable_once_its_slab_is_synced() {
        let space = Arc::new(Space::new(1 << 20));
        space.add(1, 2 * ALIGN as u64, true).expect("a slab of two pages");
        let mut extent = Extent::allocate(&space, ALIGN as u64).expect("room");
        extent.mark_written();
        assert_eq!(extent.durability(), Durability::NeedsSync(1, false));
        let reach = space.begin_sync(1);
        space.end_sync(1, reach, true);
        assert_eq!(extent.durability(), Durability::Durable);
        extent.mark_written();
        assert_eq!(extent.durability(), Durability::NeedsSync(1, false), "that sync reached no further");
    }

    #[test]
    fn a_poisoned_extent_keeps_its_room_and_not_the_space() {
        let space = Arc::new(Space::new(1 << 20));
        space.add(1, 2 * ALIGN as u64, true).expect("a slab of two pages");
        let extent = || Extent::allocate(&space, ALIGN as u64).expect("room");
        let kept = extent();
        extent().poison();
        assert!(Extent::allocate(&space, ALIGN as u64).is_none(), "one page is held, the other is poisoned");
        drop(kept);
        assert_eq!((space.usage()[1], Arc::strong_count(&space)), (ALIGN as u64, 1));
    }
}
