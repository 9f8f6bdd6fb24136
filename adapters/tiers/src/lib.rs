#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! | module | what it is |
//! | --- | --- |
//! | [`detect`] | what this machine has: memory, GPUs, disks; how fast they are |
//! | [`policy`] | which buffer leaves a tier first |
//! | [`ledger`] | what is where, what waits, what moves: events in, actions out, without a system |
//! | `manager` | the same with memory, devices, files and threads (Linux) |

pub mod detect;
pub mod ledger;
#[cfg(target_os = "linux")]
pub mod manager;
pub mod policy;

#[cfg(target_os = "linux")]
pub use manager::{Buffer, Builder, Error, Lease, LeaseMut, Manager, Options, Preset};
// What calls of a manager take and give: a tier, how full it is, and what concerns files.
pub use terrace_core::{pressure::Level, residence::Tier};
#[cfg(target_os = "linux")]
pub use terrace_file::{
    Directory, Disk, EngineKind, Executor, FileFault, FileFaultReason, JoinHandle, MappedFile, Store, StoreError,
    StoreOptions, StoreStats,
};
