//! The pool of one device: arena, fences, streams, held blocks, fallback, private pools of graphs.
//!
//! Promises upward: [`Service`](crate::stream::Service), which hides the backend; a call holds one lock, and none while
//! it waits for held blocks or maps new pages; an allocation fails only after caches were emptied, fences waited for, unused memory
//! released, and the user's hook called.
//! Asks from below: the core's arena over a [`DeviceSource`] and [`Fences`].
//!
//! Lock order: the pool's, then a stream's, then the fences'; never the reverse. An arena waits under the pool's lock
//! for blocks freed into it, and before its pages move: no other thread may allocate or free in that time.

mod allocate;
mod batch;
mod check;
mod events;
mod follower;
mod graphs;
mod growth;
mod hints;
mod host_copy;
mod maintenance;
mod notice;
mod open;
mod registration;
mod service;
mod waiting;

use crate::backend::Backend;
use crate::error::DeviceError;
use crate::fault::{Fault, FaultReason};
use crate::fences::{Fences, with_waiting};
use crate::options::DeviceOptions;
use crate::source::{BackendContext, DeviceSource};
use crate::staging::StagingBuffer;
use crate::store::HeapStore;
use crate::stream::{BlockOrigin, Hook, HostMemory, Release, StreamCore, StreamHandle};
use crate::stream_cache::AllocatedTail;
use follower::Follower;
use graphs::Graph;
use notice::PoolNotices;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Instant;
use terrace_core::pressure::Level;
use terrace_core::{Allocator, AnyFit, Arena, Block, Branch, FenceState, Owner};
use terrace_guard::catch_panic;
use waiting::{PoolWakers, WaiterQueue};

/// The arena of a device, with the fit strategy that the options name; its records are on the host's heap.
type DeviceArena<B> = Arena<DeviceSource<B>, Fences<B>, HeapStore<AnyFit<Box<[Branch]>>>>;

/// Number of variants of [`HostMemory`].
const SIDES: usize = 3;

/// The pool of one device.
pub(crate) struct DevicePool<B: Backend> {
    context: BackendContext<B>,
    options: DeviceOptions,
    inner: Mutex<PoolState<B>>,
    hook: Mutex<Option<Hook>>,
    /// Signalled when a growth ends.
    grown: Condvar,
    /// The thread that polls streams while requests wait. Its lock is taken before the pool's.
    follower: Arc<Follower>,
    /// The staging buffer of the last copy of lent memory, kept for the next copy. Its lock is taken after all others.
    stage: Mutex<Option<StagingBuffer>>,
    /// Which blocks the arena allocated last, as the streams' caches need to know.
    given: Arc<AllocatedTail>,
    /// Held during an adoption, so that threads which adopt one handle at the same time get the same stream.
    adopting: Mutex<()>,
    #[cfg(feature = "track")]
    tracker: Arc<terrace_track::Tracker>,
    /// A reference to the pool itself, which new streams upgrade and hold.
    me: Weak<Self>,
}

/// The state under the pool's lock.
struct PoolState<B: Backend> {
    arena: DeviceArena<B>,
    /// The fences of all arenas in here.
    fences: Fences<B>,
    /// The arenas of pinned and managed memory, by [`HostMemory`]; each is created on first use.
    sides: [Option<DeviceArena<B>>; SIDES],
    graphs: BTreeMap<u32, Graph<B>>,
    next_graph: u32,
    /// The same as the pool's `given`.
    given: Arc<AllocatedTail>,
    /// Streams that may have cached blocks, each with the flag that its cache holds larger blocks.
    streams: Vec<(Weak<StreamCore>, Arc<AtomicBool>)>,
    /// Adopted streams, by handle and the driver's id.
    adopted: HashMap<(u64, Option<u64>), Weak<StreamHandle>>,
    /// The owner number of the next stream; never reused.
    next_owner: u32,
    held: Vec<PendingBlock>,
    /// Release callbacks for wrapped memory whose streams are done, to be called after unlocking.
    released: Vec<(Release, Block)>,
    /// References to streams, to be dropped after unlocking: dropping the last reference to a stream takes the lock.
    parting: Vec<Arc<StreamCore>>,
    /// Number of growths of the arena whose pages are being mapped without the lock.
    growing: u32,
    /// Number of growths that have ended.
    ended: u64,
    /// Number of threads that wait for all growths to end: meanwhile none begins.
    sharing: u32,
    /// Number of frees since fences were last polled.
    frees: u32,
    /// Number of cache hits of streams that are closed by now.
    hits: u64,
    /// Bytes of the blocks of those hits.
    hit_bytes: u64,
    /// Number of requests that failed for good, even with the fallback.
    failed: u64,
    /// Number of requests that pinned host memory served in place of the device's.
    fallbacks: u64,
    fallback_on: bool,
    /// Requests that wait for memory.
    waiters: WaiterQueue,
    /// The level of pressure that the caps of the streams' caches follow.
    level: Level,
    /// The capacity for which, and the bytes in use with which the level stays.
    level_holds: (u64, Range<u64>),
    /// When the window of time began in which the arena's peak is taken for what the pool needs.
    window: Option<Instant>,
    notices: PoolNotices,
}

