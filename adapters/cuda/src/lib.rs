#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! ```text
//!          terrace_device::Backend
//!                    │
//!   ┌────────────────v───────────────────────────────┐
//!   │ backend          one method, one driver call   │      probe: uses each capability once when a device opens,
//!   │  regions   memory by kind: device, pool, ..    │ <────── and writes a note for each that failed
//!   │  pages     address space, pages, access        │
//!   │  copy_batch  many copies     hints  managed    │
//!   ├────────────────────────────────────────────────┤
//!   │ cuda             Cuda: a device's own objects  │      streams: creation, destruction, ids
//!   ├────────────────────────────────────────────────┤
//!   │ context          primary context, current on   │      result_codes: names and reasons, without the driver
//!   │                  the calling thread; forks     │
//!   ├────────────────────────────────────────────────┤
//!   │ functions        pointers by name, in groups   │      layouts: structures and constants of the interface
//!   │ library          libcuda, shared with cudarc   │      dialect: names and numbers, CUDA's or a mirror's (HIP)
//!   └────────────────────────────────────────────────┘
//! ```
//! Besides the backend, `interop` has [`SharedStream`], which passes terrace's memory to `cudarc`'s copies and
//! launches.
//! [`Description::notes`](terrace_device::Description::notes) lists the probes that failed. After the driver has shut
//! down, its calls fail with [`FaultReason::Lost`](terrace_device::FaultReason::Lost).

mod backend;
mod context;
mod copy_batch;
mod cuda;
mod dialect;
mod error;
mod functions;
mod hints;
mod interop;
mod layouts;
mod library;
mod open;
mod pages;
mod probe;
mod regions;
mod result_codes;
mod streams;

pub use cuda::Cuda;
pub use dialect::{CUDA, Dialect, Version};
pub use error::{OpenError, OpenErrorReason};
pub use functions::{DriverFunctions, Function, functions};
pub use interop::{SharedSlice, SharedSliceMut, SharedStream};
pub use layouts::Attributes;
pub use library::searched_names as library_names;
