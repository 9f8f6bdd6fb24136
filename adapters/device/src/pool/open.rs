//! Opens a pool; opens, adopts and closes streams.

use super::notice::PoolNotices;
use super::waiting::WaiterQueue;
use super::{DeviceArena, DevicePool, PoolState, SIDES};
use crate::backend::{Backend, MemoryKind, RawStream};
use crate::capability::{Capabilities, Description};
use crate::error::DeviceError;
use crate::fault::{Fault, FaultReason};
use crate::fences::Fences;
use crate::health::DeviceHealth;
use crate::options::{DeviceOptions, PoolOrigin};
use crate::source::{BackendContext, DeviceSource, MappedPages, Regions, destroy};
use crate::store::ArenaCapacity;
use crate::stream::{BlockOrigin, ClosedStream, Keeper, StreamCore, StreamHandle, StreamOwnership};
use crate::stream_cache::AllocatedTail;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use terrace_core::arena::ArenaSettings;
use terrace_core::pressure::Level;
use terrace_core::{Arena, Owner};
use terrace_guard::catch_panic;

/// Largest number of segments in a pool: 128 GiB at the default of 4 MiB each.
const SEGMENTS: usize = 1 << 15;

/// Address space to try to reserve first for each of the arena's two areas, as a multiple of the device's memory.
const SPACE: u64 = 4;

impl<B: Backend> DevicePool<B> {
    /// Opens a pool over a backend.
    pub(crate) fn open(backend: B, options: DeviceOptions) -> Result<Arc<Self>, DeviceError> {
        options.check()?;
        let options = DeviceOptions { granule: options.granule.max(backend.least_granule()), ..options };
        // A segment that held a granule may be smaller than the larger one.
        options.check()?;
        let (backend, health) = (Arc::new(backend), Arc::new(DeviceHealth::new()));
        let min_free = min_free(backend.description(), &options);
        let fences = Fences::new(Arc::clone(&backend), Arc::clone(&health));
        let affording = Arc::default();
        let context = BackendContext { backend, fences: fences.clone(), health, min_free, affording };
        let arena = arena(&context, &options).map_err(|fault| {
            let device = context.backend.description().name.clone();
            DeviceError::Driver { device, fault }
        })?;
        let given = Arc::new(AllocatedTail::new(fences.sole()));
        let inner = PoolState {
            arena,
            given: Arc::clone(&given),
            fences,
            sides: [const { None }; SIDES],
            graphs: BTreeMap::new(),
            next_graph: 0,
            streams: Vec::new(),
            adopted: HashMap::new(),
            next_owner: 0,
            held: Vec::new(),
            released: Vec::new(),
            parting: Vec::new(),
            growing: 0,
            ended: 0,
            sharing: 0,
            frees: 0,
            failed: 0,
            fallbacks: 0,
            hits: 0,
            hit_bytes: 0,
            fallback_on: options.fallback,
            waiters: WaiterQueue::default(),
            level: Level::Normal,
            level_holds: (0, 0..0),
            window: None,
            notices: PoolNotices::default(),
        };
        #[cfg(feature = "track")]
        let tracker = crate::tracking::tracker_of(context.backend.description(), options.debug);
        #[cfg(not(feature = "track"))]
        crate::tracking::tell_absent(options.debug);
        Ok(Arc::new_cyclic(|me: &Weak<Self>| Self {
            context,
            options,
            inner: Mutex::new(inner),
            hook: Mutex::new(None),
            grown: Condvar::new(),
            follower: Arc::default(),
            stage: Mutex::new(None),
            given,
            adopting: Mutex::new(()),
            #[cfg(feature = "track")]
            tracker,
            me: me.clone(),
        }))
    }

    /// Registers a stream with the pool. Moves `whose` out only once the fences have accepted the stream.
    pub(super) fn begin(
        &self,
        raw: RawStream,
        whose: &mut Option<StreamOwnership>,
    ) -> Result<Arc<StreamHandle>, DeviceError> {
        // Always succeeds: callers hold a reference to the pool.
        let service = self.me.upgrade().ok_or(DeviceError::BadOption("the device was dropped".into()))?;
        let mut inner = self.inner();
        let owner = Owner(inner.next_owner);
        inner.fences.open(owner, raw).map_err(|fault| self.driver(fault))?;
        inner.next_owner += 1;
        let whose = whose.take().unwrap_or(StreamOwnership::Theirs(None));
        let core = Arc::new(StreamCore::new(service, owner, raw, whose));
        core.set_awaited(inner.waiters.is_active());
        core.set_cap(self.options.cached_at(inner.level));
        inner.streams.retain(|(stream, _)| stream.strong_count() > 0);
        inner.streams.push((Arc::downgrade(&core), core.has_recent()));
        Ok(Arc::new(StreamHandle { core }))
    }

    /// Adopts a stream that other code created. While the driver reports the same id for a handle, the handle is the
    /// same stream, which holds the first keeper given for it. Later keepers are dropped without a lock, as they run
    /// the user's code.
    pub(super) fn adopt(&self, raw: RawStream, keeper: Option<Keeper>) -> Result<Arc<StreamHandle>, DeviceError> {
        self.usable()?;
        // SAFETY: the adopter promised that the stream is live.
        let name = unsafe { self.context.backend.stream_name(raw) }.map_err(|fault| self.driver(fault))?;
        let (mut whose, mut gone) = (Some(StreamOwnership::Theirs(keeper)), None);
        let one_at_a_time = self.adopting.lock().unwrap_or_else(PoisonError::into_inner);
        let adopted = self.adopt_alone((raw, name), &mut whose, &mut gone);
        drop(one_at_a_time);
        drop(gone);
        catch_panic(|| drop(whose));
        adopted
    }

