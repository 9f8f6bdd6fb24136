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
mod log;
mod map;
mod open;
mod piece;
mod read;
mod record;
mod space;
mod superblock;

pub use error::StoreError;
pub use map::{Change, MAX_PARTS, Object};
pub use piece::{Piece, PutResult};
pub use record::MAX_META_BYTES;

use crate::disk::{Claimed, Disk, StoreFile};
use crate::executor::Executor;
use crate::fault::FileFault;
use crate::frame::{ALIGN, Frame, FramePool};
use crate::join::JoinHandle;
use commit::PendingCommit;
use log::Log;
use map::ObjectMap;
use space::Space;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use terrace_guard::Kept;

/// Bytes of the largest step by which a log grows: sums of a few logs stay far below 2^64.
const LOG: u64 = 1 << 40;

/// How much a store may take, and in what files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Bytes that all files together may take.
    pub cap: u64,
    /// Bytes of a slab: no piece is larger, nor larger than 2 GiB less a page.
    pub slab_bytes: u64,
    /// Bytes of a log, or of a step by which it grows: it has room for twice what is to be said of all durable objects (29
    /// bytes for a piece; 11 and the meta data for an object), in two copies. The same again is kept for the next one, in a file
    /// of its own where the disk has room for it.
    pub log_bytes: u64,
}

impl StoreOptions {
    /// For so many bytes on the disk: slabs of a sixty-fourth (1 MiB to 1 GiB), logs of a 256th (256 KiB to 1 GiB).
    pub fn new(cap: u64) -> Self {
        let page = ALIGN as u64;
        let slab_bytes = (cap / 64).clamp(1 << 20, 1 << 30) / page * page;
        Self { cap, slab_bytes, log_bytes: (cap / 256).clamp(256 << 10, 1 << 30) / page * page }
    }

    /// Bytes of a slab, two logs and the superblock: no cap is smaller.
    pub fn least_cap(&self) -> u64 {
        self.slab_bytes.saturating_add(self.log_bytes.saturating_mul(2)).saturating_add(superblock::BYTES)
    }

    /// # Errors
    /// [`StoreError::BadOptions`].
    fn check(&self) -> Result<(), StoreError> {
        let page = ALIGN as u64;
        let bad = |what| Err(StoreError::BadOptions(what));
        match self {
            _ if self.slab_bytes == 0 || self.slab_bytes > u64::from(u32::MAX) => bad("slabs have 1 page to 4 GiB"),
            _ if !(self.slab_bytes | self.log_bytes).is_multiple_of(page) => bad("slabs and logs are whole pages"),
            // seeded: log_step: self.log_bytes > LOG => false
            _ if self.log_bytes < 8 * page || self.log_bytes > LOG => bad("a log grows by 8 pages to 1 TiB"),
            _ if self.cap < self.least_cap() => bad("the cap has room for a slab, two logs and 64 KiB at least"),
            _ => Ok(()),
        }
    }
}

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

struct StoreShared {
    disk: Claimed,
    frames: FramePool,
    /// Bytes of the largest frame that a get can wait for: the log keeps two.
    largest: usize,
    options: StoreOptions,
    space: Arc<Space>,
    /// Held by who makes a slab, or by whom files are more for a while than they will be. Taken after `log`.
    growing: async_lock::Mutex<()>,
    map: Mutex<ObjectMap>,
    /// Held by who writes the log. `None` only before the store is open.
    log: async_lock::Mutex<Option<Log>>,
    pending: Mutex<Vec<PendingCommit>>,
    /// The file that lost its name, the log or the superblock.
    gone: OnceLock<StoreFile>,
}

impl StoreShared {
    fn new(disk: Claimed, frames: FramePool, options: StoreOptions, space: Arc<Space>, map: ObjectMap) -> Self {
        let (growing, log) = (async_lock::Mutex::new(()), async_lock::Mutex::new(None));
        let largest = frames.usage().1.saturating_sub(2 * log::FRAME);
        let (map, pending, gone) = (Mutex::new(map), Mutex::default(), OnceLock::new());
        Self { disk, frames, largest, options, space, growing, map, log, pending, gone }
    }

    fn map(&self) -> MutexGuard<'_, ObjectMap> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pending(&self) -> MutexGuard<'_, Vec<PendingCommit>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
