#![doc = include_str!("../README.md")]
//!
//! # Where each name lives
//!
//! ```text
//!   you have              you take                          and behind it
//!
//!   any program      ──► libterrace_malloc.so          ─┐
//!                        (terrace-capi, no Rust)        ├─► host      caches of threads, spans, page heap ──► mmap
//!   a Rust program   ──► Global, Heap, stats(), Stats  ─┘     │
//!                                                             │
//!   firmware         ──► terrace_embedded::FirmwareHeap ──────┤
//!                                                             ├─► engine   range, index, cache, fence, source
//!   a GPU            ──► Device, Stream,                 ─────┤
//!                        DeviceBuffer, PinnedBuffer, ..  device     streams' caches, pages or segments ──► driver
//!                                                             │
//!   more data        ──► Manager, Buffer                ──────┘
//!   than memory                                          tiers      leases, moves, files ──► GPU, memory, disks
//! ```
//!
//! | what you look for | where |
//! | --- | --- |
//! | what most programs name: allocators, devices, buffers, a configuration and its error | the root |
//! | settings, trimming and checks of the allocator for programs; calls without a layout | `host` |
//! | rings, graphs, hints, options and statistics of devices; backends | `device` |
//! | leases, policies, detection, engines and stores for files; the manager's `Error` | `tiers` |
//! | one manager for the whole process | `process` |
//! | which memory is live, since when and for what; tags, scopes | `observe::track` |
//! | counters for `terrace top` | `observe::live` |
//! | pools of buffers by size, of objects, of arrays | [`buffers`] |
//! | strategies, builders, sizes as text | [`config`] |
//! | what programs did with memory, as files | `recording` |
//! | statistics for Prometheus | `observe::metrics` |
//! | arenas, ranges, pools, layers, pools that threads share: parts for allocators of your own | [`engine`] |
#![forbid(unsafe_code)]

pub mod buffers;
pub mod config;
#[cfg(feature = "device")]
pub mod device;
pub mod engine;
#[cfg(any(feature = "live", feature = "metrics", feature = "track"))]
pub mod observe;
#[cfg(all(feature = "tiers", target_os = "linux"))]
pub mod process;
#[cfg(feature = "recording")]
pub mod recording;

#[doc(inline)]
pub use config::{Config, ConfigError};
#[cfg(feature = "device")]
#[doc(inline)]
pub use device::{Device, DeviceBuffer, DeviceError, PinnedBuffer, Stream, TransferEngine, UnifiedBuffer};
pub use terrace_core::AllocError;
// `Stats` is what `stats()` returns. Devices have `device::DeviceStats`; parts of the engine `engine::Stats`.
#[cfg(feature = "global")]
pub use terrace_host::{Global, Heap, Stats, stats};
#[cfg(all(feature = "tiers", target_os = "linux"))]
pub use terrace_tiers::{Buffer, Manager};

/// The rest of the allocator for programs: settings, trimming, signal handlers, and calls without a layout.
#[cfg(feature = "global")]
#[doc(inline)]
pub use terrace_host as host;

/// Buffers by handle that live in the best tier, move as they are used, and can be made durable.
#[cfg(feature = "tiers")]
#[doc(inline)]
pub use terrace_tiers as tiers;

/// The examples of the repository's README, run as tests.
#[cfg(all(doctest, feature = "global", feature = "device", feature = "tiers"))]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
