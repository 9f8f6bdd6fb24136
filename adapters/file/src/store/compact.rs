//! Compaction: removes empty slabs, and moves the pieces of sparse slabs to other slabs.
//!
//! Promises upward: a piece is durable in its new extent before the old one is freed; a store over its cap shrinks below it, or
//! the error tells the cap that it needs.

use super::block::file_bytes;
use super::error::StoreError;
use super::log::Log;
use super::map::Change;
use super::piece::Piece;
use super::shared::StoreShared;
use super::space::Space;
use super::superblock;
use crate::disk::StoreFile;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many empty slabs compaction keeps, so that a store whose usage varies does not create and remove files all the
/// time.
const SPARE: usize = 1;

/// A slab is sparse if less than a quarter of it is in use: moving its pieces frees three times the bytes moved, or
/// more.
const SPARSE: u64 = 4;

/// How many bytes compaction moves before it commits their new location. It holds the log meanwhile, so other commits
/// wait.
const BATCH: u64 = 8 << 20;

/// Pieces by slab and offset, each with the objects and parts that refer to it.
type PiecesByLocation = BTreeMap<(u32, u64), Vec<(u64, u32, Arc<Piece>)>>;

impl StoreShared {
    /// Removes unneeded files and empty slabs, then moves the pieces out of one sparse slab.
    pub(super) async fn compact(&self, log: &mut Log) -> Result<(), StoreError> {
        self.remove_vacant(log, SPARE).await;
        let Some(slab) = self.space.retire_sparse() else { return Ok(()) };
        let slabs = BTreeSet::from([slab]);
        let moved = self.evacuate(log, &slabs).await;
        // Pieces that are not durable were not moved: a slab that has some is opened for allocation again.
        self.space.reopen(&slabs);
        self.remove_vacant(log, SPARE).await;
        moved
    }

    /// Fails, before anything is changed, if [`fit`](Self::fit) could not shrink the store below the cap.
    ///
    /// # Errors
    /// [`StoreError::CapTooSmall`].
    pub(super) fn check_fit(&self, log: &Log) -> Result<(), StoreError> {
        let needs = self.space.least_bytes() + 2 * file_bytes(log.next_blocks) + superblock::BYTES;
        let [.., cap] = self.space.usage();
        if needs > cap { Err(StoreError::CapTooSmall { needs, cap }) } else { Ok(()) }
    }

    /// Shrinks the store below the cap. Empties many slabs at once, because finding their pieces takes a walk over all
    /// objects.
    pub(super) async fn fit(&self, log: &mut Log) -> Result<(), StoreError> {
        if self.space.is_over_cap() {
            self.remove_vacant(log, 0).await;
        }
        let mut together = usize::MAX;
        while self.space.is_over_cap() {
            let slabs = self.space.retire_above_cap(together);
            let moved = match slabs.len() {
                0 => Err(self.space.full(0)),
                _ => self.evacuate(log, &slabs).await,
            };
            match moved {
                // Free space is too fragmented: emptying fewer slabs leaves more of it to move pieces to.
                Err(StoreError::Full { .. }) if slabs.len() > 1 => together = slabs.len() / 2,
                Err(StoreError::Full { .. }) => return Err(self.cap_too_small(log)),
                other => other?,
            }
            self.remove_vacant(log, 0).await;
        }
        Ok(())
    }

    /// The error when the durable pieces exceed the cap.
    fn cap_too_small(&self, log: &Log) -> StoreError {
        let [_, live, _, cap] = self.space.usage();
        StoreError::CapTooSmall { needs: live + log.bytes() + log.reserve(log.next_blocks) + superblock::BYTES, cap }
    }

    async fn remove_vacant(&self, log: &mut Log, keep: usize) {
        // The bytes of an empty slab count until its file is removed. A task that finds no room before that waits for
        // this lock, then tries again.
        let _growing = self.growing.lock().await;
        let vacant = self.space.take_vacant(keep);
        log.garbage.extend(vacant.into_iter().map(|(slab, bytes)| (StoreFile::Slab(slab), bytes)));
        self.sweep(log).await;
    }

    /// Moves the durable pieces out of slabs that are closed for allocation; on failure, opens the slabs again.
    async fn evacuate(&self, log: &mut Log, slabs: &BTreeSet<u32>) -> Result<(), StoreError> {
        let moved = self.evacuate_all(log, slabs).await;
        if moved.is_err() {
            self.space.reopen(slabs);
        }
        moved
    }

