#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! ```text
//!          terrace_device::Backend
//!                    │
//!   ┌────────────────v───────────────────────────────┐
//!   │ backend          one call, one function        │      probe: tries each thing once, when a device is opened
//!   │  regions   memory by kind: device, pool, ..    │ <────── and turns what failed into a note for people
//!   │  pages     address space, pages, access        │
//!   │  batches   many copies    hints  about managed │
//!   ├────────────────────────────────────────────────┤
//!   │ cuda             Cuda: what a device holds     │      streams: made, named, ended
//!   ├────────────────────────────────────────────────┤
//!   │ primary          the context, current on       │      codes: what a number means, with no driver asked
//!   │                  the calling thread; forks     │
//!   ├────────────────────────────────────────────────┤
//!   │ functions        pointers by name, in groups   │      layouts: structures and constants of the interface
//!   │ library          libcuda, shared with cudarc   │
//!   └────────────────────────────────────────────────┘
//! ```
//! Beside it stands `interop`: [`SharedStream`], by which terrace's memory enters `cudarc`'s copies and launches.
//! What failed when a device was probed is told in [`Description::notes`](terrace_device::Description::notes); after the driver has
//! shut down, its refusal is [`FaultReason::Lost`](terrace_device::FaultReason::Lost).

mod backend;
mod batches;
mod codes;
mod cuda;
mod error;
mod functions;
mod hints;
mod interop;
mod layouts;
mod library;
mod open;
mod pages;
mod primary;
mod probe;
mod regions;
mod streams;

pub use cuda::Cuda;
pub use error::{OpenError, Version};
pub use functions::{Function, functions};
pub use interop::{SharedSlice, SharedSliceMut, SharedStream};
