//! The tests of terrace-metrics that share a process: one program, since each more costs seconds to build and to link.
#![cfg(target_os = "linux")]

mod client;
mod endpoint;
mod prometheus;
mod text;
