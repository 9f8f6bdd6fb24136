//! The manager: buffers by handle, wherever their bytes are.
//!
//! ```text
//!   Buffer ──► lease word ──► bytes in memory                          (a lease: one atomic operation)
//!      │
//!      └──► state (one lock): ledger, names, waiters ──► actions ──► tasks ──► stores, memory ──► events ──► ledger
//! ```
//!
//! Promises upward: a read returns what was written last, or an error; what was synced is there after a power cut; what
//! was begun ends, whether or not its future is kept; nothing waits for a lease without an end: it is refused.
//! Asks from below: the [`ledger`](crate::ledger), which decides; stores, which keep.
//!
//! | file | what it is |
//! | --- | --- |
//! | `state` | what is known; how it does what the ledger says |
//! | `body`, `block`, `gpu` | one buffer: its lease word, its copies; memory; devices |
//! | `motion` | copies between tiers |
//! | `memory` | what buffers take of memory beside their bytes |
//! | `returns` | memory that goes back to devices, without the lock |
//! | `resting` | tiers that refused: why, and when they are tried again |
//! | `access`, `hold`, `window` | reading and writing; the lease word; addresses |
//! | `handle`, `lease`, `device` | what users hold; the right to an address, of a processor and of a device |
//! | `alone` | leases one after the other, where they evict each other |
//! | `mapped` | files as buffers, where they are mapped |
//! | `words` | how a buffer is asked for, how it is listed |
//! | `durable` | names, and what survives |
//! | `builder`, `upkeep` | how it is made; its clock |

mod access;
mod alone;
mod block;
mod body;
mod builder;
mod device;
mod durable;
mod error;
mod gpu;
mod handle;
mod hold;
mod lease;
mod mapped;
mod memory;
mod motion;
mod resting;
mod returns;
mod state;
mod upkeep;
mod window;
mod words;

pub use builder::{Builder, OnPressure, Preset};
pub use device::{DeviceBytes, DeviceLease, DeviceLeaseMut};
pub use durable::NAME;
pub use error::Error;
pub use handle::Buffer;
pub use lease::{Lease, LeaseMut};
pub use terrace_file::MappedFile;
pub use words::{Listed, ListedTier, Moves, Options};

use crate::detect;
use crate::ledger::{Event, TierKind};
use access::Seat;
use alone::Alone;
use body::Body;
use gpu::Gpu;
use handle::User;
use state::State;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use terrace_core::residence::{Residence, Tier};
use terrace_file::{Executor, FramePool, JoinHandle, Notify, Store, TaskRunner};
use terrace_guard::{Process, ProcessOwned};
use upkeep::Upkeep;

/// What a tier is made of.
enum Place {
    Memory(FramePool),
    /// The machine's memory, of which a device has none of its own: processors and the device address the same copy.
    Joint(Gpu),
    Device(Gpu),
    File(Store),
}

impl Place {
    fn kind(&self) -> TierKind {
        match self {
            Self::Memory(_) | Self::Joint(_) => TierKind::Memory,
            Self::Device(_) => TierKind::Device,
            Self::File(_) => TierKind::File,
        }
    }
}

/// A tier, as it was built.
struct Made {
    place: Place,
    /// What it is, where that is known.
    kind: Option<detect::TierKind>,
    /// As people name it.
    device: String,
    /// Bytes it may have at the beginning.
    capacity: u64,
}

struct Shared {
    /// Itself, for tasks begun where only a reference is at hand.
    own: Weak<Shared>,
    tasks: Executor,
    /// What bytes go through on their way to files.
    frames: FramePool,
    /// By tier.
    places: Vec<Made>,
    chunk: usize,
    pinned_cap: u64,
    /// Whether calls have counted more than that: they take it off again.
    over_cap: AtomicBool,
    on_pressure: Option<OnPressure>,
    /// Told when a copy or a drop has ended, under the lock: listened to by tasks only.
    moved: Notify,
    /// Taken by who leases what others had evicted before.
    leasing: Arc<Alone>,
    state: Mutex<State>,
    process: Process,
    /// Runs tasks where no engine does.
    _worker: Option<TaskRunner>,
    /// Ticks, as long as a manager or a buffer is there.
    upkeep: OnceLock<Upkeep>,
}

