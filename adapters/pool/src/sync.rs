//! Atomics, by the names under which `core/tests/loom_front.rs` gives loom's.

pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub use terrace_core::sync::seeded;
