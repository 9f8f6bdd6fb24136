//! Pools of fixed-size blocks: bitmaps, buckets of rising block size, and buckets that grow from a source.
//!
//! Promises upward:
//! - [`Pool`]: blocks of one size, by index, which any number of threads acquire and release without a lock.
//! - [`Slab`]: blocks of one size, by index, which one thread at a time takes in batches.
//! - [`Buckets`]: several pools of rising block size in one range of addresses; thread-safe; detects stale handles.
//! - [`BucketArena`]: the same size classes, in segments from a [`Source`](crate::source::Source).
//! - [`SizeClasses`]: from sizes to classes and back in O(1).
//!
//! Asks from below: `sync` for [`Pool`] and [`Buckets`]; the caller lends the memory of all records.

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
