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

/// Changes that wait for the log, and who waits for them.
#[derive(Debug)]
pub(super) struct PendingCommit {
    pub changes: Vec<Change>,
    pub reply: oneshot::Sender<Result<(), StoreError>>,
}

pub(super) struct StoreShared {
    pub disk: Claimed,
    pub frames: FramePool,
    /// Bytes of the largest frame that a get can wait for: the log keeps two.
    pub largest: usize,
    pub options: StoreOptions,
    pub space: Arc<Space>,
    /// Held by who makes a slab, or by whom files are more for a while than they will be. Taken after `log`.
    pub growing: async_lock::Mutex<()>,
    pub map: Mutex<ObjectMap>,
    /// Held by who writes the log. `None` only before the store is open.
    pub log: async_lock::Mutex<Option<Log>>,
    pub pending: Mutex<Vec<PendingCommit>>,
    /// The file that lost its name, the log or the superblock.
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
