//! Fixed blocks: bitmaps of them, power-of-two (and finer) buckets of them, and buckets that grow from a source.
//!
//! Promises upward:
//! - [`Pool`]: equal blocks named by index, acquired and released without a lock by any number of threads.
//! - [`Slab`]: the same for one thread at a time, many blocks at once.
//! - [`Buckets`]: several pools of rising block size over one range of addresses; thread-safe, stale names detected.
//! - [`BucketArena`]: the same sizes, but segments come from a [`Source`](crate::source::Source) and go back to it.
//! - [`SizeClasses`]: the arithmetic between sizes and classes, O(1) both ways.
//!
//! Asks from below: `sync` for the first two; memory for records is always lent by the caller.

mod arena;
mod bitmap;
mod bucket_guard;
mod buckets;
mod size_classes;
mod slab;

pub use arena::{BlockRecord, BucketArena, SegmentRecord};
pub use bitmap::{Pool, PoolGuard};
pub use bucket_guard::BucketGuard;
pub use buckets::Buckets;
pub use size_classes::SizeClasses;
pub use slab::Slab;
