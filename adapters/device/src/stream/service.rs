//! The calls of streams, blocks and devices to the pool behind them, whatever the pool's backend.
//!
//! Promises upward: one object-safe trait, [`Service`], so that users see no type parameter.
//! Asks from below: nothing; the pool implements it.

use super::{ClosedStream, Keeper, StreamCore, StreamHandle};
use crate::backend::{Backend, CopyRange, RawEvent, RawStream};
use crate::capability::{Description, Memory};
use crate::error::DeviceError;
use crate::fault::Fault;
use crate::health::DeviceHealth;
use crate::hint::{Advice, Hint, PrefetchTarget};
use crate::options::DeviceOptions;
use crate::out_of_memory::OutOfMemory;
use crate::staging::StagingBuffer;
use crate::stats::{DeviceMaintenance, DeviceStats};
use crate::stream_cache::AllocatedTail;
use spin::mutex::SpinMutex;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;
use terrace_core::arena::Defragmentation;
use terrace_core::pressure::CachePolicy;
use terrace_core::{Block, Request, Violation};

/// Where a block comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BlockOrigin {
    /// The arena of the device's own memory.
    Pool,
    /// Pinned or managed memory.
    Host(HostMemory),
    /// A graph's private pool.
    Graph(u32),
    /// Memory that the pool did not allocate, but wrapped.
    Foreign,
}

/// Kinds of memory other than the device's own, each with an arena; a variant's number is its index in
/// `PoolState::sides`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HostMemory {
    /// Pinned host memory in place of the device's: used in stream order.
    Fallback,
    /// Pinned host memory that the host accesses: no work may be in flight on it when it is handed out.
    Pinned,
    /// Managed memory: the host accesses it after waiting for the stream.
    Managed,
}

/// State that most blocks do not need, so it is allocated separately.
pub(crate) struct BlockExtra {
    pub(crate) place: BlockOrigin,
    /// Streams that use the block, besides its home stream. A forked child must not lock it: the holder may not exist
    /// there.
    pub(crate) uses: SpinMutex<Vec<Arc<StreamCore>>>,
    /// Called to release memory that the pool did not allocate.
    pub(crate) release: Option<Release>,
}

impl BlockExtra {
    pub(crate) fn new(place: BlockOrigin) -> Self {
        Self { place, uses: SpinMutex::new(Vec::new()), release: None }
    }
}

/// A block that was freed, and that its stream's cache did not keep: the pool gets it.
pub(crate) struct FreedBlock {
    /// The block's stream.
    pub(crate) home: Arc<StreamCore>,
    pub(crate) block: Block,
    pub(crate) extra: Option<BlockExtra>,
}

/// Releases wrapped memory, given its address and its size in bytes.
pub type Release = Box<dyn FnOnce(u64, u64) + Send + Sync>;

/// Called without a lock when memory is short: may drop blocks; returns whether to try again.
pub type Hook = Arc<dyn Fn(&OutOfMemory) -> bool + Send + Sync>;

/// The host memory of a copy.
pub(crate) enum HostSlice<'a> {
    /// Host memory that the copy reads.
    Read(&'a [u8]),
    /// Host memory that the copy writes.
    Write(&'a mut [u8]),
}

impl HostSlice<'_> {
    /// The copy between all of the slice and address `device`, and whether it goes to the device.
    pub(crate) fn range(&mut self, device: u64) -> (CopyRange, bool) {
        match self {
            Self::Read(bytes) => {
                let from = bytes.as_ptr().expose_provenance() as u64;
                (CopyRange { to: device, from, bytes: bytes.len() as u64 }, true)
            }
            Self::Write(bytes) => {
                let to = bytes.as_mut_ptr().expose_provenance() as u64;
                (CopyRange { to, from: device, bytes: bytes.len() as u64 }, false)
            }
        }
    }
}

/// Events of a pool's streams. Callers must hold the streams that they pass, and destroy each event once, last.
pub(crate) trait StreamProgress {
    /// Creates an event.
    fn create_event(&self) -> Result<RawEvent, DeviceError>;
    /// Records an event: it completes when all work put on the stream so far is done.
    fn record_event(&self, event: RawEvent, stream: RawStream) -> Result<(), DeviceError>;
    /// Whether a recorded event has completed.
    fn query_event(&self, event: RawEvent) -> Result<bool, DeviceError>;
    /// Destroys an event.
    fn destroy_event(&self, event: RawEvent);
}

/// Hints that a pool passes to the backend. Ranges must lie in live managed blocks of the pool.
pub(crate) trait Hints {
    /// Prefetches a range to the processor that uses it next, in stream order.
    fn prefetch(&self, at: u64, bytes: u64, to: PrefetchTarget, stream: RawStream) -> Result<Hint, DeviceError>;
    /// Advises the driver how a range will be used. Not in stream order.
    fn advise(&self, at: u64, bytes: u64, advice: Advice) -> Result<Hint, DeviceError>;
}

/// Unpins memory, by the address at which it was registered. False if the driver refused: it is then still pinned.
pub(crate) type Unregister = Box<dyn FnOnce(u64) -> bool + Send + Sync>;

