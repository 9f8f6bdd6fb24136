#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! ```text
//!          terrace_device::Backend                     the program's kernels
//!                    │                                        │
//!   ┌────────────────v────────────────────────┐   ┌───────────v──────────────┐
//!   │ backend     one method, a few calls     │   │ interop  a queue of both │   open: lists devices, uses each
//!   │  regions   memory by kind, sub-buffers  │<──│   slices  as arguments   │   capability once, and writes a
//!   │  copies    by what lies at an address   │   │   mapped  for the host   │   note for each that failed
//!   │  queues    streams     events  markers  │   └──────────────────────────┘
//!   ├─────────────────────────────────────────┤
//!   │ opencl      a device's own objects      │      describe: what a device says    memory: kinds of memory
//!   ├─────────────────────────────────────────┤
//!   │ connection  context, device; forks      │      result_codes: names and reasons, without the driver
//!   ├─────────────────────────────────────────┤
//!   │ functions   pointers by name, in groups │      layouts: types and constants of the interface
//!   └─────────────────────────────────────────┘
//! ```
//! # Why not the functions of `opencl3`
//! `opencl3`, by its `cl3`, loads the library at run time and answers with an error where it or a function is missing. But `cl3` 0.13
//! calls C's functions through pointers of Rust's convention, which is the same by luck, and `opencl3`'s objects panic when the driver
//! refuses a release. So functions are looked up here, in a table as `terrace-cuda` has one. Handles are plain: a program's
//! `opencl3`, or any other library, shares contexts, queues and kernels with this crate.

#[cfg(test)]
mod altered;
mod backend;
mod connection;
mod copies;
mod describe;
mod error;
mod events;
mod functions;
mod interop;
mod layouts;
mod memory;
mod open;
mod opencl;
mod queues;
mod regions;
mod result_codes;

pub use describe::OpenClDevice;
pub use error::OpenClError;
pub use functions::{OpenClFunction, driver_names, functions, library_names};
pub use interop::{KernelArgument, KernelSlice, KernelSliceMut, SharedQueue};
pub use layouts::ClHandle;
pub use memory::OpenClMemory;
pub use opencl::OpenClBackend;
