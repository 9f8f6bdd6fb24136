//! Layers: the same face as what they wrap, with one thing added.
//!
//! Promises upward: each layer is an [`Allocator`](crate::allocator::Allocator) over an `Allocator`, so they stack in
//! any order, at compile time; a layer adds O(1) to a call (but for `Tenants`, which may zero a block).
//! Asks from below: the contract of `Allocator`; where a layer needs room, the caller lends it.
//!
//! - [`Limit`]: a cap in bytes.
//! - [`Locked`]: a handle for many threads, over any raw mutex; blocks that free themselves.
//! - [`Local`]: one owner's cache in front of a `Locked` allocator; a hit takes no lock.
//! - [`Tenants`]: caps and guaranteed shares for owners that do not trust each other, zeroed hand-over between them.

mod limit;
mod local;
mod locked;
mod tenants;

pub use limit::Limit;
pub use local::{Local, LocalCaps, LocalRecord};
pub use locked::{Guard, Locked};
pub use tenants::{PageOwners, TenantShare, Tenants, ZeroFill};
