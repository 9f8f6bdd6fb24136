//! The in-band heap: programs, promises and refusals, in every configuration. One binary, since each configuration is
//! compiled once for all of them.
#![cfg(not(loom))]

mod broken;
mod checked;
mod facts;
mod header;
mod large;
mod programs;
mod regions;
mod world;
