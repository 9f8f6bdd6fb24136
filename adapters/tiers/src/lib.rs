//! Buffers by handle that live in the best tier, move down under pressure and up on use, and can be made durable.

pub mod detect;
pub mod ledger;
#[cfg(target_os = "linux")]
pub mod manager;
pub mod policy;

#[cfg(target_os = "linux")]
pub use manager::{Buffer, Builder, Error, Lease, LeaseMut, Manager, Options, Preset};
