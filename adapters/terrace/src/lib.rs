#![doc = include_str!("../README.md")]
//!
//! # How a request goes
//!
//! ```text
//!   your program ──► Allocator ──► cache ──► index ──► Source (mmap, device, file, another allocator)
//!                       │            what an   which blocks   where segments
//!                       │            owner     are free       come from and
//!                       ▼            gave back                go back to
//!                    recording ──► `terrace replay`: the same calls on any other allocator
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
pub use terrace_device::store::{self, ArenaCapacity, HeapStore, heap_parts};

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

/// The examples of the front page, run as tests.
#[cfg(all(doctest, feature = "global", feature = "device", feature = "tiers"))]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
