//! Pieces: bytes in an extent of a slab, with their checksum.
//!
//! Promises upward: a piece may be relocated while others read it: they read the extent that they found.
//! Asks from below: extents.

use super::error::StoreError;
use super::extent::{Durability, Extent};
use super::record::PieceEntry;
use super::space::Space;
use crate::disk::StoreFile;
use crate::frame::ALIGN;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Immutable bytes in a store. When the last reference is dropped, their space is freed.
#[derive(Debug)]
pub struct Piece {
    location: Mutex<Location>,
    bytes: u32,
    pub(super) crc: u32,
}

#[derive(Clone, Debug)]
enum Location {
    /// The extent that holds the bytes.
    Held(Arc<Extent>),
    /// The log names a range that cannot be read: its slab is missing, or exists (`there`) and is too short, or another
    /// piece overlaps.
    Lost { space: Arc<Space>, slab: u32, page: u32, there: bool },
}

impl Piece {
    /// Number of bytes of the piece.
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

    /// A piece that a log names. `extent`: where it lies or, if it is lost, whether its slab exists.
    pub(super) fn recovered(entry: &PieceEntry, extent: Result<Extent, bool>, space: &Arc<Space>) -> Self {
        let lost = |there| Location::Lost { space: Arc::clone(space), slab: entry.slab, page: entry.page, there };
        let location = extent.map_or_else(lost, |extent| Location::Held(Arc::new(extent)));
        Self { location: Mutex::new(location), bytes: entry.bytes, crc: entry.crc }
    }

    /// Whether the piece is in the store that has this space.
    pub(super) fn is_in(&self, space: &Arc<Space>) -> bool {
        match &*self.location() {
            Location::Held(extent) => extent.is_in(space),
            Location::Lost { space: of, .. } => Arc::ptr_eq(of, space),
        }
    }

    /// The log entry that names this piece as part `part` of object `object`.
    pub(super) fn entry(&self, object: u64, part: u32) -> PieceEntry {
        let (slab, page) = match &*self.location() {
            Location::Held(extent) => (extent.slab(), (extent.offset() / ALIGN as u64) as u32),
            Location::Lost { slab, page, .. } => (*slab, *page),
        };
        PieceEntry { object, part, slab, page, bytes: self.bytes, crc: self.crc }
    }

    /// What the piece still needs to survive a power cut; a lost piece needs nothing.
    pub(super) fn durability(&self) -> Durability {
        match &*self.location() {
            Location::Held(extent) => extent.durability(),
            Location::Lost { .. } => Durability::Durable,
        }
    }

    /// The piece's slab and offset, if the slab is one of `slabs`.
    pub(super) fn location_in(&self, slabs: &BTreeSet<u32>) -> Option<(u32, u64)> {
        match &*self.location() {
            Location::Held(extent) if slabs.contains(&extent.slab()) => Some((extent.slab(), extent.offset())),
            _ => None,
        }
    }

    /// Moves the piece to the location of `other`, a copy of it. Reads in flight keep the old extent alive.
    pub(super) fn relocate_to(&self, other: &Self) {
        let new = other.location().clone();
        let old = std::mem::replace(&mut *self.location(), new);
        // Drop after the location is unlocked: freeing the old extent locks the space.
        drop(old);
    }

    /// The extent that holds the bytes.
    pub(super) fn extent(&self) -> Result<Arc<Extent>, StoreError> {
        match &*self.location() {
            Location::Held(extent) => Ok(Arc::clone(extent)),
            Location::Lost { slab, page, there, .. } => {
                // seeded: slab_gone: *there => true
                Err(StoreError::lost(StoreFile::Slab(*slab), u64::from(*page) * ALIGN as u64, *there))
            }
        }
    }

    /// Number of bytes that a read or write of the piece moves: whole pages.
    pub(super) fn rounded(&self) -> usize {
        self.bytes().next_multiple_of(ALIGN)
    }
}