/// A dropped block, held until the streams that use it are done.
struct PendingBlock {
    block: Block,
    place: BlockOrigin,
    owner: Owner,
    /// Tickets that the streams must reach before the block is freed.
    others: Vec<(Owner, u64)>,
    /// Called when the block is freed, for wrapped memory.
    release: Option<Release>,
}

/// What is left to do when the lock is released: all of it may run the user's code.
#[derive(Default)]
#[must_use]
struct DeferredActions {
    parting: Vec<Arc<StreamCore>>,
    wakers: PoolWakers,
    released: Vec<(Release, Block)>,
}

impl DeferredActions {
    /// Drops the streams.
    fn part(&mut self) {
        self.parting.drain(..).for_each(|stream| catch_panic(|| drop(stream)));
    }

    fn act(mut self) {
        with_waiting(|| {
            self.part();
            self.wakers.act();
            for (release, block) in self.released {
                catch_panic(|| release(block.address, block.bytes));
            }
        });
    }
}

/// The owner of pinned memory that the host uses. It is no stream, so no stream reuses the memory before its fence.
const HOST: Owner = Owner(u32::MAX - 1);

/// Number of frees after which fences are polled even if no request needs it. One event for 64 frees adds a few percent
/// to the cost of each, and keeps the list of waiting blocks short.
const FREES_A_POLL: u32 = 64;

impl<B: Backend> DevicePool<B> {
    /// Locks the state. Each structure in it is consistent between any two calls, even after a thread panicked.
    fn inner(&self) -> MutexGuard<'_, PoolState<B>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self) -> String {
        self.context.backend.description().name.clone()
    }

    /// Records a fault if it is fatal, and converts it to the user's error.
    fn driver(&self, fault: Fault) -> DeviceError {
        let fault = self.context.health.note(fault);
        if fault.is_fatal() {
            DeviceError::Lost { device: self.name(), fault, block: None }
        } else {
            DeviceError::Driver { device: self.name(), fault }
        }
    }

    /// Serves requests that wait, and releases the lock; then drops streams, wakes, and calls release callbacks: keepers, wakers and
    /// callbacks may call anything. A panic of one is caught: dropping a block must not panic, and the remaining callbacks are still
    /// called.
    fn unlock(&self, inner: MutexGuard<'_, PoolState<B>>) {
        self.release(inner).act();
    }

    /// As [`Self::unlock`]; the caller must do the rest, without a lock.
    fn release(&self, mut inner: MutexGuard<'_, PoolState<B>>) -> DeferredActions {
        if inner.waiters.is_active() {
            self.serve_waiters(&mut inner);
        }
        let wakers = inner.waiters.take_wakers();
        let released = std::mem::take(&mut inner.released);
        let parting = std::mem::take(&mut inner.parting);
        #[cfg(feature = "tracing")]
        let (notices, sizes) = {
            let reserved = inner.arena.reserved();
            inner.notices.take(reserved)
        };
        drop(inner);
        #[cfg(feature = "tracing")]
        notice::report(&self.context.backend.description().name, notices, sizes);
        DeferredActions { parting, wakers, released }
    }

    /// Fails when the device is lost or the process forked.
    fn usable(&self) -> Result<(), DeviceError> {
        self.context.health.check().map_err(|fault| self.driver(fault))
    }
}

impl<B: Backend> PoolState<B> {
    /// Frees a block that no other stream uses, into the arena that it came from.
    fn free(&mut self, block: Block, place: BlockOrigin, owner: Owner) {
        // The pool held pinned memory until its stream was done: any stream may reuse it now.
        let owner = if place == BlockOrigin::Host(HostMemory::Pinned) { HOST } else { owner };
        // Fails only for a block that is not live, and each block has one owner, which frees it once.
        let _ = self.arena_of(place).map_or(Ok(()), |arena| arena.free(block, owner));
        if place == BlockOrigin::Pool {
            self.given.freed(&block);
        }
        self.frees += 1;
        if self.frees >= FREES_A_POLL {
            self.poll();
        }
    }

