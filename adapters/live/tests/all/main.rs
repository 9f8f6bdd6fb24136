//! The tests that share a process.
#![cfg(target_os = "linux")]

mod format;
mod sockets;
