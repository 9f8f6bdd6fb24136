//! The contract suite: one set of rules for every allocator and every source, in this project or out of it.
//!
//! [`contract`] drives an allocator with random programs and compares it, after each step, with a dumb model: a list of
//! live blocks. [`source_contract`] does the same for sources. Both are deterministic: the same seed gives the same
//! programs on every machine. What breaks is reported as a [`Failure`]: the rule, the seed and the shortest
//! program found that breaks it.
//!
//! Promises upward: an allocator that passes hands out blocks that never overlap, are aligned and large enough; refuses
//! without changing anything; counts what it did; and returns what it took.
//! Asks from below: [`terrace_core::Allocator`] or [`terrace_core::Source`], and nothing else of what is tested.
//!
//! # Example
//! Three lines add an allocator:
//! ```
//! use terrace_core::{GoodFit, Range, Slot};
//! terrace_tests::contract(|| {
//!     let mut range = Range::new(vec![Slot::EMPTY; 200], 64, GoodFit::new()).expect("64 is a power of two");
//!     range.add_region(1 << 20, 1 << 20).expect("room for a region");
//!     range
//! })
//! .unwrap();
//! ```
#![deny(unsafe_code)]

mod allocator;
#[allow(unsafe_code)] // wraps memory of a device on purpose
pub mod device;
#[cfg(target_os = "linux")]
pub mod disk;
mod drive;
mod failure;
#[allow(unsafe_code)] // forks
pub mod hung;
mod model;
mod program;
#[cfg(unix)]
#[allow(unsafe_code)] // a library's functions, by name
pub mod simcuda;
mod source;
mod source_model;
pub mod steps;
mod ticking;
pub mod trace;
#[allow(unsafe_code)] // a waker's table takes pointers
pub mod waker;

pub use allocator::{Contract, contract};
pub use failure::{Broken, Failure};
pub use model::{Live, Model};
pub use program::{Forgery, Step};
pub use source::{SourceContract, SourceStep, source_contract};
pub use terrace_models::{Random, manual, rounds};
pub use ticking::Ticking;