    /// The arena of a block's origin, if there is one.
    fn arena_of(&mut self, place: BlockOrigin) -> Option<&mut DeviceArena<B>> {
        match place {
            BlockOrigin::Pool => Some(&mut self.arena),
            BlockOrigin::Host(side) => self.sides[side as usize].as_mut(),
            BlockOrigin::Graph(id) => self.graphs.get_mut(&id).map(|graph| &mut graph.arena),
            BlockOrigin::Foreign => None,
        }
    }

    /// Frees all blocks whose fence is ready; returns whether there were any.
    fn poll(&mut self) -> bool {
        self.frees = 0;
        let held = self.sweep();
        let freed = self.sides.iter_mut().flatten().fold(false, |freed, arena| arena.poll_fences() | freed);
        self.arena.poll_fences() | held | freed
    }

    /// Frees the held blocks whose streams are done. Queries each pending stream once, however many blocks wait for it,
    /// since its tickets become ready in order.
    fn sweep(&mut self) -> bool {
        let (mut freed, mut kept) = (false, Vec::new());
        // The lowest ticket of each stream that was found pending.
        let mut pending: BTreeMap<u32, u64> = BTreeMap::new();
        for mut held in std::mem::take(&mut self.held) {
            held.others.retain(|&(owner, ticket)| {
                if pending.get(&owner.0).is_some_and(|&first| first <= ticket) {
                    self.fences.cover(owner, ticket);
                    return true;
                }
                let state = self.fences.reached(owner, ticket, false);
                if state == FenceState::Pending {
                    pending.insert(owner.0, ticket);
                }
                // A failed fence never becomes ready: the block leaks.
                state != FenceState::Ready
            });
            if !held.others.is_empty() {
                kept.push(held);
                continue;
            }
            self.released.extend(held.release.map(|release| (release, held.block)));
            self.free(held.block, held.place, held.owner);
            freed = true;
        }
        self.held.extend(kept);
        freed
    }

    /// Frees the larger blocks in the streams' caches into the arena, before the arena is searched.
    fn take_recent(&mut self) {
        let Self { streams, arena, parting, frees, given, .. } = self;
        let streams = streams.iter().filter(|(_, has_recent)| has_recent.load(Ordering::Relaxed));
        for stream in streams.filter_map(|(stream, _)| stream.upgrade()) {
            stream.drain_recent(|block, owner| {
                given.freed(&block);
                // Never fails: a cached block is live in the arena.
                let _ = arena.free(block, owner);
                *frees += 1;
            });
            parting.push(stream);
        }
        if self.frees >= FREES_A_POLL {
            self.poll();
        }
    }

    /// Empties the caches of all streams into the arena. Returns the bytes of the blocks in them.
    fn drain(&mut self) -> u64 {
        let mut drained = 0;
        let Self { streams, arena, parting, given, .. } = self;
        streams.retain(|(stream, _)| stream.strong_count() > 0);
        for stream in streams.iter().filter_map(|(stream, _)| stream.upgrade()) {
            // Never fails: a cached block is live in the arena.
            drained += stream.drain(|block, owner| {
                given.freed(&block);
                let _ = arena.free(block, owner);
            });
            parting.push(stream);
        }
        drained
    }
}

impl<B: Backend> Drop for DevicePool<B> {
    /// Waits for work in flight, so that memory returns to the driver, and wrapped memory to its owner. Where the
    /// driver cannot say whether work is done, the memory that it may use leaks.
    fn drop(&mut self) {
        if self.context.health.forked() {
            // Callbacks of the user belong to the parent process: the child neither calls nor drops them.
            let hook = self.hook.get_mut().unwrap_or_else(PoisonError::into_inner);
            let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget((hook.take(), std::mem::take(&mut inner.held), std::mem::take(&mut inner.released)));
            std::mem::forget(std::mem::take(&mut inner.waiters));
            return;
        }
        if let Err(fault) = self.context.fences.finish() {
            self.context.health.note(Fault { reason: FaultReason::Lost, ..fault });
        }
        let mut inner = self.wait_for_held(self.inner());
        std::mem::forget(std::mem::take(&mut inner.held));
        self.unlock(inner);
    }
}
