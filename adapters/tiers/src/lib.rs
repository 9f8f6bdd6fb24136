//! Buffers by handle that live in the best tier, move down under pressure and up on use, and can be made durable.

pub mod detect;
pub mod ledger;
#[cfg(target_os = "linux")]
pub mod manager;
pub mod policy;

#[cfg(target_os = "linux")]
pub use manager::{Buffer, Builder, Error, Lease, LeaseMut, Manager, Options, Preset};

/// Bytes of memory that can be had without swapping; 0 where the system does not say.
#[cfg(target_os = "linux")]
fn memory_available() -> u64 {
    terrace_device::meminfo::available().unwrap_or(0)
}
