//! Pieces: bytes in a slab, with their checksum.
//!
//! Promises upward: a piece is written where nobody has anything, and read as it was written or not at all; a write that fails
//! is tried elsewhere, a read that fails once more; a piece can be moved while others read it.
//! Asks from below: room ([`Space`]), and a disk.

use super::error::StoreError;
use super::extent::{Durability, Extent};
use super::record::PieceEntry;
use super::space::Space;
use crate::disk::StoreFile;
use crate::frame::ALIGN;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes in a store, as they were put. Dropped by all who have it, its room is free.
#[derive(Debug)]
pub struct Piece {
    location: Mutex<Location>,
    bytes: u32,
    pub(super) crc: u32,
}

#[derive(Clone, Debug)]
enum Location {
    /// Here.
    Held(Arc<Extent>),
    /// A log says it is here, but there is no such slab, or (`there`) this is not in it, or is another's.
    Lost { space: Arc<Space>, slab: u32, page: u32, there: bool },
}

impl Piece {
    /// Bytes of it.
    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    fn location(&self) -> MutexGuard<'_, Location> {
        self.location.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece in an extent that holds its bytes.
    pub(super) fn new(extent: Extent, bytes: u32, crc: u32) -> Self {
        Self { location: Mutex::new(Location::Held(Arc::new(extent))), bytes, crc }
    }

    /// As a log says it; without an extent, where it cannot be, and whether its slab is there.
    pub(super) fn recovered(entry: &PieceEntry, extent: Result<Extent, bool>, space: &Arc<Space>) -> Self {
        let lost = |there| Location::Lost { space: Arc::clone(space), slab: entry.slab, page: entry.page, there };
        let location = extent.map_or_else(lost, |extent| Location::Held(Arc::new(extent)));
        Self { location: Mutex::new(location), bytes: entry.bytes, crc: entry.crc }
    }

    /// Whether it was put into the store that has this space, or found there.
    pub(super) fn is_in(&self, space: &Arc<Space>) -> bool {
        match &*self.location() {
            Location::Held(extent) => extent.is_in(space),
            Location::Lost { space: of, .. } => Arc::ptr_eq(of, space),
        }
    }

    /// As a log should say it.
    pub(super) fn entry(&self, object: u64, part: u32) -> PieceEntry {
        let (slab, page) = match &*self.location() {
            Location::Held(extent) => (extent.slab(), (extent.offset() / ALIGN as u64) as u32),
            Location::Lost { slab, page, .. } => (*slab, *page),
        };
        PieceEntry { object, part, slab, page, bytes: self.bytes, crc: self.crc }
    }

    /// What must be done for it to be durable; what is lost already cannot be lost.
    pub(super) fn durability(&self) -> Durability {
        match &*self.location() {
            Location::Held(extent) => extent.durability(),
            Location::Lost { .. } => Durability::Durable,
        }
    }

    /// Its slab, if that is one of those, and where in it.
    pub(super) fn location_in(&self, slabs: &BTreeSet<u32>) -> Option<(u32, u64)> {
        match &*self.location() {
            Location::Held(extent) if slabs.contains(&extent.slab()) => Some((extent.slab(), extent.offset())),
            _ => None,
        }
    }

    /// Is where another with the same bytes is. Who reads it meanwhile reads it where it was.
    pub(super) fn relocate_to(&self, other: &Self) {
        let new = other.location().clone();
        let old = std::mem::replace(&mut *self.location(), new);
        // After the lock: what it had goes back to the space, under the space's lock.
        drop(old);
    }

    /// Where it is.
    pub(super) fn extent(&self) -> Result<Arc<Extent>, StoreError> {
        match &*self.location() {
            Location::Held(extent) => Ok(Arc::clone(extent)),
            Location::Lost { slab, page, there, .. } => {
                // seeded: slab_gone: *there => true
                Err(StoreError::lost(StoreFile::Slab(*slab), u64::from(*page) * ALIGN as u64, *there))
            }
        }
    }

    /// Bytes that are moved for it.
    pub(super) fn rounded(&self) -> usize {
        self.bytes().next_multiple_of(ALIGN)
    }
}
