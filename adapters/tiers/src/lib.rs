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
pub use manager::{Buffer, BufferOptions, Error, Lease, LeaseMut, Manager, ManagerBuilder, Preset};
