#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! ```text
//!   PyTorch (CUDAPluggableAllocator)                    programs (Python package, C)
//!        │ alloc, free, record_stream, pools, ..             │ stats, snapshot, last_error, trim
//!   ┌────v─────────────────────────────────────────┐    ┌────v──────┐
//!   │ hooks     C signatures; nothing unwinds but  │    │ inspect   │
//!   │           the C++ exception of `exception`   │    │           │
//!   ├──────────────────────────────────────────────┴────┴───────────┤
//!   │ process   all devices of the process, opened at first use     │     settings: TERRACE_TORCH_* variables
//!   │ block_table   live blocks by address                          │     failure:  the last message
//!   │ device    one device: streams by handle, pools by id          │
//!   │ pools     pools of graphs and regions; filter: std::function  │
//!   └───────────────────────────┬───────────────────────────────────┘
//!                  terrace_device::Device over terrace_cuda::Cuda
//! ```
//!
//! A failed call returns null or does nothing, records a message ([`terrace_torch_last_error`]) and prints the first of each kind to
//! standard error; no panic crosses into C. A free that names another stream than the allocation also marks the block as used there
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
