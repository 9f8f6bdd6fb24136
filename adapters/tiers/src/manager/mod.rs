//! The manager: buffers by handle, in whichever tier their bytes are.
//!
//! ```text
//!   Buffer ──► lease word ──► bytes in memory                          (a lease: one atomic operation)
//!      │
//!      └──► state (one lock): ledger, names, waiters ──► actions ──► tasks ──► stores, memory ──► events ──► ledger
//! ```
//!
//! Promises upward: a read returns what was written last, or an error; what was synced survives a power cut; an
//! operation that was begun ends, whether or not its future is kept; no call waits for a lease without end: it is
//! refused instead.
//! Asks from below: the [`ledger`](crate::ledger), which decides; stores, which keep bytes in files.
//!
//! | file | content |
//! | --- | --- |
//! | `state` | the manager's state; how it performs the ledger's actions |
//! | `phase` | the state machine of a buffer: picture, states, events |
//! | `buffer_state`, `block`, `device_tier` | a buffer's phase, lease word and copies; its memory; a device and copies on it |
//! | `allocation` | requests for buffers and their answers; names; memory of new buffers |
//! | `move_request`, `migration` | moves that users and leases request; copies between tiers |
//! | `memory`, `budget` | memory that buffers take beside their bytes; what others leave to tiers of memory |
//! | `pending_frees` | frees device memory without the manager's lock |
//! | `suspension` | why tiers are suspended, and when they are tried again |
//! | `access`, `blank` | reads and writes; memory that was never written |
//! | `lease_word`, `raw_bytes` | acquires and releases leases; bytes by address |
//! | `handle`, `lease`, `device` | handles of users; leases of addresses in memory and on devices |
//! | `lease_gate` | serialises lessees that evict each other's buffers |
//! | `prefetch`, `sequence` | announced uses; buffers that are used in a given order |
//! | `mapped` | mapped files as buffers |
//! | `tracking` | what the tracker learns of buffers, with the feature `track` |
//! | `types`, `stats` | options of allocations; lists of buffers and tiers; statistics |
//! | `durable`, `tombstones` | what survives a power cut; objects that are to be removed |
//! | `dormant` | what a manager finds in its directories, until it is opened |
//! | `trace` | spans and events, with the feature `tracing` |
//! | `builder`, `sizes`, `maintenance` | settings and construction; sizes that follow; the maintenance thread |

mod access;
mod allocation;
mod blank;
mod block;
mod budget;
mod buffer_state;
mod build;
mod builder;
mod changes;
mod debug;
mod device;
mod device_tier;
mod dormant;
mod durable;
mod error;
mod handle;
mod lease;
mod lease_gate;
mod lease_word;
mod maintenance;
mod mapped;
mod memory;
mod migration;
mod move_request;
mod pending_frees;
mod phase;
mod pieces;
mod prefetch;
mod raw_bytes;
mod sequence;
mod sizes;
mod state;
mod stats;
mod suspension;
mod tombstones;
#[cfg(feature = "tracing")]
mod trace;
mod tracking;
mod types;

pub use builder::{ManagerBuilder, Preset, PressureCallback};
pub use device::{DeviceBytes, DeviceLease, DeviceLeaseMut};
pub use durable::MAX_NAME_BYTES;
pub use error::Error;
pub use handle::Buffer;
pub use lease::{Lease, LeaseMut};
pub use sequence::Sequence;
pub use stats::{ManagerStats, TierUses, WaitStats, WeakManager};
pub use terrace_file::MappedFile;
/// The tracker's types, with the feature `track`.
#[cfg(feature = "track")]
#[doc(inline)]
pub use terrace_track as track;
pub use types::{BufferInfo, BufferOptions, MoveStats, TierInfo};

use crate::detect;
use crate::ledger::{LedgerEvent, Medium};
use access::DataLocation;
use buffer_state::BufferState;
use device_tier::DeviceTier;
use handle::ShutdownGuard;
use lease_gate::LeaseGate;
use maintenance::MaintenanceThread;
use state::State;
use stats::StatsRecorder;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use terrace_core::residence::{Residence, Tier};
use terrace_core::settings::DebugSwitches;
use terrace_file::{Executor, FramePool, JoinHandle, Notify, Store, TaskRunner};
use terrace_guard::{Process, ProcessOwned};
use tokio::sync::Semaphore;
use tracking::BufferTracking;

