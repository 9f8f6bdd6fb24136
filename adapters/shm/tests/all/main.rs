//! Shared buffers: one process, many threads, other processes, other users, and what hostile peers do.
#![cfg(target_os = "linux")]

mod basics;
mod children;
mod common;
mod files;
mod forks;
mod holders;
mod hostile;
mod impostors;
mod kills;
mod leases;
mod peers;
mod users;
