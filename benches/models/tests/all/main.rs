//! The tests of the models that share a process: one program, since each more costs seconds to build and to link.
//!
//! A test that needs its own process or allocator, or that measures either, is a file beside this folder.

mod bfc;
mod common;
mod contract;
mod failures;
mod fences;
mod pytorch_golden;
mod rmm;
mod sources;
mod traces;
