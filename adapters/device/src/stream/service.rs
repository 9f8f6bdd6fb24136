//! What streams, blocks and devices ask of the pool behind them, whatever its backend.
//!
//! Promises upward: one object-safe trait, [`Service`], so that users see no type parameter.
//! Asks from below: nothing; the pool implements it.

use super::{ClosedStream, Keeper, StreamCore, StreamHandle};
use crate::backend::{Backend, CopyRange, RawEvent, RawStream};
use crate::capability::{Description, Memory};
use crate::error::{DeviceError, OutOfMemory};
use crate::fault::Fault;
use crate::health::DeviceHealth;
use crate::hint::{Advice, Hint, PrefetchTarget};
use crate::options::DeviceOptions;
use crate::staging::StagingBuffer;
use crate::stats::DeviceStats;
use crate::stream_cache::AllocatedTail;
use spin::mutex::SpinMutex;
use std::sync::Arc;
use terrace_core::pressure::CachePolicy;
use terrace_core::{Block, Request, Violation};

/// Which part of the pool a block came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BlockOrigin {
    /// The arena.
    Pool,
    /// Memory of another kind than the device's own.
    Host(HostMemory),
    /// A graph's private pool.
    Graph(u32),
    /// Elsewhere: it was wrapped.
    Foreign,
}

/// The other kinds of memory, each with an arena of its own: its place in `PoolState::sides`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HostMemory {
    /// Pinned host memory in the device's place: used in stream order.
    Fallback,
    /// Pinned host memory that the host uses: nothing may be in flight on it when it is given out.
    Pinned,
    /// Managed memory: the host uses it after waiting for the stream.
    Managed,
}

/// What most blocks have nothing of.
pub(crate) struct BlockExtra {
    pub(crate) place: BlockOrigin,
    /// Streams that use the block besides its own. Never locked in a forked child: its holder may not exist there.
    pub(crate) uses: SpinMutex<Vec<Arc<StreamCore>>>,
    /// What gives memory back that came from elsewhere.
    pub(crate) release: Option<Release>,
}

impl BlockExtra {
    pub(crate) fn new(place: BlockOrigin) -> Self {
        Self { place, uses: SpinMutex::new(Vec::new()), release: None }
    }
}

/// Takes memory back that was wrapped: address and bytes.
pub type Release = Box<dyn FnOnce(u64, u64) + Send + Sync>;

/// Called when memory ran out, without any lock: may free blocks, and says whether to try again.
pub type Hook = Arc<dyn Fn(&OutOfMemory) -> bool + Send + Sync>;

/// The host's side of a copy.
pub(crate) enum HostSlice<'a> {
    /// It is read.
    Read(&'a [u8]),
    /// It is written.
    Write(&'a mut [u8]),
}

impl HostSlice<'_> {
    /// The copy between all of it and `device`, and whether bytes go up.
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

/// What a pool knows of its streams' progress. Callers hold the streams that they name, and drop each event once, last.
pub(crate) trait StreamProgress {
    /// Makes an event.
    fn create_event(&self) -> Result<RawEvent, DeviceError>;
    /// Lets it happen when everything put on the stream so far is done.
    fn record_event(&self, event: RawEvent, stream: RawStream) -> Result<(), DeviceError>;
    /// Whether it has happened.
    fn query_event(&self, event: RawEvent) -> Result<bool, DeviceError>;
    /// Takes it back.
    fn destroy_event(&self, event: RawEvent);
}

/// What a pool passes on. Ranges lie in live managed blocks of the pool.
pub(crate) trait Hints {
    /// Prefetches a range to the side that uses it next, in stream order.
    fn prefetch(&self, at: u64, bytes: u64, to: PrefetchTarget, stream: RawStream) -> Result<Hint, DeviceError>;
    /// Says how a range will be used. Not in stream order.
    fn advise(&self, at: u64, bytes: u64, advice: Advice) -> Result<Hint, DeviceError>;
}

/// Ends a registration, by the address that it began with. False when the driver refused: the memory is still pinned.
pub(crate) type Unregister = Box<dyn FnOnce(u64) -> bool + Send + Sync>;

/// What a pool does with memory of others.
pub(crate) trait Registers {
    /// Pins a range.
    ///
    /// # Safety
    /// It is memory of this process, and stays so until it is unregistered.
    unsafe fn register(&self, address: u64, bytes: u64) -> Result<(), DeviceError>;
    /// Unpins it.
    ///
    /// # Safety
    /// It was registered here, and no work in flight uses it.
    unsafe fn unregister(&self, address: u64) -> Result<(), DeviceError>;
    /// Unpins it later. Keeps the driver, not the pool: the pool may be what calls it, when it ends.
    ///
    /// # Safety
    /// The caller of the result does so once, for what was registered here, when no work in flight uses it.
    unsafe fn unregister_later(&self) -> Unregister;
}

/// A pool, whatever its backend.
pub(crate) trait Service: StreamProgress + Hints + Registers + Send + Sync {
    fn options(&self) -> &DeviceOptions;
    fn description(&self) -> &Description;
    fn health(&self) -> Arc<DeviceHealth>;
    fn given(&self) -> Arc<AllocatedTail>;
    /// For copies, and streams and events for them.
    fn backend(&self) -> &dyn Backend;
    /// Memory for copies between host and device to pass through.
    fn stage(&self, bytes: u64) -> Result<StagingBuffer, Fault>;
    /// A fault as users see it.
    fn error(&self, fault: Fault) -> DeviceError;
    /// Whether it is this very pool.
    fn is(&self, other: &dyn Service) -> bool;
    fn memory(&self) -> Result<Memory, DeviceError>;
    fn stats(&self) -> DeviceStats;
    fn check(&self) -> Result<(), Violation>;

    /// With `fallback`, pinned host memory may stand in where that is turned on.
    fn serve(
        &self,
        home: &Arc<StreamCore>,
        request: Request,
        fallback: bool,
    ) -> Result<(Block, BlockOrigin), DeviceError>;
    /// Memory of another kind than the device's own.
    fn serve_host_memory(
        &self,
        home: &Arc<StreamCore>,
        request: Request,
        side: HostMemory,
    ) -> Result<Block, DeviceError>;
    fn give_back(&self, home: &Arc<StreamCore>, block: Block, extra: Option<BlockExtra>);
    /// Empties caches; with `all`, gives everything unused back to the driver too. Bytes given back.
    fn trim(&self, all: bool) -> u64;
    fn adapt(&self, policy: &CachePolicy);
    fn set_capacity(&self, bytes: u64);
    fn set_hook(&self, hook: Option<Hook>);
    fn set_fallback(&self, on: bool);

    fn open_stream(&self) -> Result<Arc<StreamHandle>, DeviceError>;
    fn adopt_stream(&self, raw: RawStream, keeper: Option<Keeper>) -> Result<Arc<StreamHandle>, DeviceError>;
    /// The user's last handle of a stream is gone: its cache is emptied.
    fn retire_stream(&self, stream: &Arc<StreamCore>);
    /// A stream's last block is gone too. Called without any lock.
    fn close_stream(&self, stream: ClosedStream);
    /// Refuses a stream of another device.
    fn check_stream(&self, stream: &StreamCore) -> Result<(), DeviceError>;
    fn synchronize_stream(&self, stream: RawStream) -> Result<(), DeviceError>;
    /// The same, again and again where the driver refuses: `Ok` when nothing of the stream is in flight.
    fn settle_stream(&self, stream: RawStream) -> Result<(), DeviceError>;
    fn order(&self, later: RawStream, first: RawStream) -> Result<(), DeviceError>;
    /// Waits for everything on the device.
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
