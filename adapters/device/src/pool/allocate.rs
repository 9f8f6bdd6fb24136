//! How a request is served, and what is tried before it fails.
//!
//! ```text
//!   arena: a gap; blocks that the stream freed; blocks whose fences are ready; a new page or segment; wait for fences
//!     none ─► empty the streams' caches, search the arena again
//!     none ─► wait for blocks held for other streams, without the lock; start again
//!     none ─► call the user's hook, without the lock; if it returns true, start again
//!     none ─► pinned host memory, where the fallback is on
//!     none ─► an error with the request and the state of the arena
//! ```

use super::growth::Relocked;
use super::notice::PoolNotice;
use super::{DevicePool, HOST, PoolState};
use crate::backend::{Backend, MemoryKind};
use crate::capability::Capabilities;
use crate::error::DeviceError;
use crate::fault::{Fault, FaultReason};
use crate::fences::may_wait;
use crate::options::PoolOrigin;
use crate::out_of_memory::{DeviceShare, OutOfMemory};
use crate::source::{DeviceSource, Regions};
use crate::store::ArenaCapacity;
use crate::stream::{BlockOrigin, HostMemory, NO_ROUTE, StreamCore};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::thread::LocalKey;
use terrace_core::{AllocError, Allocator, Arena, Block, Cause, Owner, Request, Stats};

