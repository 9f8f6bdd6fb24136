//! [`Service`] for the pool of any backend: the calls that devices, streams and blocks make.

use super::{DeviceArena, DevicePool};
use crate::backend::{Backend, RawStream};
use crate::capability::{Description, Memory};
use crate::error::DeviceError;
use crate::fault::Fault;
use crate::health::DeviceHealth;
use crate::options::DeviceOptions;
use crate::source::{destroy, settle, wait};
use crate::staging::StagingBuffer;
use crate::stats::{DeviceMaintenance, DeviceStats};
use crate::stream::{
    BlockExtra, BlockOrigin, ClosedStream, FreedBlock, Hook, HostMemory, HostSlice, Keeper, Service, StreamCore,
    StreamHandle, StreamOwnership, StreamProgress,
};
use crate::stream_cache::AllocatedTail;
use std::sync::{Arc, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;
use terrace_core::arena::Defragmentation;
use terrace_core::pressure::CachePolicy;
use terrace_core::{Allocator, Block, Request, Stats, Violation};

/// An arena's statistics, with the memory of its source's records added to `metadata`.
fn stats_of<B: Backend>(arena: &DeviceArena<B>) -> Stats {
    let mut stats = arena.stats();
    stats.metadata += arena.source().metadata();
    stats
}

impl<B: Backend> Service for DevicePool<B> {
    fn options(&self) -> &DeviceOptions {
        &self.options
    }

    fn description(&self) -> &Description {
        self.context.backend.description()
    }

    fn health(&self) -> Arc<DeviceHealth> {
        Arc::clone(&self.context.health)
    }

    fn given(&self) -> Arc<AllocatedTail> {
        Arc::clone(&self.given)
    }

    #[cfg(feature = "track")]
    fn tracker(&self) -> &Arc<terrace_track::Tracker> {
        &self.tracker
    }

    fn backend(&self) -> &dyn Backend {
        &*self.context.backend
    }

    fn stage(&self, bytes: u64) -> Result<StagingBuffer, Fault> {
        self.make_stage(bytes)
    }

    fn error(&self, fault: Fault) -> DeviceError {
        self.driver(fault)
    }

    fn is(&self, other: &dyn Service) -> bool {
        std::ptr::addr_eq(self, other)
    }

    fn memory(&self) -> Result<Memory, DeviceError> {
        self.usable()?;
        self.context.backend.memory().map_err(|fault| self.driver(fault))
    }

    fn stats(&self) -> DeviceStats {
        if self.context.health.forked() {
            // A lock may be held by a thread that only the parent process has.
            return DeviceStats::default();
        }
        // Declared before the lock, so dropped after it: dropping the last reference to a stream takes the lock.
        let streams: Vec<Arc<StreamCore>>;
        let inner = self.inner();
        streams = inner.streams.iter().filter_map(|(stream, _)| stream.upgrade()).collect();
        let mut pool = stats_of(&inner.arena);
        let mut stats = DeviceStats { held: inner.held.len() as u64, ..DeviceStats::default() };
        for stream in &streams {
            let counts = stream.counts();
            pool.in_use -= counts.bytes;
            pool.requested -= counts.bytes;
            pool.pooled += counts.bytes;
            pool.live_blocks -= counts.blocks;
            stats.cache_hits += counts.hits;
            pool.allocated_bytes += counts.hit_bytes;
            pool.metadata += counts.metadata;
            stats.streams += 1;
        }
        stats.cache_hits += inner.hits;
        pool.allocated_bytes += inner.hit_bytes;
        pool.allocations += stats.cache_hits;
        pool.hits += stats.cache_hits;
        pool.frees = pool.allocations - pool.live_blocks;
        pool.freed_bytes = pool.allocated_bytes - pool.in_use;
        pool.failed = inner.failed;
        let side = |side| inner.sides[side as usize].as_ref().map_or_else(Stats::default, stats_of);
        stats.pinned = side(HostMemory::Pinned).plus(side(HostMemory::Fallback));
        stats.managed = side(HostMemory::Managed);
        pool.fallbacks = inner.fallbacks;
        stats.graphs = inner.graphs.values().map(|graph| stats_of(&graph.arena)).fold(Stats::default(), Stats::plus);
        stats.events = inner.fences.events();
        stats.pool = pool;
        stats
    }

    fn check(&self) -> Result<(), Violation> {
        if self.context.health.forked() {
            return Ok(());
        }
        self.check_all()
    }

    fn serve(
        &self,
        home: &Arc<StreamCore>,
        request: Request,
        fallback: bool,
    ) -> Result<(Block, BlockOrigin), DeviceError> {
        DevicePool::serve(self, home, request, fallback)
    }

    fn serve_host_memory(
        &self,
        home: &Arc<StreamCore>,
        request: Request,
        side: HostMemory,
    ) -> Result<Block, DeviceError> {
        DevicePool::serve_host_memory(self, home, request, side)
    }

    fn serve_batch(
        &self,
        home: &Arc<StreamCore>,
        requests: &[Request],
    ) -> Result<Vec<(Block, BlockOrigin)>, DeviceError> {
        DevicePool::serve_batch(self, home, requests)
    }

    fn poll_memory(
        &self,
        home: &Arc<StreamCore>,
        request: Request,
        ticket: &mut Option<u64>,
        waker: &Waker,
    ) -> Poll<Result<(Block, BlockOrigin), DeviceError>> {
        DevicePool::poll_memory(self, home, request, ticket, waker)
    }

    fn leave_queue(&self, ticket: u64) -> Option<(Block, BlockOrigin)> {
        DevicePool::leave_queue(self, ticket)
    }

    fn refuse(&self, home: &StreamCore, request: Request) -> DeviceError {
        DevicePool::refuse(self, home, request)
    }

    fn give_back(&self, home: &Arc<StreamCore>, block: Block, extra: Option<BlockExtra>) {
        let mut inner = self.inner();
        self.keep_in_shape(&mut inner, self.refused_by_cache(&block));
        let due = inner.take_back(home, block, extra);
        inner.after_frees(due);
        self.unlock(inner);
    }

    fn give_back_all(&self, freed: Vec<FreedBlock>) {
        DevicePool::give_back_all(self, freed);
    }

    fn coalesce(&self) -> u64 {
        DevicePool::coalesce(self)
    }

    fn trim(&self) -> u64 {
        DevicePool::trim(self)
    }

    fn maintain(&self, now: Instant) -> DeviceMaintenance {
        DevicePool::maintain(self, now)
    }

    fn defragment(&self, most: u64) -> Result<Defragmentation, DeviceError> {
        DevicePool::defragment(self, most)
    }

    fn adapt(&self, policy: &CachePolicy) {
        DevicePool::adapt(self, policy);
    }

    fn set_capacity(&self, bytes: u64) {
        if !self.context.health.forked() {
            let mut inner = self.inner();
            inner.arena.source_mut().set_capacity(bytes);
            self.unlock(inner);
        }
    }

    fn set_hook(&self, hook: Option<Hook>) {
        if self.context.health.forked() {
            return;
        }
        let old = std::mem::replace(&mut *self.hook.lock().unwrap_or_else(PoisonError::into_inner), hook);
        // Dropped without the lock: the old hook may own values whose drop sets another hook.
        drop(old);
    }

    fn set_fallback(&self, on: bool) {
        if !self.context.health.forked() {
            self.inner().fallback_on = on;
        }
    }

    fn open_stream(&self) -> Result<Arc<StreamHandle>, DeviceError> {
        self.usable()?;
        let backend = &*self.context.backend;
        let raw = backend.create_stream().map_err(|fault| self.driver(fault))?;
        self.begin(raw, &mut Some(StreamOwnership::Ours)).inspect_err(|_| destroy(backend, raw))
    }

    fn adopt_stream(&self, raw: RawStream, keeper: Option<Keeper>) -> Result<Arc<StreamHandle>, DeviceError> {
        self.adopt(raw, keeper)
    }

    fn retire_stream(&self, stream: &Arc<StreamCore>) {
        self.retire(stream);
    }

    fn close_stream(&self, stream: ClosedStream) {
        self.close(stream);
    }

    fn check_stream(&self, stream: &StreamCore) -> Result<(), DeviceError> {
        if self.is(&*stream.service) {
            return Ok(());
        }
        let of = stream.service.description().name.clone();
        Err(DeviceError::OtherDevice { block: None, of, asked: self.name() })
    }

    fn synchronize_stream(&self, stream: RawStream) -> Result<(), DeviceError> {
        self.usable()?;
        // SAFETY: the caller holds the stream.
        unsafe { self.context.backend.synchronize_stream(stream) }.map_err(|fault| self.driver(fault))
    }

    fn settle_stream(&self, stream: RawStream) -> Result<(), DeviceError> {
        self.usable()?;
        wait(&*self.context.backend, stream).map_err(|fault| self.driver(fault))
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        self.usable()?;
        self.context.backend.synchronize().map_err(|fault| self.driver(fault))
    }

    fn order(&self, later: RawStream, first: RawStream) -> Result<(), DeviceError> {
        let event = self.create_event()?;
        // SAFETY: the caller holds the stream; the event is destroyed below.
        let order = || unsafe { self.context.backend.order(later, event) };
        let ordered = self.record_event(event, first).and_then(|()| order().map_err(|fault| self.driver(fault)));
        self.destroy_event(event);
        ordered
    }

    fn copy_host(&self, host: HostSlice<'_>, device: u64, stream: RawStream) -> Result<(), DeviceError> {
        self.transfer(host, device, stream)
    }

    fn copy(&self, to: u64, from: u64, bytes: u64, stream: RawStream) -> Result<(), DeviceError> {
        self.usable()?;
        // SAFETY: both ranges lie in live blocks of this device, in two blocks or in disjoint parts of one; freed
        // memory is not reused before this stream has done all work put on it.
        unsafe { self.context.backend.copy(to, from, bytes, stream) }.map_err(|fault| self.driver(fault))
    }

    fn copy_peer(&self, to: u64, from: u64, of: u32, bytes: u64, stream: RawStream) -> Result<(), DeviceError> {
        self.usable()?;
        // SAFETY: as in `copy`; the copy is waited for below.
        let copied = unsafe { self.context.backend.copy_peer(to, from, of, bytes, stream) };
        // The source's device does not know of this stream, so its memory must not be reused before the copy is done.
        let waited = settle(&*self.context.backend, stream);
        waited.and(copied).map_err(|fault| self.driver(fault))
    }

    fn fill(&self, at: u64, value: u8, bytes: u64, stream: RawStream) -> Result<(), DeviceError> {
        self.usable()?;
        // SAFETY: the range lies in a live block that the caller borrows for writing.
        unsafe { self.context.backend.fill(at, value, bytes, stream) }.map_err(|fault| self.driver(fault))
    }

    fn can_reach(&self, ordinal: u32) -> bool {
        self.usable().is_ok() && self.context.backend.can_reach(ordinal).unwrap_or(false)
    }

    fn reach(&self, ordinal: u32) -> Result<(), DeviceError> {
        self.usable()?;
        self.context.backend.reach(ordinal).map_err(|fault| self.driver(fault))
    }

    fn share(&self, ordinal: u32) -> Result<(), DeviceError> {
        self.usable()?;
        // What is being mapped is not open to that device.
        let mut inner = self.wait_for_all_growths(self.inner());
        inner.arena.source_mut().share(ordinal).map_err(|fault| self.driver(fault))
    }

    fn open_graph(&self) -> Result<u32, DeviceError> {
        DevicePool::open_graph(self)
    }

    fn close_graph(&self, id: u32) {
        DevicePool::close_graph(self, id);
    }

    fn begin_capture(&self, stream: &StreamCore, graph: u32) -> Result<(), DeviceError> {
        DevicePool::begin_capture(self, stream, graph)
    }

    fn end_capture(&self, stream: &StreamCore, graph: u32) {
        DevicePool::end_capture(self, stream, graph);
    }
}
