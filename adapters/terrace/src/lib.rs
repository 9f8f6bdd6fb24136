//! terrace: a memory allocator for every place a program keeps bytes.
//!
//! This is the crate to name. It re-exports the `no_std` core, adds [`config`] (how much memory, kept how), and what a program
//! asks for by a feature:
//!
//! | feature | gives |
//! | --- | --- |
//! | `global` | `Global`, for `#[global_allocator]`; `Heap`; `allocator-api2` adds collections in a heap of their own |
//! | `device` | `Device`: memory of a device, or of the host in its place; `cuda` adds NVIDIA's |
//! | `tiers` | `Manager`: buffers in the best tier of memory and files |
//! | `recording` | `recording`: what programs did, to be looked at or replayed |
//! | `serde` | configurations, statistics and errors as serde values |
//!
//! ```text
//!   your program ──► Allocator ──► cache ──► index ──► Source (mmap, device, file, another allocator)
//!                       │            what an   which blocks   where segments
//!                       │            owner     are free       come from and
//!                       ▼            gave back                go back to
//!                    recording ──► `terrace replay`: the same calls on any other allocator
//! ```
//!
//! # Example
//! ```
//! use terrace::config::Config;
//!
//! // How to keep memory: a preset, a change, checked once.
//! let config = Config::training().capacity(8 << 30).build()?;
//! assert_eq!(config.capacity, 8 << 30);
//!
//! // What a program did: any CSV (plain, gzip, zstd) or recording, checked as it is read.
//! # #[cfg(feature = "recording")] {
//! let csv = "t,op,id,size,align,stream,tag\n0,a,0,4096,64,0,step:mm\n10,f,0,,,0,\n";
//! for entry in terrace::recording::Reader::new("example.csv", csv.as_bytes())? {
//!     println!("{:?}", entry?.event);
//! }
//! # }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod buffers;
pub mod config;
#[cfg(feature = "device")]
pub mod device;
#[cfg(feature = "recording")]
pub mod recording;
pub mod shared;
pub mod waiting;

pub use config::{Config, ConfigError, Strategy, Values};
#[cfg(feature = "device")]
pub use device::Device;
pub use terrace_core::*;
#[cfg(feature = "device")]
pub use terrace_device::store::{self, HeapStore, Room, heap_parts};

/// The allocator of a whole program: `#[global_allocator] static A: terrace::Global = terrace::Global::new();`.
#[cfg(feature = "global")]
pub use terrace_host::{Global, Heap, stats};

/// The rest of the allocator for programs: settings, trimming, signal handlers, and calls without a layout.
#[cfg(feature = "global")]
pub use terrace_host as host;

/// Buffers by handle that live in the best tier, move as they are used, and can be made durable.
#[cfg(feature = "tiers")]
pub use terrace_tiers as tiers;
#[cfg(all(feature = "tiers", target_os = "linux"))]
pub use terrace_tiers::{Buffer, Manager, Preset};

/// The README's examples, run as tests.
#[cfg(all(doctest, feature = "tiers", feature = "device", feature = "recording"))]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
