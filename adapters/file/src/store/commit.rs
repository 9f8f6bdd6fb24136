//! Commits: groups of changes that become durable together.
//!
//! ```text
//!   commit ──► pending ──► the holder of the log takes all that wait:  pieces durable ──► log durable ──► map ──► results
//! ```
//!
//! Promises upward: all commits that wait share one flush of the log; a commit that fails does not fail the others; pieces are
//! durable before a log names them.
//! Asks from below: a log, and slabs that can be synced.

use super::error::StoreError;
use super::extent::Durability;
use super::log::Log;
use super::map::{Change, Updates};
use super::shared::{PendingCommit, StoreShared};
use crate::disk::StoreFile;
use futures_channel::oneshot;
use std::collections::BTreeSet;

/// How often a commit tries to make its pieces durable: where they lie, and once more after moving them.
const ROUNDS: usize = 2;

impl StoreShared {
    /// Makes the changes of one commit durable, all or none.
    pub(super) async fn commit(&self, changes: Vec<Change>) -> Result<(), StoreError> {
        // seeded: change_admitted: changes.iter().try_for_each(|change| change.check(&self.space))? => ()
        changes.iter().try_for_each(|change| change.check(&self.space))?;
        let (reply, outcome) = oneshot::channel();
        self.pending().push(PendingCommit { changes, reply });
        let mut log = self.log.lock().await;
        let group = std::mem::take(&mut *self.pending());
        // `group` is empty if another commit has written these changes together with its own.
        if let Some(log) = log.as_mut().filter(|_| !group.is_empty()) {
            self.commit_all(log, group).await;
        }
        drop(log);
        // The first task that locked the log after the push above has written these changes, and has sent the result.
        outcome.await.unwrap_or(Err(StoreError::BadOptions("a commit was lost")))
    }

    /// Commits all changes of `group` at once; if that fails, commits the changes of each pending commit by themselves.
    async fn commit_all(&self, log: &mut Log, group: Vec<PendingCommit>) {
        let all: Vec<Change> = group.iter().flat_map(|pending| &pending.changes).cloned().collect();
        match self.commit_group(log, &all).await {
            Err(_) if group.len() > 1 => {
                for PendingCommit { changes, reply } in group {
                    let _ = reply.send(self.commit_group(log, &changes).await);
                }
            }
            outcome => group.into_iter().for_each(|pending| _ = pending.reply.send(outcome.clone())),
        }
    }

    /// Makes a group of changes durable, then applies it to the map. The caller must hold the lock of the log.
    pub(super) async fn commit_group(&self, log: &mut Log, group: &[Change]) -> Result<(), StoreError> {
        // seeded: log_gone_for_good: self.gone.get() => None::<&StoreFile>
        if let Some(&file) = self.gone.get() {
            return Err(StoreError::LogGone { file });
        }
        self.make_pieces_durable(group).await?;
        let (touched, bytes) = self.preview(group);
        self.grow_reserve(log, bytes).await?;
        self.record(log, group, &touched).await?;
        let replaced = self.map().apply(touched);
        // Drop after the map is unlocked: dropping the last reference to a piece locks the space to free its extent.
        drop(replaced);
        Ok(())
    }

    /// The objects that a group changes, as they are afterwards, and the bytes of a snapshot's records then.
    fn preview(&self, group: &[Change]) -> (Updates, u64) {
        let map = self.map();
        let touched = map.after(group.iter());
        let bytes = map.bytes_after(&touched);
        (touched, bytes)
    }

    /// Makes the pieces of a group durable: moves those in suspect slabs (a sync of them has failed) to other slabs,
    /// then syncs.
    async fn make_pieces_durable(&self, group: &[Change]) -> Result<(), StoreError> {
        let pieces = || group.iter().filter_map(Change::piece);
        let mut last = Ok(());
        for _ in 0..ROUNDS {
            for piece in pieces() {
                if let Durability::Suspect(_) = piece.durability() {
                    piece.relocate_to(&self.copy(piece).await?);
                }
            }
            let (mut slabs, mut names, mut done) = (BTreeSet::new(), false, Ok(()));
            for piece in pieces() {
                match piece.durability() {
                    Durability::Durable => {}
                    Durability::NeedsSync(slab, unnamed) => {
                        slabs.insert(slab);
                        names |= unnamed;
                    }
                    // A sync of the slab has failed since the loop above.
                    // unseeded: suspect_refused: no sync is under way beside that of the holder of the log
                    Durability::Suspect(slab) => done = Err(StoreError::unsynced(StoreFile::Slab(slab))),
                }
            }
            last = self.sync_slabs(slabs, names).await.and(done);
            if last.is_ok() {
                return Ok(());
            }
        }
        last
    }

    /// Syncs slabs in parallel, then the directory if `names` is set: the name of some slab is not durable yet.
    async fn sync_slabs(&self, slabs: BTreeSet<u32>, names: bool) -> Result<(), StoreError> {
        let mut under_way = Vec::new();
        for slab in slabs {
            let reach = self.space.begin_sync(slab);
            // seeded: slab_sync: under_way.push((slab, reach, self.sync(StoreFile::Slab(slab)))) => ()
            under_way.push((slab, reach, self.sync(StoreFile::Slab(slab))));
        }
        let mut outcome = Ok(());
        for (slab, reach, sync) in under_way {
            let synced = sync.await;
            self.space.end_sync(slab, reach, synced.is_ok());
            // seeded: slab_sync_outcome: outcome.and(synced) => outcome
            outcome = outcome.and(synced);
        }
        // seeded: slab_name_sync: names => false
        if names {
            outcome = outcome.and(self.sync_directory().await);
        }
        outcome
    }
}
