//! I/O engines: io_uring, and a pool of threads.

mod ring;
mod threads;

pub use ring::UringEngine;
pub use threads::{ThreadEngine, perform};