/// Pins and unpins memory that the pool did not allocate.
pub(crate) trait Registers {
    /// Pins a range in place.
    ///
    /// # Safety
    /// The range must be memory of this process, and must stay so until it is unregistered.
    unsafe fn register(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;
    /// Unpins the memory that was registered at `address`.
    ///
    /// # Safety
    /// The memory must have been registered here, and no work in flight may use it.
    unsafe fn unregister(&self, address: u64) -> Result<(), DeviceError>;
    /// A callback that unpins memory later. It holds the backend, not the pool, which may call it while being dropped.
    ///
    /// # Safety
    /// The callback must be called once, for memory that was registered here, when no work in flight uses it.
    unsafe fn unregister_later(&self) -> Unregister;
}

/// A pool with any backend.
pub(crate) trait Service: StreamProgress + Hints + Registers + Send + Sync {
    fn options(&self) -> &DeviceOptions;
    fn description(&self) -> &Description;
    fn health(&self) -> Arc<DeviceHealth>;
    fn given(&self) -> Arc<AllocatedTail>;
    #[cfg(feature = "track")]
    fn tracker(&self) -> &Arc<terrace_track::Tracker>;
    /// The backend, for copies and for their streams and events.
    fn backend(&self) -> &dyn Backend;
    /// Allocates staging memory for copies between host and device.
    fn stage(&self, bytes: u64) -> Result<StagingBuffer, Fault>;
    /// Converts a fault to the user's error.
    fn error(&self, fault: Fault) -> DeviceError;
    /// Whether `other` is this very pool.
    fn is(&self, other: &dyn Service) -> bool;
    fn memory(&self) -> Result<Memory, DeviceError>;
    fn stats(&self) -> DeviceStats;
    fn check(&self) -> Result<(), Violation>;

    /// Allocates a block. With `fallback`, pinned host memory may replace device memory where that is turned on.
    fn serve(
        &self,
        home: &Arc<StreamCore>,
        request: Request,
        fallback: bool,
    ) -> Result<(Block, BlockOrigin), DeviceError>;
    /// Allocates pinned or managed memory.
    fn serve_host_memory(
        &self,
        home: &Arc<StreamCore>,
        request: Request,
        side: HostMemory,
    ) -> Result<Block, DeviceError>;
    /// Allocates a block for each request, or none; with the fallback to pinned host memory where that is turned on.
    fn serve_batch(
        &self,
        home: &Arc<StreamCore>,
        requests: &[Request],
    ) -> Result<Vec<(Block, BlockOrigin)>, DeviceError>;
    /// Allocates, or queues the request and keeps the waker; `ticket` is its place in the queue, once it has one. Waits for
    /// nothing.
    fn poll_memory(
        &self,
        home: &Arc<StreamCore>,
        request: Request,
        ticket: &mut Option<u64>,
        waker: &Waker,
    ) -> Poll<Result<(Block, BlockOrigin), DeviceError>>;
    /// Takes a request out of the queue; returns the block that was granted to it meanwhile.
    fn leave_queue(&self, ticket: u64) -> Option<(Block, BlockOrigin)>;
    /// Counts a request that found no memory as failed; returns its error.
    fn refuse(&self, home: &StreamCore, request: Request) -> DeviceError;
    fn give_back(&self, home: &Arc<StreamCore>, block: Block, extra: Option<BlockExtra>);
    /// As [`Self::give_back`], for many blocks under one lock.
    fn give_back_all(&self, freed: Vec<FreedBlock>);
    /// Empties the streams' caches; returns their bytes.
    fn coalesce(&self) -> u64;
    /// As [`Self::coalesce`], and releases unused memory to the driver, as far as the options say. Returns the bytes released.
    fn trim(&self) -> u64;
    /// Does what is due at a moment.
    fn maintain(&self, now: Instant) -> DeviceMaintenance;
    /// Moves at most `most` bytes of pages, so that the largest free extent grows.
    fn defragment(&self, most: u64) -> Result<Defragmentation, DeviceError>;
    fn adapt(&self, policy: &CachePolicy);
    fn set_capacity(&self, bytes: u64);
    fn set_hook(&self, hook: Option<Hook>);
    fn set_fallback(&self, on: bool);

    fn open_stream(&self) -> Result<Arc<StreamHandle>, DeviceError>;
    fn adopt_stream(&self, raw: RawStream, keeper: Option<Keeper>) -> Result<Arc<StreamHandle>, DeviceError>;
    /// Empties a stream's cache once the user's last handle of the stream was dropped.
    fn retire_stream(&self, stream: &Arc<StreamCore>);
    /// Closes a stream once its last block was dropped too. Called without any lock.
    fn close_stream(&self, stream: ClosedStream);
    /// Fails for a stream of another device.
    fn check_stream(&self, stream: &StreamCore) -> Result<(), DeviceError>;
    fn synchronize_stream(&self, stream: RawStream) -> Result<(), DeviceError>;
    /// Waits for a stream, repeatedly if the driver refuses: after `Ok`, no work of the stream is in flight.
    fn settle_stream(&self, stream: RawStream) -> Result<(), DeviceError>;
    fn order(&self, later: RawStream, first: RawStream) -> Result<(), DeviceError>;
    /// Waits for all work on the device.
    fn synchronize(&self) -> Result<(), DeviceError>;

    fn copy_host(&self, host: HostSlice<'_>, device: u64, stream: RawStream) -> Result<(), DeviceError>;
    fn copy(&self, to: u64, from: u64, bytes: u64, stream: RawStream) -> Result<(), DeviceError>;
    fn copy_peer(&self, to: u64, from: u64, of: u32, bytes: u64, stream: RawStream) -> Result<(), DeviceError>;
    fn fill(&self, at: u64, value: u8, bytes: u64, stream: RawStream) -> Result<(), DeviceError>;
    fn can_reach(&self, ordinal: u32) -> bool;
    fn reach(&self, ordinal: u32) -> Result<(), DeviceError>;
    fn share(&self, ordinal: u32) -> Result<(), DeviceError>;

    fn open_graph(&self) -> Result<u32, DeviceError>;
    fn close_graph(&self, id: u32);
    fn begin_capture(&self, stream: &StreamCore, graph: u32) -> Result<(), DeviceError>;
    fn end_capture(&self, stream: &StreamCore, graph: u32);
}