    /// As [`Self::adopt`], under the lock `adopting`. Drops nothing of the user's: what is not needed stays in `whose`
    /// and `gone`.
    fn adopt_alone(
        &self,
        (raw, name): (RawStream, Option<u64>),
        whose: &mut Option<StreamOwnership>,
        gone: &mut Option<Arc<StreamHandle>>,
    ) -> Result<Arc<StreamHandle>, DeviceError> {
        let known = self.inner().adopted.get(&(raw.0, name)).and_then(Weak::upgrade);
        if let Some(known) = known {
            if self.inner().fences.is_open(known.core.owner) {
                return Ok(known);
            }
            // Other code destroyed the known stream, and the driver reused its handle: this is another stream.
            *gone = Some(known);
        }
        let handle = self.begin(raw, whose)?;
        let mut inner = self.inner();
        inner.adopted.retain(|_, known| known.strong_count() > 0);
        inner.adopted.insert((raw.0, name), Arc::downgrade(&handle));
        Ok(handle)
    }

    /// Empties the cache of a stream whose last user handle was dropped; blocks may still refer to the stream.
    pub(super) fn retire(&self, stream: &Arc<StreamCore>) {
        let mut inner = self.inner();
        stream.close_cache();
        let mut cached = Vec::new();
        stream.drain(|block, owner| cached.push((block, owner)));
        for (block, owner) in cached {
            inner.free(block, BlockOrigin::Pool, owner);
        }
        self.unlock(inner);
    }

    /// Closes a stream whose last handle and last block were dropped; destroys it if terrace created it.
    pub(super) fn close(&self, stream: ClosedStream) {
        let ClosedStream { owner, raw, owned, hits, hit_bytes } = stream;
        let mut inner = self.inner();
        inner.hits += hits;
        inner.hit_bytes += hit_bytes;
        inner.streams.retain(|(other, _)| other.strong_count() > 0);
        if self.context.health.check().is_ok() {
            inner.fences.close(owner);
            if owned {
                destroy(&*self.context.backend, raw);
            }
        }
        self.unlock(inner);
    }
}

/// Creates the arena that the options ask for.
fn arena<B: Backend>(context: &BackendContext<B>, options: &DeviceOptions) -> Result<DeviceArena<B>, Fault> {
    let description = context.backend.description();
    let capacity = capacity(description, options);
    let missing = |call| Fault::of(call, FaultReason::Unsupported);
    let has = |bit| description.capabilities.contains(bit);
    // A runtime that says nothing to its allocator copies between any two devices, and by its plain copy only pages that are open.
    let closed = options.peer_access && !description.strangers.is_empty();
    let kind = match options.origin {
        PoolOrigin::Auto if closed => MemoryKind::Device,
        PoolOrigin::Auto | PoolOrigin::Pages => {
            if has(Capabilities::PAGES) {
                match paged(context, options, capacity) {
                    Ok(arena) => return Ok(arena),
                    Err(fault) if options.origin == PoolOrigin::Pages || fault.is_fatal() => return Err(fault),
                    Err(_) => {}
                }
            } else if options.origin == PoolOrigin::Pages {
                return Err(missing("map pages"));
            }
            MemoryKind::Device
        }
        PoolOrigin::Segments => MemoryKind::Device,
        PoolOrigin::DriverPool if has(Capabilities::DRIVER_POOL) => MemoryKind::Pool,
        PoolOrigin::DriverPool => return Err(missing("allocate from the driver's pool")),
        PoolOrigin::Managed if has(Capabilities::MANAGED) => MemoryKind::Managed,
        PoolOrigin::Managed => return Err(missing("allocate managed memory")),
    };
    let source = DeviceSource::Regions(Regions::new(context.clone(), kind, capacity));
    build(source, context, options, options.arena(false))
}

fn paged<B: Backend>(
    context: &BackendContext<B>,
    options: &DeviceOptions,
    capacity: u64,
) -> Result<DeviceArena<B>, Fault> {
    let description = context.backend.description();
    let most = u64::from(u32::MAX) * options.granule;
    let page = description.page_bytes;
    // Address space for both areas together; less than the device's memory for each is of no use.
    let wanted = (SPACE * description.total).min(most).next_power_of_two() * 2;
    let space = MappedPages::reservable(context, wanted, 2 * description.total.next_multiple_of(page))? / 2;
    let settings = ArenaSettings { space: space.min(most) & !(page - 1), ..options.arena(true) };
    let peers: &[u32] = if options.peer_access { &description.peers } else { &[] };
    let mut pages = MappedPages::new(context.clone(), capacity, options.largest_handle, peers);
    if !peers.is_empty() {
        pages.try_one()?;
    }
    build(DeviceSource::Pages(pages), context, options, settings)
}

fn build<B: Backend>(
    source: DeviceSource<B>,
    context: &BackendContext<B>,
    options: &DeviceOptions,
    settings: ArenaSettings,
) -> Result<DeviceArena<B>, Fault> {
    // The arena's own cache is off (no entries), since the streams have caches.
    let room = ArenaCapacity { slots: options.blocks, bins: 4, entries: 0, segments: SEGMENTS.min(options.blocks) };
    Arena::new(source, context.fences.clone(), options.parts(room), settings)
        .map_err(|_| Fault::of("reserve address space", FaultReason::OutOfMemory))
}

/// Bytes of the device's memory to leave to other users.
fn min_free(description: &Description, options: &DeviceOptions) -> u64 {
    options.min_free.min(description.total / 8)
}

/// Limit of the bytes reserved from the driver.
fn capacity(description: &Description, options: &DeviceOptions) -> u64 {
    let share = (description.total as f64 * options.device_fraction) as u64;
    let rest = description.total - min_free(description, options);
    if options.capacity != 0 { options.capacity } else { share.min(rest).max(1) }
}