impl Shared {
    /// # Errors
    /// [`Error::Forked`]: locks may be those of threads that are not here.
    #[inline]
    fn is_here(&self) -> Result<(), Error> {
        if self.process.is_current() { Ok(()) } else { Err(Error::Forked) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tiers(&self) -> std::ops::Range<Tier> {
        0..self.places.len() as Tier
    }

    fn kind(&self, tier: Tier) -> TierKind {
        self.place(tier).map_or(TierKind::File, Place::kind)
    }

    fn place(&self, tier: Tier) -> Option<&Place> {
        self.places.get(usize::from(tier)).map(|made| &made.place)
    }

    /// The device that addresses a tier's bytes.
    fn gpu(&self, tier: Tier) -> Option<&Gpu> {
        match self.place(tier) {
            Some(Place::Joint(gpu) | Place::Device(gpu)) => Some(gpu),
            _ => None,
        }
    }

    /// The best tier of a kind that has the newest bytes.
    fn newest(&self, residence: &Residence, kind: TierKind) -> Option<Tier> {
        self.tiers().find(|tier| self.kind(*tier) == kind && residence.valid(*tier))
    }

    fn store(&self, tier: Tier) -> Result<&Store, Error> {
        match self.place(tier) {
            Some(Place::File(store)) => Ok(store),
            _ => Err(Error::NoTier("of files")),
        }
    }
}

/// Buffers in tiers.
///
/// Clones are the same manager. When the last one and the last buffer are dropped, what is under way ends, and its
/// threads and files are gone: another may be built on the directory then. In a forked child of the process that built
/// it, calls say [`Error::Forked`], lists are empty, and nothing happens when it is dropped.
///
/// Calls that wait, of a manager and of its buffers, are for threads of the program's: in a task of [`Executor`], in a
/// waker that one wakes and in [`Builder::on_pressure`] they may wait for themselves. There the same calls whose names
/// end in `_async` are awaited.
#[derive(Clone)]
pub struct Manager {
    shared: ProcessOwned<Arc<Shared>>,
    user: ProcessOwned<Arc<User>>,
}

impl Manager {
    /// Settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn buffer(&self, body: Arc<Body>) -> Buffer {
        Buffer::new(&self.shared, body, &self.user)
    }

    /// A buffer of so many bytes, all zero, in the best tier that has or gets room.
    ///
    /// # Errors
    /// [`Error::Refused`]: it says what could be had.
    pub fn allocate(&self, bytes: u64) -> Result<Buffer, Error> {
        self.allocate_with(bytes, Options::default())
    }

    /// The same, with a name: it can be made durable, and found by [`open`](Self::open).
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::BadName`]; as [`allocate`](Self::allocate).
    pub fn allocate_named(&self, name: &str, bytes: u64) -> Result<Buffer, Error> {
        self.allocate_with(bytes, Options { name: Some(name.into()), ..Options::default() })
    }

    /// The same, with all options.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn allocate_with(&self, bytes: u64, options: Options) -> Result<Buffer, Error> {
        self.shared.tasks.block_on(|| self.allocate_async(bytes, options))
    }

    /// The same; begun at once.
    ///
    /// Dropped before its end it is cancelled: who waits behind it goes on, and a buffer that nobody takes is freed.
    pub fn allocate_async(&self, bytes: u64, options: Options) -> JoinHandle<Result<Buffer, Error>> {
        let own = self.clone();
        let allocated = self.shared.tasks.spawn(async move {
            let body = own.shared.allocate(bytes, options).await?;
            Ok(own.buffer(body))
        });
        allocated.cancel_on_drop().in_child(|| Err(Error::Forked))
    }

    /// A buffer that has a name: one that lives, or that was durable when the manager was built.
    ///
    /// # Errors
    /// [`Error::NoSuchName`].
    pub fn open(&self, name: &str) -> Result<Buffer, Error> {
        self.shared.is_here()?;
        let state = self.shared.state();
        let id = state.names.get(name).copied().flatten();
        let body = id.and_then(|id| state.bodies.get(&id)).cloned();
        drop(state);
        body.map(|body| self.buffer(body)).ok_or_else(|| Error::NoSuchName(name.into()))
    }

    /// Frees a named buffer, and what of it is durable. Handles that are left say [`Error::Freed`].
    ///
    /// # Errors
    /// [`Error::NoSuchName`], [`Error::Leased`]; those of the store: then a restart may find it again.
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        self.shared.tasks.block_on(|| self.remove_async(name))
    }

    /// The same; begun at once, whether or not it is awaited.
    pub fn remove_async(&self, name: &str) -> JoinHandle<Result<(), Error>> {
        let (shared, buffer) = (Arc::clone(&self.shared), self.open(name));
        let removed = self.shared.tasks.spawn(async move { shared.remove(&buffer?.handle.body).await });
        removed.in_child(|| Err(Error::Forked))
    }

    /// Makes the bytes that a named buffer has now durable: they are there after a power cut.
    ///
    /// # Errors
    /// [`Error::Unnamed`], [`Error::NoTier`], [`Error::NoRoom`], [`Error::Freed`], [`Error::OtherManager`];
    /// [`Error::Leased`] while somebody has a [`LeaseMut`]; those of the store: what was durable before still is.
    pub fn sync(&self, buffer: &Buffer) -> Result<(), Error> {
        self.shared.tasks.block_on(|| self.sync_async(buffer))
    }

    /// The same; begun at once, whether or not it is awaited.
    pub fn sync_async(&self, buffer: &Buffer) -> JoinHandle<Result<(), Error>> {
        let (own, buffer) = (self.own(buffer), buffer.clone());
        let synced = self.shared.tasks.spawn(async move { own?.sync(&buffer.handle.body).await });
        synced.in_child(|| Err(Error::Forked))
    }

    /// Has a copy of a buffer in a better tier; others are evicted for it.
    ///
    /// # Errors
    /// [`Error::NoRoom`], [`Error::Rejected`] for no such tier, [`Error::Freed`], [`Error::Mapped`],
    /// [`Error::OtherManager`]; [`Error::Leased`] while somebody has any lease; why the copy failed.
    pub fn promote(&self, buffer: &Buffer, to: Tier) -> Result<(), Error> {
        self.shared.tasks.block_on(|| self.promote_async(buffer, to))
    }

    /// The same; begun at once, whether or not it is awaited.
    pub fn promote_async(&self, buffer: &Buffer, to: Tier) -> JoinHandle<Result<(), Error>> {
        self.wish(buffer, to, Event::Promote { id: buffer.handle.body.id, to })
    }

    /// Takes a buffer out of the tiers that are better than this one.
    ///
    /// # Errors
    /// As [`promote`](Self::promote).
    pub fn demote(&self, buffer: &Buffer, to: Tier) -> Result<(), Error> {
        self.shared.tasks.block_on(|| self.demote_async(buffer, to))
    }

    /// The same; begun at once, whether or not it is awaited.
    pub fn demote_async(&self, buffer: &Buffer, to: Tier) -> JoinHandle<Result<(), Error>> {
        self.wish(buffer, to, Event::Demote { id: buffer.handle.body.id, to })
    }

    /// What has the buffer too: its number means another one elsewhere.
    fn own(&self, buffer: &Buffer) -> Result<Arc<Shared>, Error> {
        if Arc::ptr_eq(&self.shared, &buffer.shared) { Ok(Arc::clone(&self.shared)) } else { Err(Error::OtherManager) }
    }

    fn wish(&self, buffer: &Buffer, to: Tier, event: Event) -> JoinHandle<Result<(), Error>> {
        let (own, buffer) = (self.own(buffer), buffer.clone());
        let wished = self.shared.tasks.spawn(async move { own?.wish(&buffer.handle.body, event, to).await });
        wished.in_child(|| Err(Error::Forked))
    }

    /// Says that a buffer will be used soon: it is brought up if there is room, and nobody waits for any.
    ///
    /// # Errors
    /// [`Error::Freed`], [`Error::OtherManager`].
    pub fn prefetch(&self, buffer: &Buffer) -> Result<(), Error> {
        self.shared.is_here()?;
        self.own(buffer)?;
        if buffer.handle.body.read_ahead()? {
            return Ok(());
        }
        let mut state = self.shared.state();
        let wished = state.handle(&self.shared, Event::Prefetch { id: buffer.handle.body.id });
        self.shared.unlock(state);
        wished.map_err(Into::into)
    }

    /// Maintenance by call: `now` in milliseconds, never less than before.
    ///
    /// Evicts ahead of need, tries again what failed; at every fortieth call stores give back empty slabs and empty a
    /// thin one.
    pub fn tick(&self, now: u64) {
        if self.shared.is_here().is_ok() {
            self.shared.tick(now);
        }
    }

    /// Gives a tier another capacity: what no longer fits moves down.
    ///
    /// Tiers on devices never have more, and less while others use the memory.
    ///
    /// # Errors
    /// [`Error::Rejected`] for no such tier.
    pub fn resize(&self, tier: Tier, capacity: u64) -> Result<(), Error> {
        self.shared.is_here()?;
        let mut state = self.shared.state();
        let allowed = state.allowed(&self.shared, tier, capacity);
        let resized = state.handle(&self.shared, Event::Resize { tier, capacity: allowed });
        if let Some(most) = state.most.get_mut(usize::from(tier)).filter(|_| resized.is_ok()) {
            *most = capacity;
        }
        self.shared.unlock(state);
        resized.map_err(Into::into)
    }

    /// Checks what must always hold.
    ///
    /// # Errors
    /// The clause that is broken.
    pub fn check(&self) -> Result<(), String> {
        self.shared.is_here().map_err(|error| error.to_string())?;
        let state = self.shared.state();
        state.ledger.check().map_err(|violation| violation.to_string())?;
        state.bodies.values().try_for_each(|body| body.lease.check().map_err(|violation| violation.to_string()))?;
        // A buffer that is freed meanwhile is no longer viewed.
        let idle = |body: &&Arc<Body>| body.is_copied() && state.ledger.view(body.id).is_ok_and(|view| !view.moving);
        if let Some(body) = state.bodies.values().find(idle) {
            return Err(format!("{}: a copy has a lease, and none is under way", body.id));
        }
        self.shared.tiers().filter_map(|tier| self.shared.store(tier).ok()).try_for_each(Store::check)
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("tiers", &self.tiers()).finish_non_exhaustive()
    }
}
