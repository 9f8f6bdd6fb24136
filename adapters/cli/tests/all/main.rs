//! The tests of the command that share a process: one program, since each more costs seconds to build and to link.
//!
//! A test that needs its own process or allocator, or that measures either, is a file beside this folder.

mod bad_input;
mod common;
mod config;
mod convert;
mod describe;
mod devices;
mod estimate;
mod folders;
mod least;
mod pages;
mod recorder;
mod replay;
mod report;
mod shm;
mod surprises;
mod tiers;
#[cfg(target_os = "linux")]
mod top;
