//! The tests of terrace that share a process: one program, since each more costs seconds to build and to link.
//!
//! A test that needs its own process or allocator, or that measures either, is a file beside this folder.

mod buffers;
mod event;
#[cfg(feature = "recording")]
mod recording;
#[cfg(feature = "recording")]
mod rmm;
#[cfg(feature = "recording")]
mod snapshot;
#[cfg(feature = "serde")]
mod stats;
mod waiting;
