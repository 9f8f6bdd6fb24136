//! Replays of recorded operations: on pools by name, timed, and on heaps for firmware in memory of a given size.
//!
//! The command `terrace` reads traces, and prints and draws what comes of them; this crate is what it measures, so that a build
//! for a first look need optimize nothing else of the command.
//!
//! Promises upward: every pool executes the same [`Operation`]s; the time of each is read from a clock.
//! Asks from below: allocators of the core, devices on a simulated driver, models of peers.
//!
//! ```
//! use quanta::Clock;
//! use terrace_core::Owner;
//! use terrace_replay::pools::{PoolSetup, SourceKind, select};
//! use terrace_replay::{Chunk, Operation, OperationKind, Point, PoolReplay, Timeline};
//!
//! let pool = select(&["terrace".into()])[0];
//! let mut replay = PoolReplay::new(&pool, &PoolSetup::new(SourceKind::Growing, None, 0))?;
//! let mut chunk = Chunk::default();
//! chunk.slots = 1;
//! let bytes = 3 << 20;
//! let allocate = Operation { bytes, slot: 0, owner: Owner(0), kind: OperationKind::Allocate, align_log2: 9 };
//! chunk.push(allocate, Point { time_us: 0, live: bytes });
//! chunk.sample(&Timeline::default());
//! let clock = Clock::new();
//! replay.replay(&chunk, 0, &clock)?;
//! let row = replay.finish("one block", 1, &clock)?;
//! assert_eq!((row.peak_live_bytes, row.peak_reserved_bytes), (3 << 20, 4 << 20)); // two pages of 2 MiB
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

mod arena;
mod heap_profile;
#[allow(unsafe_code)] // frees and resizes of a heap are promises about its blocks
mod heap_run;
mod histogram;
mod operation;
mod pool_blocks;
mod pool_replay;
pub mod pools;
mod results;
mod timeline;

pub use arena::{ARENA_ALIGN, ArenaMemory};
pub use heap_profile::{Bits, HeapProfile, RecordKind};
pub use heap_run::{BlockRules, HeapRun};
pub use operation::{CHUNK, Chunk, Operation, OperationKind};
pub use pool_blocks::PoolBlocks;
pub use pool_replay::{PoolFailure, PoolReplay};
pub use results::PoolRow;
pub use timeline::{Point, Timeline, index_of_max};