/// What a tier stores bytes in.
enum TierStorage {
    Memory(FramePool),
    /// The machine's memory, shared with a device that has none of its own: both address the same copy.
    Joint(DeviceTier),
    Device(DeviceTier),
    File(Store),
}

impl TierStorage {
    fn medium(&self) -> Medium {
        match self {
            Self::Memory(_) | Self::Joint(_) => Medium::Memory,
            Self::Device(_) => Medium::Device,
            Self::File(_) => Medium::File,
        }
    }
}

/// A tier as it was built.
struct ManagedTier {
    storage: TierStorage,
    /// The tier's kind, where that is known.
    kind: Option<detect::TierKind>,
    /// Name, for users, of the device or the directory that the tier lies on.
    device: String,
    /// The tier's initial capacity in bytes.
    capacity: u64,
}

struct ManagerShared {
    /// A reference to this value itself, for methods that spawn a task but have no `Arc` of it.
    own: Weak<ManagerShared>,
    /// The folder under which `/proc` and `/sys` are read.
    system_root: PathBuf,
    tasks: Executor,
    /// Staging memory for I/O on files.
    frames: FramePool,
    /// One permit for each chunk that `frames` holds: tasks wait here for their turn, where a frame that comes back would
    /// wake them all.
    staged: Semaphore,
    /// The tiers by number, best first.
    tiers: Vec<ManagedTier>,
    chunk: usize,
    /// Bytes of memory of buffers that were never written.
    blank_bytes: Arc<AtomicU64>,
    pinned_cap: AtomicU64,
    /// Bytes of the machine's memory that other programs are to find free, at most an eighth of it.
    min_free: AtomicU64,
    debug: DebugSwitches,
    on_pressure: Option<PressureCallback>,
    /// Notified when device memory was freed, and when a copy or a drop has ended: the lock of `state` is held then, so
    /// only tasks may listen.
    moved: Notify,
    /// Serialises lessees whose buffers are evicted again before they can lease them.
    lease_gate: Arc<LeaseGate>,
    state: Mutex<State>,
    stats: StatsRecorder,
    tracking: BufferTracking,
    process: Process,
    /// The thread that runs tasks, if no I/O engine runs them.
    _worker: Option<TaskRunner>,
    /// The thread that ticks as long as a manager or a buffer exists.
    maintenance: OnceLock<MaintenanceThread>,
}

