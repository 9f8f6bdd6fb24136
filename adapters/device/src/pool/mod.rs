//! The pool of one device: arena, fences, streams, held blocks, fallback, private pools of graphs.
//!
//! Promises upward: [`Service`](crate::stream::Service), which hides the backend; a call holds one lock, and none while it waits for held blocks; a
//! failed allocation is true: before it, caches were emptied, fences waited for, unused memory given back, and the user's
//! hook was asked.
//! Asks from below: the core's arena over a [`DeviceSource`] and [`Fences`].
//!
//! Locks: the pool's, then a stream's; never the other way round. Fences have one of their own below both. An arena waits
//! for what was freed into it, and before its pages move, under the pool's: no thread may allocate or free there meanwhile.

mod allocate;
mod check;
mod events;
mod graphs;
mod hints;
mod host_copy;
mod open;
mod registration;
mod service;

use crate::backend::Backend;
use crate::error::DeviceError;
use crate::fault::{Fault, FaultReason};
use crate::fences::Fences;
use crate::options::DeviceOptions;
use crate::source::{BackendContext, DeviceSource};
use crate::staging::StagingBuffer;
use crate::store::HeapStore;
use crate::stream::{BlockOrigin, Hook, HostMemory, Release, StreamCore, StreamHandle};
use crate::stream_cache::AllocatedTail;
use graphs::Graph;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use terrace_core::{Allocator, AnyFit, Arena, Block, Branch, FenceState, Owner};
use terrace_guard::catch_panic;

/// The arena of a device, of the strategy that the options name; records on the heap.
type DeviceArena<B> = Arena<DeviceSource<B>, Fences<B>, HeapStore<AnyFit<Box<[Branch]>>>>;

/// Variants of [`HostMemory`].
const SIDES: usize = 3;

/// One device.
pub(crate) struct DevicePool<B: Backend> {
    context: BackendContext<B>,
    options: DeviceOptions,
    inner: Mutex<PoolState<B>>,
    hook: Mutex<Option<Hook>>,
    /// What the last copy of lent memory passed through. A lock of its own, below all others.
    stage: Mutex<Option<StagingBuffer>>,
    /// What the streams' caches know of the arena.
    given: Arc<AllocatedTail>,
    /// One handle is adopted at a time, so that it becomes one stream.
    adopting: Mutex<()>,
    /// Itself, for streams to hold.
    me: Weak<Self>,
}

/// What the pool's lock guards.
struct PoolState<B: Backend> {
    arena: DeviceArena<B>,
    /// What all the arenas here wait with.
    fences: Fences<B>,
    /// Memory of other kinds, by [`HostMemory`]. Made when it is first needed.
    sides: [Option<DeviceArena<B>>; SIDES],
    graphs: BTreeMap<u32, Graph<B>>,
    next_graph: u32,
    /// The pool's.
    given: Arc<AllocatedTail>,
    /// Streams whose caches may hold something, and whether there are larger blocks in them.
    streams: Vec<(Weak<StreamCore>, Arc<AtomicBool>)>,
    /// Streams of others, by handle and the driver's name.
    adopted: HashMap<(u64, Option<u64>), Weak<StreamHandle>>,
    /// The next stream's owner; never used twice.
    next_owner: u32,
    held: Vec<PendingBlock>,
    /// Wrapped memory that may go, to be released without the lock.
    released: Vec<(Release, Block)>,
    /// Streams that were looked at: let go of without the lock, which the last handle of one asks for.
    parting: Vec<Arc<StreamCore>>,
    /// Frees since fences were last polled.
    frees: u32,
    /// Hits of the caches of streams that are closed.
    hits: u64,
    /// Requests that failed in every part.
    failed: u64,
    /// Requests that pinned memory served in the device's place.
    fallbacks: u64,
    fallback_on: bool,
}

/// A block that was dropped while other streams use it.
struct PendingBlock {
    block: Block,
    place: BlockOrigin,
    owner: Owner,
    /// What each of the others has to have done.
    others: Vec<(Owner, u64)>,
    /// Called when it may go.
    release: Option<Release>,
}

/// The owner of pinned memory that the host uses: no stream, so nothing is reused before its fence.
const HOST: Owner = Owner(u32::MAX - 1);

/// Frees after which fences are polled without need: an event for 64 blocks costs each a few percent of a free, and keeps
/// short the list of what waits.
const FREES_A_POLL: u32 = 64;

