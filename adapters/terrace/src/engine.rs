//! The parts that allocators are built from: `terrace-core`'s, storage for them, and pools that threads share.
//!
//! Promises upward: everything of [`terrace_core`] under its own name; [`shared`] and [`waiting`] turn any
//! [`Allocator`] into a pool that threads share.
//! Asks from below: nothing.
//!
//! Use these parts to build a pool of your own: over memory that another library owns, over addresses of a device, or
//! with limits and tenants. A program that just needs memory uses the [root](crate).
//!
//! # Example
//! ```
//! use terrace::engine::{Allocator, GoodFit, Owner, Range, Request, Slot};
//! // 1 GiB of addresses, and records for 1024 blocks.
//! let mut range = Range::new(vec![Slot::EMPTY; 1024], 64, GoodFit::new())?;
//! range.add_region(0x1000_0000, 1 << 30)?;
//! let block = range.allocate(Request::new(10 << 20).align(4096))?;
//! range.free(block, Owner(0))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use terrace_core::*;
#[cfg(feature = "device")]
pub use terrace_device::store::{ArenaCapacity, HeapStore, heap_parts};
pub use terrace_pool::{shared, waiting};
