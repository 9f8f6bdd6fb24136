//! The store: checksummed pieces in slab files, and a log that says which of them are durable.
//!
//! ```text
//!   put ──► piece: bytes + checksum in a free extent of a slab                              (gone after a restart)
//!   commit ──► slabs synced ──► records in the log, two copies ──► log synced ──► map       (survives a power cut)
//!
//!   directory   terrace.superblock      [ identity; which log is durable, and how far at least ]
//!               terrace-00000001.slab   [ piece | free | piece ... ]        all space allocated at creation
//!               terrace-00000001.log    [ snapshot | group | group ... | mirror of the same ]
//! ```
//!
//! Promises upward: a read returns what was put, or an error; what was committed survives a power cut, whole; no write
//! overwrites in place; the files together never exceed the cap.
//! Asks from below: a [`Disk`], an [`Executor`] whose tasks are run, a [`FramePool`].
//!
//! | file, lowest first | what it is |
//! | --- | --- |
//! | `error` | why a store refuses a call |
//! | `record`, `block` | the format of a log: records, and the blocks that hold them |
//! | `space`, `extent` | free space in slabs, allocated extents, and what a sync has covered |
//! | `superblock` | the store's identity, and a lower bound of what is durable |
//! | `options` | limits of a store |
//! | `piece` | bytes in an extent, with their checksum |
//! | `map` | the durable objects, and changes to them |
//! | `read` | a log read back after a restart |
//! | `log` | the state of the log that is being written |
//! | `shared` | what all operations share |
//! | `files` | files created, synced and removed |
//! | `log_writer`, `piece_io` | groups appended to the log, and the next log; pieces written, read and copied |
//! | `commit` | many commits in one flush |
//! | `compact` | slabs emptied and removed |
//! | `open` | recovery |

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
pub use map::{Change, Object, ObjectParts};
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
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use terrace_guard::ProcessOwned;

/// How full a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StoreStats {
    /// Bytes of the store's files on the disk.
    pub disk: u64,
    /// Bytes that are reserved for the next logs, beyond those of the files.
    pub reserved: u64,
    /// Bytes of live pieces, rounded up to pages.
    pub live: u64,
    /// The most bytes that the files may take.
    pub cap: u64,
    /// Number of durable objects.
    pub objects: usize,
}

/// A store of pieces and objects on a [`Disk`]. Clones share it.
///
/// An operation that has begun runs to its end, whether or not its handle is kept. In a forked child every operation fails with
/// [`FileFaultReason::Forked`](crate::FileFaultReason::Forked), and the store has no objects.
#[derive(Clone)]
pub struct Store {
    shared: ProcessOwned<Arc<StoreShared>>,
    tasks: Executor,
}

impl Store {
    /// Opens the store on a disk, or creates one. Files with other names are not touched.
    ///
    /// # Errors
    /// [`StoreError::Foreign`], [`StoreError::Older`], [`StoreError::Newer`], [`StoreError::OtherStore`],
    /// [`StoreError::Damaged`], [`StoreError::BadNumber`]: the store changed nothing. [`StoreError::CapTooSmall`]: all
    /// data is still there, and the store changed nothing unless free space is too fragmented to move pieces.
    /// [`StoreError::BadOptions`]; errors of the disk.
    pub fn open(
        disk: Arc<dyn Disk>,
        tasks: &Executor,
        frames: &FramePool,
        options: StoreOptions,
    ) -> JoinHandle<Result<Self, StoreError>> {
        let (own, frames) = (tasks.clone(), frames.clone());
        let opened = tasks.spawn(async move {
            let shared = open::open(Claimed::new(disk)?, frames, options).await?;
            Ok(Self { shared: ProcessOwned::new(Arc::new(shared)), tasks: own })
        });
        opened.in_child(|| Err(StoreError::forked()))
    }

    /// Writes the first `bytes` bytes of a frame as a piece.
    ///
    /// The piece exists until its last reference is dropped, and survives a restart only once committed.
    ///
    /// # Errors
    /// [`StoreError::Full`], [`StoreError::TooLarge`]; the error of the disk, if writing to a second place failed too.
    pub fn put(&self, frame: Frame, bytes: usize) -> JoinHandle<PutResult> {
        let shared = Arc::clone(&self.shared);
        let put = self.tasks.spawn(async move { shared.put(frame, bytes).await });
        put.in_child(|| PutResult { result: Err(StoreError::forked()), frame: None })
    }

