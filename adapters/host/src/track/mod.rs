//! The tracker of the process's heap: which blocks are live, since when, for what, and which code allocated them.
//!
//! Promises upward: while it is off, a slow path pays a load and a branch, and a fast path nothing; without the feature `track`
//! neither pays anything. On, every call takes the slow path ([`thread::bypass`](crate::thread::bypass)) and comes here. What the
//! tracker itself needs lies in mappings of its own ([`memory`]), so no call here allocates.
//! Asks from below: `terrace_track`; the cache of the running thread, whose number names the thread's counters.
//!
//! Blocks of first-class heaps and of the emergency pool are not tracked, and a forked child tracks nothing.

#[cfg(not(feature = "track"))]
mod absent;
#[cfg(feature = "track")]
mod face;
#[cfg(feature = "track")]
mod hooks;
#[cfg(feature = "track")]
mod memory;
#[cfg(feature = "track")]
mod stack;

#[cfg(not(feature = "track"))]
pub use absent::{end, forked, freed, poll, resized};
#[cfg(feature = "track")]
pub use face::{HEAP_TRACKER, HeapScope, HeapTracker, end, poll};
#[cfg(feature = "track")]
pub use hooks::{allocated, allocated_from, calls, count_allocated, count_freed, forked, freed, resized};
#[cfg(feature = "track")]
pub use stack::CallStack;

/// What becomes of a call that takes the slow path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg(feature = "track")]
pub enum Calls {
    /// It is done, and no more.
    Untracked,
    /// The tracker counts it.
    Counted,
    /// The tracker counts it, and keeps a record.
    Recorded,
    /// As recorded, with the caller's call stack.
    WithStack,
}
