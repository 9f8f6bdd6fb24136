//! The store: pieces in slabs, and a log that says which of them are durable.
//!
//! ```text
//!   put ──► piece: bytes + checksum in an extent of a slab, where nobody has anything       (gone after a restart)
//!   commit ──► slabs synced ──► records on the log, two copies ──► log synced ──► map       (there after a power cut)
//!
//!   directory   terrace.superblock      [ identity, and how much of which log is durable at least ]
//!               terrace-00000001.slab   [ piece | free | piece ... ]        all space taken when it is made
//!               terrace-00000001.log    [ snapshot | group | group ... | same again ]
//! ```
//!
//! Promises upward: what is read is what was put, or an error; what was committed is there after a power cut, whole; nothing is
//! ever overwritten in place; files together never take more than the cap.
//! Asks from below: a [`Disk`], [`Executor`] that somebody runs, [`FramePool`].
//!
//! | file | what it is |
//! | --- | --- |
//! | `space`, `extent` | slabs, stretches of them, and what a sync has covered |
//! | `piece` | bytes in an extent: put, get, copy |
//! | `superblock` | which store this is, and what is durable at least |
//! | `block`, `record` | the form of a log |
//! | `log` | groups at the log's end; the next log |
//! | `map` | what is durable |
//! | `commit` | many commits, one flush |
//! | `read`, `open` | a log read back |
//! | `compact` | empty and thin slabs |

mod block;
mod commit;
mod compact;
mod error;
mod extent;
mod files;
mod log;
mod log_writer;
mod map;
mod open;
mod options;
mod piece;
mod piece_io;
mod read;
mod record;
mod shared;
mod space;
mod superblock;

pub use error::StoreError;
pub use map::{Change, Object};
pub use options::StoreOptions;
pub use piece::Piece;
pub use piece_io::PutResult;
pub use record::{MAX_META_BYTES, MAX_PARTS};

use crate::disk::{Claimed, Disk};
use crate::executor::Executor;
use crate::fault::FileFault;
use crate::frame::{Frame, FramePool};
use crate::join::JoinHandle;
use shared::StoreShared;
use std::fmt;
use std::sync::Arc;
use terrace_guard::Kept;

/// How full a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreStats {
    /// Bytes that its files take.
    pub disk: u64,
    /// Bytes that are kept free besides, for logs to come.
    pub reserved: u64,
    /// Bytes that pieces take, rounded to pages.
    pub live: u64,
    /// Bytes that its files may take.
    pub cap: u64,
    /// Objects that are durable.
    pub objects: usize,
}

/// A store. Clones are the same. What was begun ends, whether or not somebody waits for it. In a forked child it is refused with
/// [`FileFaultReason::Forked`](crate::FileFaultReason::Forked), has no objects, and is dropped without a word.
#[derive(Clone)]
pub struct Store {
    shared: Kept<Arc<StoreShared>>,
    tasks: Executor,
}

impl Store {
    /// Opens what is on the disk, or begins anew. Other files are not touched.
    ///
    /// # Errors
    /// [`StoreError::Foreign`], [`StoreError::Older`], [`StoreError::Newer`], [`StoreError::OtherStore`],
    /// [`StoreError::Damaged`], [`StoreError::BadNumber`]: nothing was changed. [`StoreError::CapTooSmall`]: everything is still there, and nothing was
    /// changed unless free room is too scattered to move pieces to. [`StoreError::BadOptions`]; the disk's.
    pub fn open(
        disk: Arc<dyn Disk>,
        tasks: &Executor,
        frames: &FramePool,
        options: StoreOptions,
    ) -> JoinHandle<Result<Self, StoreError>> {
        let (own, frames) = (tasks.clone(), frames.clone());
        let opened = tasks.spawn(async move {
            let shared = open::open(Claimed::new(disk)?, frames, options).await?;
            Ok(Self { shared: Kept::new(Arc::new(shared)), tasks: own })
        });
        opened.in_child(|| Err(StoreError::forked()))
    }

    /// Writes the front of a frame. It is there until the piece is dropped, and durable only when it is committed.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::TooLarge`]; the disk's, when another place did not do either.
    pub fn put(&self, frame: Frame, bytes: usize) -> JoinHandle<PutResult> {
        let shared = Arc::clone(&self.shared);
        let put = self.tasks.spawn(async move { shared.put(frame, bytes).await });
        put.in_child(|| PutResult { result: Err(StoreError::forked()), frame: None })
    }

    /// Reads a piece, into the front of a frame. Waits while there is no frame: give others back.
    ///
    /// # Errors
    /// That what is there is not what was put, twice; the disk's.
    pub fn get(&self, piece: &Arc<Piece>) -> JoinHandle<Result<Frame, StoreError>> {
        let (shared, piece) = (Arc::clone(&self.shared), Arc::clone(piece));
        let got = self.tasks.spawn(async move { shared.get(&piece).await });
        got.in_child(|| Err(StoreError::forked()))
    }

    /// Makes changes durable, all or none of them. Commits that wait together share their flushes.
    ///
    /// # Errors
    /// What stood in the way: nothing of it is in the map then; after a power cut, all of it may be, or nothing.
    /// [`StoreError::LogGone`] is final: no later commit succeeds. For
    /// [`StoreError::Full`], nothing: the next log, with more objects and parts to say, would pass the cap.
    pub fn commit(&self, changes: Vec<Change>) -> JoinHandle<Result<(), StoreError>> {
        let shared = Arc::clone(&self.shared);
        let committed = self.tasks.spawn(async move { shared.commit(changes).await });
        committed.in_child(|| Err(StoreError::forked()))
    }

    /// Gives back what it can: removes empty slabs but one, and empties a thin one. One step of maintenance.
    ///
    /// # Errors
    /// The disk's; nothing is lost.
    pub fn compact(&self) -> JoinHandle<Result<(), StoreError>> {
        let shared = Arc::clone(&self.shared);
        let compacted = self.tasks.spawn(async move {
            let mut log = shared.log.lock().await;
            match log.as_mut() {
                Some(log) => shared.compact(log).await,
                None => Ok(()),
            }
        });
        compacted.in_child(|| Err(StoreError::forked()))
    }

    /// Numbers of the objects that are durable.
    pub fn objects(&self) -> Vec<u64> {
        if self.shared.is_own() { self.shared.map().objects.keys().copied().collect() } else { Vec::new() }
    }

    /// A durable object.
    pub fn object(&self, object: u64) -> Option<Object> {
        if self.shared.is_own() { self.shared.map().objects.get(&object).cloned() } else { None }
    }

    /// Whether what made the disk refuse is gone, as far as that is seen at once.
    pub fn has_recovered(&self, fault: &FileFault) -> bool {
        self.shared.is_own() && self.shared.disk.has_recovered(fault, self.shared.options.slab_bytes)
    }

    /// How full it is.
    pub fn stats(&self) -> StoreStats {
        if !self.shared.is_own() {
            return StoreStats { disk: 0, reserved: 0, live: 0, cap: self.shared.options.cap, objects: 0 };
        }
        let ([disk, live, reserved, cap], objects) = (self.shared.space.usage(), self.shared.map().objects.len());
        StoreStats { disk, reserved, live, cap, objects }
    }

    /// Checks what must always hold.
    ///
    /// # Errors
    /// The clause that is broken.
    pub fn check(&self) -> Result<(), String> {
        if !self.shared.is_own() {
            return Err(StoreError::forked().to_string());
        }
        self.shared.space.check()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
