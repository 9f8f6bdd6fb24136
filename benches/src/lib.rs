//! Benchmarks: peers and ours.
//!
//! ```text
//! core      allocators of address ranges, on one list of actions
//! heap      heaps in their own memory, on one list of operations
//! host      allocators of whole programs
//! tiers     the manager of tiers beside raw loops on the same disk
//! harness   what all do           options, results, table, plot   what all have
//! callgrind  instructions of any run        machine  where it ran        tools  cargo, compilers and others
//! ```
//!
//! Promises upward: contestants take turns within one run; raw samples are kept, losses too.
//! Asks from below: public faces only, of terrace as of the peers.
// Only where heaps are given memory and blocks back.
#![deny(unsafe_code)]

pub mod callgrind;
pub mod core;
pub mod harness;
pub mod heap;
pub mod host;
pub mod machine;
pub mod options;
pub mod plot;
pub mod results;
pub mod table;
#[cfg(target_os = "linux")]
pub mod tiers;
pub mod tools;

// Linked for its feature alone: see Cargo.toml.
use log as _;
