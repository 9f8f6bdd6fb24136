//! terrace: a memory allocator for every place a program keeps bytes.
//!
//! This is the crate to name. It re-exports the `no_std` core and adds what needs an operating system:
//! [`config`] (how much memory, kept how), [`recording`] (what programs did, to be looked at or replayed) and [`device`]
//! (memory of a GPU).
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
//! use terrace::recording::Reader;
//!
//! // How to keep memory: a preset, a change, checked once.
//! let config = Config::training().capacity(8 << 30).build()?;
//! assert_eq!(config.capacity, 8 << 30);
//!
//! // What a program did: any CSV (plain, gzip, zstd) or recording, checked as it is read.
//! let csv = "t,op,id,size,align,stream,tag\n0,a,0,4096,64,0,step:mm\n10,f,0,,,0,\n";
//! for entry in Reader::new("example.csv", csv.as_bytes())? {
//!     println!("{:?}", entry?.event);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod buffers;
pub mod config;
pub mod device;
pub mod recording;
pub mod shared;
pub mod waiting;

pub use config::{Config, ConfigError, Strategy, Values};
pub use device::Device;
pub use terrace_core::*;
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
#[cfg(all(doctest, feature = "tiers"))]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
