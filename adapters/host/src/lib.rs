#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! ```text
//!   malloc(100)                                             free(p)
//!        │ size -> class (a constant in Rust)                  │ address -> class: classes[(p - base) >> 16]
//!        v                                                     v
//!   ┌─────────────────────── thread's cache ───────────────────────┐   an array of free blocks for each class;
//!   │ [null b b b b ..] [null b ..] [null ..]                      │   pop or push, about 7 instructions, no atomics
//!   └──────┬────────────────────────────────────────────────▲──────┘
//!     empty│ a batch                                    full│ a batch
//!   ┌──────v────────── transfer cache (lock-free) ──────────┴──────┐   batches between threads
//!   └──────┬────────────────────────────────────────────────▲──────┘
//!   ┌──────v───────────────── spans ────────────────────────┴──────┐   of a class: slices of 64 KiB by fullness,
//!   │ ████████ ██████░░ ███░░░░░     a bit a block, beside it      │   blocks come from the fullest
//!   └──────┬────────────────────────────────────────────────▲──────┘
//!   ┌──────v───────── page heap: one address range ─────────┴──────┐   slices of 64 KiB: spans and large blocks,
//!   │ span│span│  large block  │span│      free      │              │   the core's range allocator, best fit
//!   └──────┬────────────────────────────────────────────────▲──────┘
//!      mmap v                                    purge clock │           free slices and free pages inside spans
//! ```
//!
//! Modules, the highest layer first; each names lower ones only (`docs/rules.toml`):
//!
//! | module | what it is |
//! | --- | --- |
//! | `allocator`, `global`, `heap` | the types of Rust programs |
//! | `api` | the entry points: fast paths, slow paths, large blocks |
//! | `init`, `check`, `fork`, `stats`, `live` | the first call; checks, forks, statistics and live counters, which visit every structure |
//! | `track` | the tracker: lists of live blocks (feature `track`) |
//! | `purge`, `signal` | returns free memory to the system, on calls or on its own thread; calls in signal handlers |
//! | `thread` | a thread's cache: its thread-local pointer, start and end, batches, stealing from idle threads |
//! | `transfer_cache`, `heaps`, `spans` | batches between threads; the spans of each first-class heap; blocks of one class |
//! | `emergency` | blocks for signal handlers that must take no lock |
//! | `page_heap`, `backlog` | slices, and a cache of those freed last; how many free bytes wait to be purged |
//! | `tables`, `bits`, `usage` | the address range and its tables; bits of slices and pages; bytes in use and held |
//! | `settings`, `purge_clock`, `lock`, `process`, `report` | state and services that every layer uses |
//! | `class`, `clock`, `futex`, `steal`, `os` | size classes; three protocols that loom model-checks; system calls |
#![no_std]

#[cfg(feature = "track")]
extern crate alloc;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("terrace-host reserves its address range at once and counts milliseconds in a word: it needs 64 bits");

#[cfg(feature = "allocator-api2")]
mod allocator;
pub mod api;
mod backlog;
mod bits;
mod check;
pub mod class;
mod clock;
mod emergency;
mod fork;
mod futex;
mod global;
mod heap;
mod heaps;
mod init;
mod live;
mod lock;
mod os;
mod page_heap;
mod process;
mod purge;
mod purge_clock;
pub mod report;
mod settings;
mod signal;
mod spans;
mod stats;
mod steal;
mod tables;
mod thread;
mod track;
mod transfer_cache;
mod usage;

pub use check::{check, check_or_abort};
pub use global::Global;
pub use heap::Heap;
pub use init::{read_environment, ready};
pub use purge::trim;
pub use settings::{
    Background, BadSetting, DebugSwitches, HugePages, Numa, Setting, check_at_exit, deepbind, stats_at_exit,
};
pub use signal::Handler;
pub use stats::{Stats, stats};
pub use terrace_core::Violation;
#[cfg(feature = "track")]
pub use track::{HeapScope, HeapTracker};
