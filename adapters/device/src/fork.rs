//! Whether this process is the one that opened a device.

pub use terrace_fork::{generation, watch};
