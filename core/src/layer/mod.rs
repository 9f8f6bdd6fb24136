//! Layers: allocators around another allocator, each with one function added.
//!
//! Promises upward: each layer is an [`Allocator`](crate::allocator::Allocator) over an `Allocator`, so they stack in
//! any order, at compile time; a layer adds O(1) to a call (but for `Tenants`, which may zero a block).
//! Asks from below: the contract of `Allocator`; the caller lends the storage of a layer.
//!
//! - [`Limit`]: a cap in bytes.
//! - [`Locked`]: an allocator that threads share, behind any raw mutex; guards that free their block.
//! - [`Local`]: one owner's cache in front of a `Locked` allocator; a hit takes no lock.
//! - [`Tenants`]: caps and guaranteed shares for owners that do not trust each other; memory is zeroed between tenants.

mod limit;
mod local;
mod locked;
mod tenants;

pub use limit::Limit;
pub use local::{Local, LocalCaps, LocalRecord};
pub use locked::{Guard, Locked};
pub use tenants::{PageOwners, TenantShare, Tenants, ZeroFill};
