//! terrace on an operating system: the allocator behind `#[global_allocator]` and behind `libterrace_malloc`.
//!
//! ```text
//!   malloc(100)                                             free(p)
//!        │ size -> class (a constant in Rust)                  │ address -> class: classes[(p - base) >> 16]
//!        v                                                     v
//!   ┌─────────────────────────── cache ────────────────────────────┐   of a thread: an array of free blocks a class;
//!   │ [null b b b b ..] [null b ..] [null ..]                      │   pop or push, about 7 instructions, no atomics
//!   └──────┬────────────────────────────────────────────────▲──────┘
//!     empty│ a batch                                    full│ a batch
//!   ┌──────v────────────── depot (lock-free) ───────────────┴──────┐   batches between threads
//!   └──────┬────────────────────────────────────────────────▲──────┘
//!   ┌──────v───────────────── shelf ────────────────────────┴──────┐   of a class: spans of 64 KiB by fullness,
//!   │ ████████ ██████░░ ███░░░░░     a bit a block, beside it      │   blocks come from the fullest
//!   └──────┬────────────────────────────────────────────────▲──────┘
//!   ┌──────v───────────── ground: one window of addresses ──┴──────┐   slices of 64 KiB: spans and large blocks,
//!   │ span│span│  large block  │span│      free      │              │   the core's range allocator, best fit
//!   └──────┬────────────────────────────────────────────────▲──────┘
//!      mmap v                                    purge clock │           free slices and free pages inside spans
//! ```
//!
//! | file | what it is |
//! | --- | --- |
//! | `class` | sizes and classes |
//! | `tls`, `cache`, `slow`, `thread` | a thread's cache: the word that finds it, the fast paths, the slow ones, start and end |
//! | `array`, `reclaim` | what passes between a thread's cache and another that takes an idle one's blocks back |
//! | `depot`, `shelf`, `ground`, `large` | what is behind it |
//! | `space`, `place`, `bits`, `purge`, `clock` | the window and its tables, where they lie, bits of slices and pages; giving memory back, and when |
//! | `background` | the thread that gives memory back where no call should |
//! | `usage` | what is held of memory, and how much may be |
//! | `fork`, `signal`, `emergency`, `lock`, `word`, `start` | what must hold when a process forks, a signal interrupts, threads wait, nothing is there yet |
//! | `os` | all that is asked of a system, one file for each |
//!
//! # Example
//! ```
//! #[global_allocator]
//! static A: terrace_host::Global = terrace_host::Global::new();
//!
//! let numbers: Vec<u64> = (0..1000).collect();
//! let stats = terrace_host::stats();
//! assert!(stats.in_use >= numbers.len() * 8);
//! println!("{stats}");
//! ```
#![no_std]

#[cfg(not(target_pointer_width = "64"))]
compile_error!(
    "terrace-host reserves its window of addresses at once and counts milliseconds in a word: it needs 64 bits"
);

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
mod large;
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
mod transfer_cache;
mod usage;

pub use check::{check, check_or_abort};
pub use global::Global;
pub use heap::Heap;
pub use init::ready;
pub use purge::trim;
pub use settings::{Background, BadSetting, HugePages, Numa, Setting, check_at_exit, deepbind, read_environment, stats_at_exit};
pub use signal::Handler;
pub use stats::{Stats, stats};
pub use terrace_core::Violation;