impl<B: Backend> DevicePool<B> {
    /// Every structure in there is whole between any two of its calls, also after a thread panicked.
    fn inner(&self) -> MutexGuard<'_, PoolState<B>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self) -> String {
        self.context.backend.description().name.clone()
    }

    /// A fault as users see it.
    fn driver(&self, fault: Fault) -> DeviceError {
        let fault = self.context.health.note(fault);
        if fault.is_fatal() {
            DeviceError::Lost { device: self.name(), fault, block: None }
        } else {
            DeviceError::Driver { device: self.name(), fault }
        }
    }

    /// Lets go of the lock, then of what was wrapped and of streams: releases and keepers may call anything. One that panics
    /// is its owner's affair: dropping a block never panics, and those that come after it are still called.
    fn unlock(&self, mut inner: MutexGuard<'_, PoolState<B>>) {
        let released = std::mem::take(&mut inner.released);
        let parting = std::mem::take(&mut inner.parting);
        drop(inner);
        parting.into_iter().for_each(|stream| catch_panic(|| drop(stream)));
        for (release, block) in released {
            catch_panic(|| release(block.address, block.bytes));
        }
    }

    /// Fails when the device is lost or the process forked.
    fn usable(&self) -> Result<(), DeviceError> {
        self.context.health.check().map_err(|fault| self.driver(fault))
    }
}

impl<B: Backend> PoolState<B> {
    /// Takes a block back that no other stream uses. A block of a graph's pool stays there.
    fn free(&mut self, block: Block, place: BlockOrigin, owner: Owner) {
        // What the host used waited for its stream: it is free for all.
        let owner = if place == BlockOrigin::Host(HostMemory::Pinned) { HOST } else { owner };
        // Refused only for a name that is not live, and each block has one owner, which frees it once.
        let _ = self.arena_of(place).map_or(Ok(()), |arena| arena.free(block, owner));
        if place == BlockOrigin::Pool {
            self.given.freed(&block);
        }
        self.frees += 1;
        if self.frees >= FREES_A_POLL {
            self.poll();
        }
    }

    /// The arena that blocks of a place lie in, if there is one.
    fn arena_of(&mut self, place: BlockOrigin) -> Option<&mut DeviceArena<B>> {
        match place {
            BlockOrigin::Pool => Some(&mut self.arena),
            BlockOrigin::Host(side) => self.sides[side as usize].as_mut(),
            BlockOrigin::Graph(id) => self.graphs.get_mut(&id).map(|graph| &mut graph.arena),
            BlockOrigin::Foreign => None,
        }
    }

    /// Frees everything whose fence is ready.
    fn poll(&mut self) -> bool {
        self.frees = 0;
        let held = self.sweep();
        let freed = self.sides.iter_mut().flatten().fold(false, |freed, arena| arena.poll_fences() | freed);
        self.arena.poll_fences() | held | freed
    }

    /// Frees the held blocks whose other users are done. The driver is asked once for each stream that is not, however many
    /// blocks wait for it: its tickets become ready in order.
    fn sweep(&mut self) -> bool {
        let (mut freed, mut kept) = (false, Vec::new());
        // The least ticket of each stream that was found pending.
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
                // A failed fence never opens: the block is leaked.
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

    /// Takes larger blocks out of the streams' caches: the arena is about to be searched.
    fn take_recent(&mut self) {
        let Self { streams, arena, parting, frees, given, .. } = self;
        let streams = streams.iter().filter(|(_, has_recent)| has_recent.load(Ordering::Relaxed));
        for stream in streams.filter_map(|(stream, _)| stream.upgrade()) {
            stream.drain_recent(|block, owner| {
                given.freed(&block);
                // Never refused: cached blocks are live for the arena.
                let _ = arena.free(block, owner);
                *frees += 1;
            });
            parting.push(stream);
        }
        if self.frees >= FREES_A_POLL {
            self.poll();
        }
    }

    /// Empties the caches of all streams into the arena. True when something was in them.
    fn drain(&mut self) -> bool {
        let mut drained = false;
        let Self { streams, arena, parting, given, .. } = self;
        streams.retain(|(stream, _)| stream.strong_count() > 0);
        for stream in streams.iter().filter_map(|(stream, _)| stream.upgrade()) {
            // Never refused: cached blocks are live for the arena.
            drained |= stream.drain(|block, owner| {
                given.freed(&block);
                let _ = arena.free(block, owner);
            });
            parting.push(stream);
        }
        drained
    }
}

impl<B: Backend> Drop for DevicePool<B> {
    /// Waits for what is in flight: memory goes back to the driver, and what was wrapped to its owner. Nothing goes where the
    /// driver cannot say whether it is done: what is still held then stays so for ever.
    fn drop(&mut self) {
        if self.context.health.forked() {
            // What others brought is the parent's to call and to drop.
            let hook = self.hook.get_mut().unwrap_or_else(PoisonError::into_inner);
            let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget((hook.take(), std::mem::take(&mut inner.held), std::mem::take(&mut inner.released)));
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
