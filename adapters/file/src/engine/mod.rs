//! Ways to do requests: by the system's ring, or by threads.

mod ring;
mod threads;

pub use ring::UringEngine;
pub use threads::{ThreadEngine, perform};
