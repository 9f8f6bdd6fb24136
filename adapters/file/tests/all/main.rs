//! The tests of the file tier that share a process: one program, since each more costs seconds to build and to link.
//!
//! A test that needs its own process or allocator, or that measures either, is a file beside this folder.

#[path = "../common/mod.rs"]
mod common;
mod engines;
mod errors;
mod mapped;
mod store;
mod store_room;
mod wakers;
