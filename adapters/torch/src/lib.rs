#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! ```text
//!   PyTorch (CUDAPluggableAllocator)                    people (Python package, C)
//!        │ alloc, free, record_stream, pools, ..             │ stats, snapshot, last_error, trim
//!   ┌────v─────────────────────────────────────────┐    ┌────v──────┐
//!   │ hooks     C signatures; nothing unwinds but  │    │ inspect   │
//!   │           what `throw` throws on purpose     │    │           │
//!   ├──────────────────────────────────────────────┴────┴───────────┤
//!   │ process   all devices of the process, opened at first use     │     settings: TERRACE_TORCH_* variables
//!   │ table     who has which address                               │     failure:  the last message
//!   │ card      one device: streams by handle, captures             │
//!   │ captures  pools of graphs and regions; filter: std::function  │
//!   └───────────────────────────┬───────────────────────────────────┘
//!                  terrace_device::Device over terrace_cuda::Cuda
//! ```
//!
//! Failures are values: a failed call gives null or does nothing, keeps a message ([`terrace_torch_last_error`]) and prints the first of
//! each kind to standard error; no panic crosses into C. A free that names another stream than the allocation counts as used on both
//! ([`terrace_torch_record_stream`]).
//!
//! # Example
//! ```
//! use terrace_torch::{terrace_torch_alloc, terrace_torch_free};
//! let none = terrace_torch_alloc(0, 0, std::ptr::null_mut());
//! assert!(none.is_null(), "no bytes need no memory, and no device");
//! terrace_torch_free(none, 0, 0, std::ptr::null_mut());
//! ```
#![cfg(unix)]

mod block_table;
mod device;
mod exception;
mod failure;
mod filter;
mod hooks;
mod inspect;
mod pools;
mod process;
mod settings;
mod snapshot;

pub use filter::StdFunction;
pub use hooks::*;
pub use inspect::*;
pub use pools::PoolId;