/// Marks on drop that this thread runs no hook any more, even if the hook panicked.
struct HookGuard(&'static LocalKey<Cell<bool>>);

impl Drop for HookGuard {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl<B: Backend> DevicePool<B> {
    /// Allocates a block for a stream whose cache had none.
    pub(super) fn serve(
        &self,
        home: &Arc<StreamCore>,
        request: Request,
        fallback: bool,
    ) -> Result<(Block, BlockOrigin), DeviceError> {
        self.usable()?;
        self.judge(request)?;
        let request = request.owner(home.owner);
        let mut asked_at = None;
        loop {
            let mut what = match self.serve_alone(home, request) {
                Ok(served) => return Ok(served),
                Err(what) => what,
            };
            let memory = is_memory(what.cause);
            let on_device = home.route() == NO_ROUTE;
            self.usable()?;
            // A hook that returned true without freeing any memory is not called again.
            let helped = asked_at.is_none_or(|in_use| what.in_use < in_use);
            asked_at = Some(what.in_use);
            if memory && helped && self.ask(&mut what, on_device) {
                continue;
            }
            let mut inner = self.inner();
            // No fallback during a capture: a graph keeps its memory, and fallback memory is reused by others.
            let may = fallback && memory && home.route() == NO_ROUTE;
            let block = may.then(|| inner.fall_back(self, request)).flatten();
            if block.is_none() {
                inner.failed += 1;
                inner.notices.add(PoolNotice::OutOfMemory { asked: request.bytes });
            }
            self.unlock(inner);
            if let Some(block) = block {
                return Ok((block, BlockOrigin::Host(HostMemory::Fallback)));
            }
            self.explain(&mut what, on_device);
            return Err(DeviceError::OutOfMemory(what));
        }
    }

    /// Tries everything but the user's hook and the fallback. Waits only if this thread [may](may_wait).
    pub(super) fn serve_alone(
        &self,
        home: &Arc<StreamCore>,
        request: Request,
    ) -> Result<(Block, BlockOrigin), Box<OutOfMemory>> {
        let mut inner = self.inner();
        // Memory that other streams are done with is preferred to fresh memory.
        self.keep_in_shape(&mut inner, 0);
        inner.take_recent();
        inner.sweep();
        let (mut waited, mut growths) = (false, None);
        loop {
            let route = home.route();
            let place = if route == NO_ROUTE { BlockOrigin::Pool } else { BlockOrigin::Graph(route) };
            let mut served;
            (inner, served) = self.attempt(inner, place, request);
            if served.as_ref().is_err_and(|error| is_memory(error.cause)) {
                // What others map may have room for this request, or go back. Those that begin later need not be waited for.
                if may_wait() && inner.growing > 0 && *growths.get_or_insert(inner.growing) > 0 {
                    growths = growths.map(|left| left - 1);
                    inner = self.wait_for_growth(inner);
                    continue;
                }
                if may_wait() && !waited && !inner.held.is_empty() {
                    (inner, waited) = (self.wait_for_held(inner), true);
                    inner.notices.add(PoolNotice::WaitedForStreams { asked: request.bytes });
                    continue;
                }
                // A graph's pool reserves segments of its own: what the device's arena releases may make room for one.
                let bytes = if matches!(place, BlockOrigin::Graph(_)) { inner.arena.trim() } else { 0 };
                if bytes > 0 {
                    inner.notices.add(PoolNotice::Trimmed { asked: request.bytes, bytes });
                    served = inner.from(place, request);
                }
            }
            let served = served.map(|block| (block, place)).map_err(|error| Box::new(inner.describe(place, error)));
            self.unlock(inner);
            return served;
        }
    }

    /// Allocates from the arena of `place`; if that fails, empties the streams' caches into their arena and tries again. Releases the
    /// lock while pages are mapped.
    fn attempt<'a>(
        &'a self,
        mut inner: MutexGuard<'a, PoolState<B>>,
        place: BlockOrigin,
        request: Request,
    ) -> Relocked<'a, B> {
        let mut served;
        (inner, served) = self.from(inner, place, request);
        if served.as_ref().is_err_and(|error| is_memory(error.cause)) && inner.drain() > 0 {
            inner.notices.add(PoolNotice::CachesEmptied { asked: request.bytes });
            (inner, served) = self.from(inner, place, request);
        }
        (inner, served)
    }

    fn from<'a>(
        &'a self,
        mut inner: MutexGuard<'a, PoolState<B>>,
        place: BlockOrigin,
        request: Request,
    ) -> Relocked<'a, B> {
        if place != BlockOrigin::Pool {
            let served = inner.from(place, request);
            return (inner, served);
        }
        let (inner, served) = self.allocate_unlocked(inner, request);
        served.iter().for_each(|block| inner.given.allocated(block));
        (inner, served)
    }

    /// Waits for the streams that still use dropped blocks, then frees those blocks. Releases the lock for the wait, so
    /// that other threads can allocate and free.
    pub(super) fn wait_for_held<'a>(&'a self, inner: MutexGuard<'a, PoolState<B>>) -> MutexGuard<'a, PoolState<B>> {
        // A stream's highest ticket covers its lower ones.
        let mut tickets = BTreeMap::new();
        for &(owner, ticket) in inner.held.iter().flat_map(|held| &held.others) {
            let last = tickets.entry(owner.0).or_insert(ticket);
            *last = ticket.max(*last);
        }
        self.unlock(inner);
        for (owner, ticket) in tickets {
            self.context.fences.wait_outside(Owner(owner), ticket);
        }
        let mut inner = self.inner();
        inner.sweep();
        inner
    }

    /// Allocates pinned or managed memory, from the arena of its kind.
    pub(super) fn serve_host_memory(
        &self,
        home: &Arc<StreamCore>,
        request: Request,
        side: HostMemory,
    ) -> Result<Block, DeviceError> {
        self.usable()?;
        let (owner, capability) = match side {
            HostMemory::Managed => (home.owner, Capabilities::MANAGED),
            HostMemory::Pinned | HostMemory::Fallback => (HOST, Capabilities::PINNED),
        };
        if !self.context.backend.description().capabilities.contains(capability) {
            return Err(self.driver(Fault::of("allocate host memory", FaultReason::Unsupported)));
        }
        self.judge_shape(request)?;
        let mut inner = self.inner();
        let mut served = inner.allocate_host_memory(self, side, request.owner(owner));
        if served.is_err() && !inner.held.is_empty() {
            inner = self.wait_for_held(inner);
            served = inner.allocate_host_memory(self, side, request.owner(owner));
        }
        let served = served.map_err(|error| Box::new(inner.describe(BlockOrigin::Host(side), error)));
        self.unlock(inner);
        served.map_err(DeviceError::OutOfMemory)
    }

    /// Adds to a refusal of the device's memory what the driver and the tracker know, without the pool's lock, and what would have
    /// served the request: of the pool itself (`in_pool`), or of a graph.
    pub(super) fn explain(&self, what: &mut OutOfMemory, in_pool: bool) {
        let memory = self.usable().ok().and_then(|()| self.context.backend.memory().ok());
        what.device = memory.map(|memory| DeviceShare {
            free: memory.free,
            others: memory.total.saturating_sub(memory.free).saturating_sub(what.held),
        });
        #[cfg(feature = "track")]
        if self.tracker.is_on() {
            let tags = self.tracker.by_tag().tags.into_iter().filter(|tag| tag.live_bytes > 0);
            what.tags = tags.take(3).map(|tag| (tag.tag, tag.live_bytes)).collect();
        }
        let description = self.context.backend.description();
        let segments =
            matches!(self.options.origin, PoolOrigin::Segments | PoolOrigin::DriverPool | PoolOrigin::Managed);
        let could_page = in_pool && segments && description.capabilities.contains(Capabilities::PAGES);
        let unit = description.page_bytes.max(self.options.arena(false).grain);
        what.remedy = what.judge(unit, could_page);
    }

    /// Refuses a request that can never succeed.
    pub(super) fn judge(&self, request: Request) -> Result<(), DeviceError> {
        self.judge_shape(request)?;
        let Request { bytes, align, .. } = request;
        let rule = "that is more than the device has in all";
        let fits = bytes <= self.context.backend.description().total;
        if fits { Ok(()) } else { Err(DeviceError::BadRequest { bytes, align, rule }) }
    }

    fn judge_shape(&self, request: Request) -> Result<(), DeviceError> {
        let Request { bytes, align, .. } = request;
        let bad = |rule| Err(DeviceError::BadRequest { bytes, align, rule });
        if bytes == 0 {
            return bad("a block has at least one byte");
        }
        if !align.is_power_of_two() {
            return bad("an alignment is a power of two");
        }
        if bytes > 1 << 62 {
            return bad("that is more than any memory has");
        }
        // The driver chooses a segment's address, which is aligned to the driver's own granularity only.
        if align > 2 << 20 {
            return bad("the largest alignment is 2 MiB");
        }
        Ok(())
    }

    /// Explains the refusal to the user's hook, which it calls without a lock; false if there is none, or if this thread is in the
    /// hook already.
    pub(super) fn ask(&self, what: &mut OutOfMemory, in_pool: bool) -> bool {
        thread_local! {
            static IN_HOOK: Cell<bool> = const { Cell::new(false) };
        }
        let Some(hook) = self.hook.lock().unwrap_or_else(PoisonError::into_inner).clone() else { return false };
        if IN_HOOK.replace(true) {
            return false;
        }
        let _asked = HookGuard(&IN_HOOK);
        self.explain(what, in_pool);
        let freed = hook(what);
        #[cfg(feature = "tracing")]
        self.inner().notices.add(PoolNotice::HookCalled { asked: what.asked, freed });
        freed
    }
}

