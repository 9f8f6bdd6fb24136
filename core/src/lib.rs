//! terrace-core (being written)
#![no_std]

pub mod allocator;
pub mod arena;
pub mod bins;
pub mod cache;
pub mod counters;
pub mod error;
pub mod event;
pub mod fence;
pub mod index;
pub mod inbox;
pub mod layer;
pub mod pool;
pub mod pressure;
pub mod range;
pub mod residence;
pub mod source;
pub mod stats;
pub mod sync;

pub use allocator::{Allocator, Block, Owner, Request};
pub use arena::{Arena, Segment};
pub use cache::{Bin, Cache, Entry};
pub use counters::Counters;
pub use error::{AllocError, Cause, FreeError, Violation};
pub use fence::{Fence, FenceState, NoFence};
pub use index::{AnyFit, BestFit, Branch, FirstFit, Fit, GoodFit, Index, LendError, Lent, Slot, Slots, WorstFit};
pub use inbox::Inbox;
pub use range::{Extent, Range, RegionId, Scope, Use};
pub use source::{Fixed, Region, Source, SourceError, Usage};
pub use stats::Stats;
