//! The tests of the core that share a process: one program, since each more costs a second to build and to link.
//!
//! A test that needs its own process, or that takes minutes, is a file beside this folder.
#![cfg(not(loom))]

mod arena_features;
mod batch;
mod cache;
mod exchange;
mod inbox;
mod layer;
mod lease;
mod local;
mod model;
mod pool;
mod pressure;
mod range;
mod range_metadata;
mod range_model;
mod range_pages;
mod range_slots;
mod residence;
mod ring;
mod ring_bridge;
mod settings;
mod slab;
mod source;
