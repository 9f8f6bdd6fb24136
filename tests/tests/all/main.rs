//! Tests of several packages that share a process: one program, since each more costs seconds to build and to link.
//!
//! A test that needs its own process or allocator, that takes long, or that a document names by its program is a file beside
//! this folder.

mod arena;
mod contract;
mod growth;
mod models;
mod pages;
mod settings;
mod simulated_disk;
mod store_bounds;
mod store_checks;
mod store_untrusted;