impl ManagerShared {
    /// # Errors
    /// [`Error::Forked`] in a forked child: locks may be held by threads that do not exist there.
    #[inline]
    fn check_process(&self) -> Result<(), Error> {
        if self.process.is_current() { Ok(()) } else { Err(Error::Forked) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tiers(&self) -> std::ops::Range<Tier> {
        0..self.tiers.len() as Tier
    }

    fn medium(&self, tier: Tier) -> Medium {
        self.storage(tier).map_or(Medium::File, TierStorage::medium)
    }

    fn storage(&self, tier: Tier) -> Option<&TierStorage> {
        self.tiers.get(usize::from(tier)).map(|made| &made.storage)
    }

    /// The device that addresses a tier's bytes, if there is one.
    fn device_tier(&self, tier: Tier) -> Option<&DeviceTier> {
        match self.storage(tier) {
            Some(TierStorage::Joint(gpu) | TierStorage::Device(gpu)) => Some(gpu),
            _ => None,
        }
    }

    /// The best tier of this medium that has a buffer's newest bytes.
    fn newest(&self, residence: &Residence, medium: Medium) -> Option<Tier> {
        self.tiers().find(|tier| self.medium(*tier) == medium && residence.valid(*tier))
    }

    fn store(&self, tier: Tier) -> Result<&Store, Error> {
        match self.storage(tier) {
            Some(TierStorage::File(store)) => Ok(store),
            _ => Err(Error::NoTier("of files")),
        }
    }
}

/// Manages buffers in tiers.
///
/// Clones are the same manager. When the last clone and the last buffer are dropped, operations in progress end, and
/// the manager ends its threads and closes its files: then another one may be built on the directory. In a forked child
/// of the process that built the manager, calls return [`Error::Forked`], lists are empty, and dropping it does
/// nothing.
///
/// Call the functions that wait, of a manager and of its buffers, only on the program's own threads. They may deadlock
/// inside a task of [`Executor`], a waker that a task wakes, or [`ManagerBuilder::on_pressure`]: there, await the
/// functions whose names end in `_async`.
#[derive(Clone)]
pub struct Manager {
    shared: ProcessOwned<Arc<ManagerShared>>,
    shutdown: ProcessOwned<Arc<ShutdownGuard>>,
}

impl Manager {
    /// Starts to configure a manager.
    pub fn builder() -> ManagerBuilder {
        ManagerBuilder::default()
    }

    fn buffer(&self, buffer: Arc<BufferState>) -> Buffer {
        Buffer::new(&self.shared, buffer, &self.shutdown)
    }

    /// Allocates a zeroed buffer in the best tier that has room or can make room.
    ///
    /// # Errors
    /// [`Error::Refused`], which has the largest size that there was room for.
    pub fn allocate(&self, bytes: u64) -> Result<Buffer, Error> {
        self.allocate_with(bytes, BufferOptions::default())
    }

    /// Allocates a named buffer, which can be made durable, and found by [`open`](Self::open).
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::BadName`]; as [`allocate`](Self::allocate).
    pub fn allocate_named(&self, name: &str, bytes: u64) -> Result<Buffer, Error> {
        self.allocate_with(bytes, BufferOptions { name: Some(name.into()), ..BufferOptions::default() })
    }

    /// As [`allocate`](Self::allocate), with all options.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn allocate_with(&self, bytes: u64, options: BufferOptions) -> Result<Buffer, Error> {
        self.shared.tasks.block_on(|| self.allocate_async(bytes, options))
    }

    /// As [`allocate_with`](Self::allocate_with), as a future; begins at once.
    ///
    /// Dropping the future cancels the request: requests behind it proceed, and a buffer that was granted already is
    /// freed.
    pub fn allocate_async(&self, bytes: u64, options: BufferOptions) -> JoinHandle<Result<Buffer, Error>> {
        let (own, origin) = (self.clone(), self.shared.tracking.origin());
        let allocated = self.shared.tasks.begin(async move {
            let buffer = own.buffer(own.shared.allocate(bytes, options, origin).await?);
            buffer.handle.undelivered.store(true, Ordering::Relaxed);
            Ok(buffer)
        });
        allocated.on_delivery(Buffer::delivered).cancel_on_drop().in_child(|| Err(Error::Forked))
    }

    /// Opens a named buffer: a live one, or one that was durable when the manager was built.
    ///
    /// # Errors
    /// [`Error::NoSuchName`]; [`Error::Forked`]; [`Error::Rejected`] where there are as many as a ledger can have.
    pub fn open(&self, name: &str) -> Result<Buffer, Error> {
        self.shared.check_process()?;
        let mut state = self.shared.state();
        let buffer = match state.names.get(name) {
            Some(id) => Ok(id.and_then(|id| state.buffers.get(&id)).cloned()),
            None => state.wake(&self.shared, name),
        };
        self.shared.unlock(state);
        buffer?.map(|buffer| self.buffer(buffer)).ok_or_else(|| Error::NoSuchName(name.into()))
    }

    /// Frees a named buffer and its durable copy. Remaining handles return [`Error::Freed`].
    ///
    /// # Errors
    /// [`Error::NoSuchName`], [`Error::Leased`]; errors of the store: then a restart may recover the buffer.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.shared.tasks.block_on(|| self.remove_async(name))
    }

    /// As [`remove`](Self::remove), as a future; begins at once, whether or not it is awaited.
    pub fn remove_async(&self, name: &str) -> JoinHandle<Result<(), Error>> {
        let (shared, buffer) = (Arc::clone(&self.shared), self.open(name));
        let removed = self.shared.tasks.spawn(async move { shared.remove(&buffer?.handle.buffer).await });
        removed.in_child(|| Err(Error::Forked))
    }

    /// Makes the current bytes of a named buffer durable: they survive a power cut.
    ///
    /// # Errors
    /// [`Error::Unnamed`], [`Error::NoTier`], [`Error::NoRoom`], [`Error::Freed`], [`Error::OtherManager`];
    /// [`Error::Leased`] while a [`LeaseMut`] is held; errors of the store: the bytes that were durable before still
    /// are.
    pub fn sync(&self, buffer: &Buffer) -> Result<(), Error> {
        self.shared.tasks.block_on(|| self.sync_async(buffer))
    }

    /// As [`sync`](Self::sync), as a future; begins at once, whether or not it is awaited.
    pub fn sync_async(&self, buffer: &Buffer) -> JoinHandle<Result<(), Error>> {
        let (own, buffer) = (self.shared_of(buffer), buffer.clone());
        let synced = self.shared.tasks.begin(async move { own?.sync(&buffer.handle.buffer).await });
        synced.in_child(|| Err(Error::Forked))
    }

    /// Copies a buffer to a better tier, and evicts other buffers to make room there.
    ///
    /// # Errors
    /// [`Error::NoRoom`], [`Error::Rejected`] for no such tier, [`Error::Freed`], [`Error::Mapped`],
    /// [`Error::OtherManager`]; [`Error::Leased`] while any lease is held; the error of a failed copy.
    pub fn promote(&self, buffer: &Buffer, to: Tier) -> Result<(), Error> {
        self.shared.tasks.block_on(|| self.promote_async(buffer, to))
    }

    /// As [`promote`](Self::promote), as a future; begins at once, whether or not it is awaited.
    pub fn promote_async(&self, buffer: &Buffer, to: Tier) -> JoinHandle<Result<(), Error>> {
        self.request_move(buffer, to, LedgerEvent::Promote { id: buffer.handle.buffer.id, to })
    }

    /// Removes a buffer from all tiers that are better than `to`.
    ///
    /// # Errors
    /// As [`promote`](Self::promote).
    pub fn demote(&self, buffer: &Buffer, to: Tier) -> Result<(), Error> {
        self.shared.tasks.block_on(|| self.demote_async(buffer, to))
    }

    /// As [`demote`](Self::demote), as a future; begins at once, whether or not it is awaited.
    pub fn demote_async(&self, buffer: &Buffer, to: Tier) -> JoinHandle<Result<(), Error>> {
        self.request_move(buffer, to, LedgerEvent::Demote { id: buffer.handle.buffer.id, to })
    }

    /// This manager's shared state, if the buffer is its own: another manager's buffer may have the same id.
    fn shared_of(&self, buffer: &Buffer) -> Result<Arc<ManagerShared>, Error> {
        if Arc::ptr_eq(&self.shared, &buffer.shared) { Ok(Arc::clone(&self.shared)) } else { Err(Error::OtherManager) }
    }

    fn request_move(&self, buffer: &Buffer, to: Tier, event: LedgerEvent) -> JoinHandle<Result<(), Error>> {
        let (own, buffer) = (self.shared_of(buffer), buffer.clone());
        let requested =
            self.shared.tasks.begin(async move { own?.request_move(&buffer.handle.buffer, event, to).await });
        requested.in_child(|| Err(Error::Forked))
    }

    /// Runs maintenance; `now` is the time in milliseconds, and must not be less than in earlier calls.
    ///
    /// Evicts ahead of need and retries failed moves. Every fortieth call also compacts the stores: each frees its
    /// empty slabs and compacts a sparse one.
    pub fn tick(&self, now: u64) {
        if self.shared.check_process().is_ok() {
            self.shared.tick(now);
        }
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("tiers", &self.tiers()).finish_non_exhaustive()
    }
}