    /// Reads a piece into the front of a frame of the pool.
    ///
    /// Waits while the pool has no room: other holders must return frames for the read to go on.
    ///
    /// # Errors
    /// The checksum does not match, not even after a second read; errors of the disk.
    pub fn get(&self, piece: &Arc<Piece>) -> JoinHandle<Result<Frame, StoreError>> {
        let (shared, piece) = (Arc::clone(&self.shared), Arc::clone(piece));
        let got = self.tasks.spawn(async move { shared.get(&piece).await });
        got.in_child(|| Err(StoreError::forked()))
    }

    /// As [`put`](Self::put), without a task of its own: begins when the future is polled.
    ///
    /// The future must be polled to its end on a thread that the store's tasks do not wait for.
    pub fn put_here(&self, frame: Frame, bytes: usize) -> impl Future<Output = PutResult> + Send + use<> {
        let shared = self.shared.is_own().then(|| Arc::clone(&self.shared));
        async move {
            match shared {
                Some(shared) => shared.put(frame, bytes).await,
                None => PutResult { result: Err(StoreError::forked()), frame: Some(frame) },
            }
        }
    }

    /// As [`get`](Self::get), without a task of its own: begins when the future is polled.
    ///
    /// The piece is read into `frame` if there is one.
    ///
    /// # Errors
    /// As [`get`](Self::get); [`StoreError::TooLarge`] if the frame has fewer bytes than the piece, rounded up to pages.
    pub fn get_here(
        &self,
        piece: &Arc<Piece>,
        frame: Option<Frame>,
    ) -> impl Future<Output = Result<Frame, StoreError>> + Send + use<> {
        let shared = self.shared.is_own().then(|| Arc::clone(&self.shared));
        let piece = Arc::clone(piece);
        async move {
            let shared = shared.ok_or_else(StoreError::forked)?;
            match frame {
                Some(frame) => shared.get_into(&piece, frame).await,
                None => shared.get(&piece).await,
            }
        }
    }

    /// Makes changes durable, all or none of them. Commits that wait at the same time share their syncs.
    ///
    /// # Errors
    /// The cause of the failure. The open store then has none of the changes; after a power cut, recovery may find all
    /// of them or none. [`StoreError::LogGone`] is final: every later commit fails. [`StoreError::Full`]: there is no
    /// room for the next log, which must hold more objects and parts than this one.
    pub fn commit(&self, changes: Vec<Change>) -> JoinHandle<Result<(), StoreError>> {
        let shared = Arc::clone(&self.shared);
        let committed = self.tasks.spawn(async move { shared.commit(changes).await });
        committed.in_child(|| Err(StoreError::forked()))
    }

    /// One maintenance step: removes all empty slabs but one, and empties one sparse slab.
    ///
    /// # Errors
    /// The error of the disk; no piece is lost.
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

    /// Numbers of the durable objects.
    pub fn objects(&self) -> Vec<u64> {
        if self.shared.is_own() { self.shared.map().objects.keys().copied().collect() } else { Vec::new() }
    }

    /// A durable object by its number; `None` if there is none.
    pub fn object(&self, object: u64) -> Option<Object> {
        if self.shared.is_own() { self.shared.map().objects.get(&object).cloned() } else { None }
    }

    /// What `read` returns, given a durable object as it lies; `None` if there is none.
    ///
    /// The object is not copied. It does not change meanwhile: `read` must not call the store, which would wait for it without end.
    pub fn with_object<T>(&self, object: u64, read: impl FnOnce(&Object) -> T) -> Option<T> {
        self.with_objects(|objects| objects.get(&object).map(read))
    }

    /// What `read` returns, given all durable objects by their numbers.
    ///
    /// The objects do not change meanwhile: `read` must not call the store, which would wait for it without end.
    pub fn with_objects<T>(&self, read: impl FnOnce(&BTreeMap<u64, Object>) -> T) -> T {
        if self.shared.is_own() { read(&self.shared.map().objects) } else { read(&BTreeMap::new()) }
    }

    /// Whether the cause of a fault is gone, as far as the disk can tell without waiting.
    pub fn has_recovered(&self, fault: &FileFault) -> bool {
        self.shared.is_own() && self.shared.disk.has_recovered(fault, self.shared.options.slab_bytes)
    }

    /// How full the store is.
    pub fn stats(&self) -> StoreStats {
        if !self.shared.is_own() {
            return StoreStats { disk: 0, reserved: 0, live: 0, cap: self.shared.options.cap, objects: 0 };
        }
        let ([disk, live, reserved, cap], objects) = (self.shared.space.usage(), self.shared.map().objects.len());
        StoreStats { disk, reserved, live, cap, objects }
    }

    /// Checks the store's invariants.
    ///
    /// # Errors
    /// The invariant that is broken.
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
