#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! | module | content |
//! | --- | --- |
//! | [`detect`] | detects memory, GPUs and disks, and measures their speed |
//! | [`policy`] | eviction policies: which buffer leaves a tier first |
//! | [`ledger`] | decides placement and moves: events in, actions out, without I/O |
//! | `manager` | buffers by handle: performs the ledger's actions on memory, devices and files (Linux) |

pub mod detect;
pub mod ledger;
#[cfg(target_os = "linux")]
pub mod manager;
pub mod policy;

#[cfg(target_os = "linux")]
pub use manager::{Buffer, BufferOptions, Error, Lease, LeaseMut, Manager, ManagerBuilder, Preset, Sequence};
// Types that stand in the manager's signatures: tiers, pressure levels, and what concerns files.
pub use terrace_core::{pressure::Level, residence::Tier, settings::DebugSwitches};
#[cfg(target_os = "linux")]
pub use terrace_file::{
    Directory, Disk, EngineKind, Executor, FileFault, FileFaultReason, JoinHandle, MappedFile, Store, StoreError,
    StoreOptions, StoreStats,
};
