//! What the operations of a store share.

use super::block::FRAME;
use super::error::StoreError;
use super::log::Log;
use super::map::{Change, ObjectMap};
use super::options::StoreOptions;
use super::space::Space;
use crate::disk::{Claimed, StoreFile};
use crate::frame::FramePool;
use futures_channel::oneshot;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The changes of a commit that waits for the log, and the sender for its result.
#[derive(Debug)]
pub(super) struct PendingCommit {
    pub changes: Vec<Change>,
    pub reply: oneshot::Sender<Result<(), StoreError>>,
}

pub(super) struct StoreShared {
    pub disk: Claimed,
    pub frames: FramePool,
    /// Bytes of the largest frame that a read may wait for: those of the pool less the two frames that the log keeps.
    pub largest: usize,
    pub options: StoreOptions,
    pub space: Arc<Space>,
    /// Locked while a slab is created, and while files are removed whose bytes still count against the cap. Lock order:
    /// `log`, then `growing`.
    pub growing: async_lock::Mutex<()>,
    pub map: Mutex<ObjectMap>,
    /// Locked by the writer of the log. `None` until the store is open.
    pub log: async_lock::Mutex<Option<Log>>,
    pub pending: Mutex<Vec<PendingCommit>>,
    /// The log or the superblock, once another program has removed it or taken its name.
    pub gone: OnceLock<StoreFile>,
}

impl StoreShared {
    pub(super) fn new(
        disk: Claimed,
        frames: FramePool,
        options: StoreOptions,
        space: Arc<Space>,
        map: ObjectMap,
    ) -> Self {
        let (growing, log) = (async_lock::Mutex::new(()), async_lock::Mutex::new(None));
        let largest = frames.usage().1.saturating_sub(2 * FRAME);
        let (map, pending, gone) = (Mutex::new(map), Mutex::default(), OnceLock::new());
        Self { disk, frames, largest, options, space, growing, map, log, pending, gone }
    }

    pub(super) fn map(&self) -> MutexGuard<'_, ObjectMap> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pending(&self) -> MutexGuard<'_, Vec<PendingCommit>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
