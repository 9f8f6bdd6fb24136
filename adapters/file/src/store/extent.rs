//! Extents: stretches of slabs.
//!
//! Promises upward: an extent is its holder's alone, and goes back when it is dropped.

use super::space::Space;
use crate::disk::StoreFile;
use crate::frame::ALIGN;
use std::sync::Arc;
use terrace_core::{Allocator, Block, Owner};

/// A stretch of a slab, its holder's alone. Dropped, it goes back.
#[derive(Debug)]
pub(super) struct Extent {
    space: Arc<Space>,
    slab: u32,
    block: Block,
    /// Which write of the slab's it was; 0 for what was durable when the store was opened.
    stamp: u64,
    /// It does not go back.
    poisoned: bool,
}

/// Whether a piece survives a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// It does.
    Durable,
    /// Once this slab is synced; `true`: and the directory.
    NeedsSync(u32, bool),
    /// Never, in this slab: it must be written elsewhere.
    Suspect(u32),
}

impl Extent {
    /// An extent of a slab with room for `bytes`, rounded up to pages; `None` when no open slab has that room.
    pub(super) fn allocate(space: &Arc<Space>, bytes: u64) -> Option<Self> {
        space.allocate(bytes).map(|(slab, block)| Self::new(space, slab, block))
    }

    /// The extent that a log names; `None` without such a slab, or where another extent overlaps.
    pub(super) fn claim(space: &Arc<Space>, slab: u32, offset: u64, bytes: u64) -> Option<Self> {
        space.claim(slab, offset, bytes).map(|block| Self::new(space, slab, block))
    }

    fn new(space: &Arc<Space>, slab: u32, block: Block) -> Self {
        Self { space: Arc::clone(space), slab, block, stamp: 0, poisoned: false }
    }

    /// Whether it is a stretch of that space's slabs.
    pub(super) fn is_in(&self, space: &Arc<Space>) -> bool {
        Arc::ptr_eq(&self.space, space)
    }

    /// The file it is in.
    pub(super) fn file(&self) -> StoreFile {
        StoreFile::Slab(self.slab)
    }

    /// Its slab's number.
    pub(super) fn slab(&self) -> u32 {
        self.slab
    }

    /// Its first byte in the file.
    pub(super) fn offset(&self) -> u64 {
        self.block.address - ALIGN as u64
    }

    /// It was written.
    pub(super) fn mark_written(&mut self) {
        let mut state = self.space.state();
        if let Some(area) = state.areas.get_mut(&self.slab) {
            area.written += 1;
            self.stamp = area.written;
        }
    }

    /// What must be done for it to be durable.
    pub(super) fn durability(&self) -> Durability {
        let state = self.space.state();
        let Some(area) = state.areas.get(&self.slab) else { return Durability::Suspect(self.slab) };
        // Once durable, always.
        // seeded: sync_covers: self.stamp <= area.synced => true
        // seeded: slab_named: area.name_durable => true
        match self.stamp == 0 || (self.stamp <= area.synced && area.name_durable) {
            true => Durability::Durable,
            // seeded: slab_suspect: area.suspect => false
            false if area.suspect => Durability::Suspect(self.slab),
            false => Durability::NeedsSync(self.slab, !area.name_durable),
        }
    }

    /// Never used again until the store is opened anew: the device failed here.
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
            // Refused only for a name that is not live, and this one is.
            let _ = area.range.free(self.block, Owner(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
