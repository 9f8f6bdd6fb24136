#![doc = include_str!("../README.md")]
//!
//! # The parts
//!
//! The four parts are source, index, cache and fence. An allocator is itself a source for another allocator, so they
//! nest.
//!
//! ```text
//!          Request                                         Block
//!             |                                              ^
//!  layer      |  limit, lock, tenants, two levels            |      the same interface around another allocator
//!  arena      v                                              |
//!        +----------+  hit                                   |
//!        |  cache   |----------------------------------------+      what an owner gave back, by exact size
//!        +----------+                                        |
//!             | miss                                         |
//!        +----------+  a gap                                 |
//!        |  range   |----------------------------------------+      split, merge, resize; stale handles detected
//!        |  index   |  good O(1), best, first, worst fit     |      which gap: bins and tries
//!        +----------+                                        |
//!             | none: poll fences, empty caches, search again|
//!        +----------+  pages or a segment                    |
//!        |  source  |----------------------------------------+      address space, mmap, a driver, a file
//!        +----------+
//! ```
//!
//! | word | means |
//! | --- | --- |
//! | [`Region`] | a contiguous range of bytes, taken from a [`Source`] |
//! | [`Block`] | an allocated block: address, size, and a handle that is never issued twice |
//! | gap, hole | a free range; a range of address space that no memory backs |
//! | [`Slot`] | the record of a block and of the gap after it, in storage that the caller lends |
//! | [`Owner`] | the party that allocates and frees: a thread, a core, a stream |
//! | [`Fence`] | until it is ready, only the owner that freed a block may reuse it |
//!
//! The invariants of a structure stand beside its fields, and its `check()` verifies them.
#![no_std]

pub mod allocator;
pub mod arena;
pub mod bins;
pub mod cache;
pub mod counters;
pub mod error;
pub mod event;
pub mod exchange;
pub mod fence;
pub mod heap;
pub mod inbox;
pub mod index;
pub mod layer;
pub mod lease;
pub mod pool;
pub mod pressure;
pub mod range;
pub mod residence;
pub mod ring;
pub mod settings;
pub mod source;
pub mod spelling;
pub mod stats;
pub mod sync;

pub use allocator::{Allocator, Block, Owner, Request};
pub use arena::{Arena, Segment};
pub use cache::{Bin, Cache, Entry};
pub use counters::Counters;
pub use error::{AllocError, Cause, FreeError, Violation};
pub use exchange::Exchange;
pub use fence::{Fence, FenceState, NoFence};
pub use inbox::Inbox;
#[cfg(feature = "bytemuck")]
pub use index::SlotBytes;
pub use index::{AnyFit, BestFit, Branch, FirstFit, Fit, GoodFit, Index, LendError, LentSlots, Slot, Slots, WorstFit};
pub use range::{ExtentKind, Range, RangeExtent, RegionId};
pub use source::{FixedSource, Region, Source, SourceError, SourceUsage};
pub use stats::Stats;
