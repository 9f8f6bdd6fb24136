//! Keeping the files few: empty slabs go, thin ones are emptied into others.
//!
//! Promises upward: what is moved is durable in its new place before its old one is free; a store that is over its cap gets
//! below it, or says how much it needs.

use super::error::StoreError;
use super::log::{Log, file_bytes};
use super::map::Change;
use super::{Piece, Shared, superblock};
use crate::disk::File;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Empty slabs that are kept, so that a store that breathes does not make and remove files.
const SPARE: usize = 1;

/// A slab with less than a quarter in use is emptied: moving a byte frees three.
const THIN: u64 = 4;

/// Bytes that are moved before a group is made of them: commits wait meanwhile.
const BATCH: u64 = 8 << 20;

impl Shared {
    /// Removes what nobody needs, and empties one slab that is thin.
    pub(super) async fn tidy(&self, log: &mut Log) -> Result<(), StoreError> {
        self.remove_vacant(log, SPARE).await;
        match self.space.retire_thinnest(|used, bytes| used < bytes / THIN) {
            Some(slab) => {
                let moved = self.vacate(log, slab).await;
                // Pieces that are not durable are left in it: then it stays in use.
                self.space.reopen(slab);
                self.remove_vacant(log, SPARE).await;
                moved
            }
            None => Ok(()),
        }
    }

    /// Refuses what [`fit`](Self::fit) would not get below the cap, before anything is changed.
    ///
    /// # Errors
    /// [`StoreError::CapTooSmall`].
    pub(super) fn check_fit(&self, log: &Log) -> Result<(), StoreError> {
        let needs = self.space.least() + 2 * file_bytes(log.ahead) + superblock::BYTES;
        let [.., cap] = self.space.usage();
        if needs > cap { Err(StoreError::CapTooSmall { needs, cap }) } else { Ok(()) }
    }

    /// Gets below the cap.
    pub(super) async fn fit(&self, log: &mut Log) -> Result<(), StoreError> {
        if self.space.is_over() {
            self.remove_vacant(log, 0).await;
        }
        while self.space.is_over() {
            let logs = log.bytes() + log.reserve(log.ahead);
            let too_small = || {
                let [_, live, _, cap] = self.space.usage();
                StoreError::CapTooSmall { needs: live + logs + superblock::BYTES, cap }
            };
            let slab = self.space.retire_thinnest(|_, _| true).ok_or_else(too_small)?;
            self.vacate(log, slab).await.map_err(|error| match error {
                StoreError::Full { .. } => too_small(),
                other => other,
            })?;
            self.remove_vacant(log, 0).await;
        }
        Ok(())
    }

    async fn remove_vacant(&self, log: &mut Log, keep: usize) {
        // Who finds no room meanwhile waits, and then looks again: what is being removed still counts.
        let _growing = self.growing.lock().await;
        let vacant = self.space.take_vacant(keep);
        log.garbage.extend(vacant.into_iter().map(|(slab, bytes)| (File::Slab(slab), bytes)));
        self.sweep(log).await;
    }

    /// Moves what is durable out of a slab.
    async fn vacate(&self, log: &mut Log, slab: u32) -> Result<(), StoreError> {
        let moved = self.vacate_all(log, slab).await;
        if moved.is_err() {
            self.space.reopen(slab);
        }
        moved
    }

    async fn vacate_all(&self, log: &mut Log, slab: u32) -> Result<(), StoreError> {
        let mut left = self.durable_in(slab);
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
            olds.iter().for_each(|(old, new)| old.follow(new));
        }
        Ok(())
    }

    /// What is durable in a slab, by its place there: one piece may be several parts.
    fn durable_in(&self, slab: u32) -> BTreeMap<u64, Vec<(u64, u32, Arc<Piece>)>> {
        let mut found = BTreeMap::<_, Vec<_>>::new();
        for (id, object) in &self.map().objects {
            for (part, piece) in &object.parts {
                if let Some(offset) = piece.offset_in(slab) {
                    found.entry(offset).or_default().push((*id, *part, Arc::clone(piece)));
                }
            }
        }
        found
    }
}
