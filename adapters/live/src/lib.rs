#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! | module | what it is |
//! | --- | --- |
//! | `layout` | the format: header, rows, figures |
//! | `sequence` | the lock of one row; checked by `core/tests/loom_live.rs` |
//! | `write`, `read` | one row, written and read, over words of the caller's; no system, no allocation |
//! | `error` | what goes wrong at either end |
//! | `memory` | the page in a memfd, mapped to write or to read |
//! | `socket` | a descriptor through a socket |
//! | `publisher`, `reader` | the two ends for programs |
#![no_std]

#[cfg(all(feature = "std", target_os = "linux"))]
extern crate std;

#[cfg(all(feature = "std", target_os = "linux"))]
mod error;
mod layout;
#[cfg(all(feature = "std", target_os = "linux"))]
mod memory;
#[cfg(all(feature = "std", target_os = "linux"))]
mod publisher;
mod read;
#[cfg(all(feature = "std", target_os = "linux"))]
mod reader;
mod sequence;
#[cfg(all(feature = "std", target_os = "linux"))]
mod socket;
mod sync;
mod write;

#[cfg(all(feature = "std", target_os = "linux"))]
pub use error::LiveError;
pub use layout::{BYTES, CounterPage, FIGURES, Figure, Figures, NAME_BYTES, PageError, ROWS, RowKind, VERSION, WORDS};
#[cfg(all(feature = "std", target_os = "linux"))]
pub use memory::{SharedCounters, milliseconds};
#[cfg(all(feature = "std", target_os = "linux"))]
pub use publisher::{Publisher, PublisherBuilder, RowList};
pub use read::{LiveRow, RowRead, TRIES};
#[cfg(all(feature = "std", target_os = "linux"))]
pub use reader::{CounterReader, LiveFrame};
pub use write::{RowValues, RowWriter};
