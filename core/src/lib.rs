//! terrace-core (being written)
#![no_std]

pub mod allocator;
pub mod error;
pub mod source;
pub mod stats;

pub use allocator::{Allocator, Block, Owner, Request};
pub use error::{AllocError, Cause, FreeError, Violation};
pub use source::{Region, Source, SourceError, Usage};
pub use stats::Stats;