    async fn evacuate_all(&self, log: &mut Log, slabs: &BTreeSet<u32>) -> Result<(), StoreError> {
        let mut left = self.durable_in(slabs);
        while !left.is_empty() {
            let (mut olds, mut changes, mut bytes) = (Vec::new(), Vec::new(), 0);
            while bytes < BATCH
                && let Some((_, same)) = left.pop_first()
            {
                let piece = Arc::new(self.copy(&same[0].2).await?);
                bytes += piece.bytes() as u64;
                for (object, part, old) in same {
                    olds.push((old, Arc::clone(&piece)));
                    changes.push(Change::Piece { object, part, piece: Arc::clone(&piece) });
                }
            }
            // seeded: moved_is_committed: self.commit_group(log, &changes).await? => ()
            self.commit_group(log, &changes).await?;
            olds.iter().for_each(|(old, new)| old.relocate_to(new));
        }
        Ok(())
    }

    /// The durable pieces in these slabs, by location.
    fn durable_in(&self, slabs: &BTreeSet<u32>) -> PiecesByLocation {
        let mut found = PiecesByLocation::new();
        for (id, object) in &self.map().objects {
            for (part, piece) in object.parts.iter() {
                if let Some(place) = piece.location_in(slabs) {
                    found.entry(place).or_default().push((*id, part, Arc::clone(piece)));
                }
            }
        }
        found
    }
}

impl Space {
    /// Closes the slab with the fewest live bytes for allocation, if it is sparse and its pieces fit into the other
    /// slabs.
    fn retire_sparse(&self) -> Option<u32> {
        let mut state = self.state();
        let open = || state.areas.iter().filter(|(_, area)| !area.retired);
        let (slab, thinnest) = open().min_by_key(|(slab, area)| (area.in_use(), **slab))?;
        let (slab, used) = (*slab, thinnest.in_use());
        let free: u64 = open().filter(|(other, _)| **other != slab).map(|(_, a)| a.bytes - a.in_use()).sum();
        if used > free || used >= thinnest.bytes / SPARSE {
            return None;
        }
        state.areas.get_mut(&slab)?.retired = true;
        Some(slab)
    }

    /// Closes up to `most` slabs for allocation, those with the fewest live bytes first: until the other files fit the
    /// cap, or the pieces of one more slab would not fit into the slabs that stay open.
    fn retire_above_cap(&self, most: usize) -> BTreeSet<u32> {
        let mut state = self.state();
        let open = state.areas.iter().filter(|(_, area)| !area.retired);
        let mut open: Vec<_> = open.map(|(slab, area)| (area.in_use(), *slab, area.bytes)).collect();
        open.sort_unstable();
        let mut over = (state.used() + state.reserve).saturating_sub(state.cap);
        let mut free: u64 = open.iter().map(|(used, _, bytes)| bytes - used).sum();
        let (mut moved, mut slabs) = (0, BTreeSet::new());
        for (used, slab, bytes) in open {
            (free, moved) = (free - (bytes - used), moved + used);
            if over == 0 || slabs.len() == most || moved > free {
                break;
            }
            over = over.saturating_sub(bytes);
            slabs.insert(slab);
        }
        state.areas.iter_mut().for_each(|(slab, area)| area.retired |= slabs.contains(slab));
        slabs
    }

    /// Opens slabs for allocation again, except those whose sync has failed.
    fn reopen(&self, slabs: &BTreeSet<u32>) {
        let mut state = self.state();
        for slab in slabs {
            if let Some(area) = state.areas.get_mut(slab) {
                area.retired = area.suspect;
            }
        }
    }

    /// Bytes of the slabs that remain if slabs are emptied one after the other, the sparsest first, while the rest has
    /// room for all live bytes.
    fn least_bytes(&self) -> u64 {
        let state = self.state();
        let mut areas: Vec<_> = state.areas.values().map(|area| (area.in_use(), area.bytes)).collect();
        areas.sort_unstable();
        let [live, all] = areas.iter().fold([0; 2], |[live, all], (used, bytes)| [live + used, all + bytes]);
        areas.iter().fold(all, |left, (_, bytes)| if left - bytes >= live { left - bytes } else { left })
    }
}
