//! Policies of the allocators that terrace is measured against, and simulated sources to run them on.
//!
//! - [`sim`]: [`Segments`] and [`Growing`], sources without memory that count calls, check their caller and fail
//!   on demand; [`Delay`], a fence that opens a number of events later.
//! - [`pytorch`], [`rmm`], [`bfc`]: the policies of PyTorch's CUDA caching allocator, RAPIDS RMM's pool and the
//!   best-fit-with-coalescing allocator of TensorFlow and XLA, restated from their sources in our own code.
//! - [`pinned`]: the policy of PyTorch's allocator of pinned host memory.
//! - [`manual`]: a driver without memory that does what streams are given when it is told to; [`SimulatedDevice`], a
//!   [`Device`](terrace_device::Device) over it as an allocator.
//! - [`scenarios`]: lists of operations, the same for every allocator, and what came of them.
//! - [`Random`]: numbers that are the same on every machine.
//! - [`rounds`]: contestants of a benchmark in turn, medians and spreads.
//!
//! Promises upward: each model is a [`terrace_core::Allocator`]: same contract, same statistics, over any
//! [`terrace_core::Source`] and [`terrace_core::Fence`]. A model decides as its original does: same sizes, same
//! choice of block, same device calls. It does not copy its original's speed; where a choice of structure makes
//! the model faster or slower than the original, its page says so.
//! Asks from below: only the faces of `terrace-core`, and of `terrace-device` where a device takes part. No library of the project may depend on this crate.
//!
//! ```
//! use terrace_core::{Allocator, Owner, Request};
//! use terrace_models::{PyTorch, Segments};
//!
//! let mut pool = PyTorch::new(Segments::new(0));
//! let block = pool.allocate(Request::new(5 << 20))?;
//! assert_eq!(pool.stats().reserved, 20 << 20); // one segment of 20 MiB
//! pool.free(block, Owner(0))?;
//! assert_eq!(pool.trim(), 20 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

pub mod bfc;
mod chain;
mod chunks;
mod counters;
mod device;
#[allow(unsafe_code)] // the calls of a backend that take addresses are unsafe, also where there is no memory
pub mod manual;
pub mod pinned;
pub mod pytorch;
mod random;
mod request;
pub mod rmm;
pub mod rounds;
pub mod scenarios;
pub mod sim;

pub use bfc::{Bfc, BfcOptions};
pub use device::SimulatedDevice;
pub use pinned::PinnedCache;
pub use pytorch::{BadOption, PyTorch, PyTorchOptions};
pub use random::Random;
pub use rmm::{Rmm, RmmOptions};
pub use sim::{Delay, Faults, Growing, Segments};

/// 2^20 bytes.
pub(crate) const MIB: u64 = 1 << 20;
