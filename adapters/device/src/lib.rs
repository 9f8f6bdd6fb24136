#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! ```text
//!   device.allocate(&stream, bytes)                                drop(block)
//!        │                                                            │
//!   ┌────v──────────────────── a stream's cache ──────────────────────v────┐   exact sizes, an uncontended lock:
//!   │  64K: b b b    256: b b b b    1K: b                                 │   no driver call, no event
//!   └────┬────────────────────────────────────────────────────────────┬────┘
//!    miss│                                                            │too large, full, or used on other streams
//!   ┌────v──────── arena: the core's range, best fit ─────────────────v────┐   fences: what one stream freed, others
//!   │  live │ free │ live │ waits │ free                                   │   get after its event; one stream alone
//!   └────┬────────────────────────────────────────────────────────────┬────┘   needs no events
//!        v                                                            v
//!     Backend: pages mapped, moved, unmapped; or segments; streams, events, copies
//! ```
//!
//! | file | what it is |
//! | --- | --- |
//! | `stream_cache` | a stream's cache |
//! | `device`, `batch`, `allocation`, `maintenance`, `stream`, `block`, `capture`, `options`, `stats`, `weak`, `error`, `out_of_memory` | the types that users hold and see |
//! | `buffer` | elements instead of bytes: on the device, pinned, managed, or moved between host and device |
//! | `transfer` | many copies at once, in pieces, while the caller goes on |
//! | `ring` | messages between host and device |
//! | `pool` | one device's arena, streams, held blocks, fallback and graphs, under one lock |
//! | `fences`, `source`, `staging` | when a stream may reuse another's memory; pages and segments; staging memory |
//! | `backend`, `handles`, `capability`, `fault`, `hint` | the interface of a driver: calls, capabilities, refusals |
//! | `objects` | addresses for drivers whose memory comes in objects |
//! | `host` | the host as a device |
//! | `tracking`, `device_tracker` | what the tracker learns of blocks, with the feature `track` |
//! | `health` | devices that are lost, processes that forked |
//! | `meter`, `meminfo`, `store` | counters of transfers, the host's free memory, storage for records of arenas |
//!
//! # Reuse on a stream
//! ```
//! use terrace_device::Device;
//! let device = Device::host();
//! let (first, second) = (device.stream()?, device.stream()?);
//! let block = device.allocate(&first, 4096)?;
//! let address = block.address();
//! drop(block);
//! // Work on the first stream is in order, so its memory is its own again at once; another stream gets other memory.
//! assert_eq!(device.allocate(&first, 4096)?.address(), address);
//! assert_ne!(device.allocate(&second, 4096)?.address(), address);
//! # Ok::<(), terrace_device::DeviceError>(())
//! ```

mod allocation;
mod backend;
mod batch;
mod block;
mod buffer;
mod capability;
mod capture;
mod device;
#[cfg(feature = "track")]
mod device_tracker;
mod error;
mod fault;
mod fences;
mod handles;
mod health;
mod hint;
mod host;
mod maintenance;
pub mod meminfo;
mod meter;
mod objects;
mod options;
mod out_of_memory;
mod pool;
mod ring;
mod source;
mod staging;
mod stats;
pub mod store;
mod stream;
mod stream_cache;
mod tracking;
mod transfer;
mod weak;

pub use allocation::DeviceAllocation;
pub use backend::{Backend, CopyRange, MemoryKind, MemoryPlace, PhysicalHandle, RawEvent, RawStream};
pub use block::{DeviceBlock, Path};
pub use buffer::{
    BlockRef, BufferSide, DeviceBuffer, DeviceSlice, DeviceSliceMut, FallbackBuffer, FallbackStats, InFlight,
    PinnedBuffer, Refused, RegisteredBuffer, UnifiedBuffer, UnifiedLease, UnifiedView,
};
pub use capability::{Capabilities, Description, Memory, Visibility};
pub use capture::{Capture, GraphPool};
pub use device::Device;
pub use error::{BlockId, DeviceError};
pub use fault::{Fault, FaultReason};
pub use health::insist;
pub use hint::{Advice, Hint, PrefetchTarget};
pub use host::HostBackend;
pub use meter::{BufferStats, TransferReport};
pub use objects::ObjectSpace;
pub use options::{DeviceOptions, PoolOrigin};
pub use out_of_memory::{DeviceShare, OutOfMemory, Remedy};
pub use ring::{
    DeviceLink, DeviceReceiver, DeviceSender, RingLease, RingOptions, RingStrategy, SeenByHost, UnifiedRing,
    receive_ring, send_ring, sleep,
};
pub use stats::{DeviceMaintenance, DeviceStats};
pub use stream::{Hook, Release, Stream};
pub use terrace_core::arena::Defragmentation;
/// The tracker's types, with the feature `track`.
#[cfg(feature = "track")]
#[doc(inline)]
pub use terrace_track as track;
pub use transfer::{
    DirectionStats, Done, HostBuffer, HostSource, Incomplete, Priority, Transfer, TransferEngine, TransferError,
    TransferOptions, TransferStats,
};
pub use weak::WeakDevice;
