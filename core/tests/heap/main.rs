//! The in-band heap: programs, promises and refusals, in every configuration. One binary, since each configuration is
//! compiled once for all of them.
//!
//! Mistakes that only an interpreter sees, which Miri must find here:
// seeded: heap_pointer_from_a_number
// seeded: heap_block_from_its_header
#![cfg(not(loom))]

mod broken;
mod checked;
mod facts;
mod header;
mod large;
mod programs;
mod regions;
mod world;