/// Whether freeing memory may make the failed request succeed.
pub(super) fn is_memory(cause: Cause) -> bool {
    matches!(cause, Cause::OutOfMemory | Cause::OutOfSlots | Cause::SourceFailed)
}

impl<B: Backend> PoolState<B> {
    /// Allocates from the arena of an origin, with the lock held while pages are mapped.
    pub(super) fn from(&mut self, place: BlockOrigin, request: Request) -> Result<Block, AllocError> {
        let none = AllocError::new(Cause::BadRequest, request.bytes);
        self.arena_of(place).map_or(Err(none), |arena| arena.allocate(request))
    }

    /// Converts a failure to the user's error, with the figures of the arena of `place`; of the device's, if it has
    /// none.
    pub(super) fn describe(&mut self, place: BlockOrigin, error: AllocError) -> OutOfMemory {
        let place = if self.arena_of(place).is_some() { place } else { BlockOrigin::Pool };
        let graphs = self.graphs.values().map(|graph| graph.arena.reserved()).sum::<u64>();
        let held = self.arena.reserved() + graphs;
        let arena = self.arena_of(place);
        let stats = arena.as_ref().map_or_else(Stats::default, |arena| arena.stats());
        OutOfMemory {
            asked: error.asked,
            largest_free: error.largest_free,
            reserved: stats.reserved,
            in_use: stats.in_use,
            capacity: stats.capacity,
            held,
            device: None,
            tags: Vec::new(),
            cause: error.cause,
            fault: arena.and_then(|arena| arena.source_mut().take_fault()),
            remedy: None,
        }
    }

    /// Allocates pinned host memory in place of the device's, if the fallback is on.
    fn fall_back(&mut self, pool: &DevicePool<B>, request: Request) -> Option<Block> {
        let block =
            self.fallback_on.then(|| self.allocate_host_memory(pool, HostMemory::Fallback, request).ok()).flatten()?;
        self.fallbacks += 1;
        self.notices.add(PoolNotice::FellBack { asked: request.bytes });
        Some(block)
    }

    /// Allocates pinned or managed memory, from the arena of its kind, which is created first if there is none.
    fn allocate_host_memory(
        &mut self,
        pool: &DevicePool<B>,
        side: HostMemory,
        request: Request,
    ) -> Result<Block, AllocError> {
        let (kind, settings) = match side {
            HostMemory::Managed => (MemoryKind::Managed, pool.options.arena(false)),
            HostMemory::Fallback | HostMemory::Pinned => (MemoryKind::Pinned, pool.options.side()),
        };
        let arena = &mut self.sides[side as usize];
        if arena.is_none() {
            let source = DeviceSource::Regions(Regions::new(pool.context.clone(), kind, 0));
            let room =
                ArenaCapacity { slots: pool.options.blocks.min(1 << 16), bins: 4, entries: 0, segments: 1 << 13 };
            *arena = Arena::new(source, self.fences.clone(), pool.options.parts(room), settings).ok();
        }
        let none = AllocError::new(Cause::OutOfSlots, request.bytes);
        arena.as_mut().map_or(Err(none), |arena| arena.allocate(request))
    }
}
