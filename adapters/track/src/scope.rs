//! Statistics of a region of code.
//!
//! Promises upward: what the thread that opened a scope allocated and freed until its end; scopes nest, and may end in any
//! order.
//! Asks from below: the thread's counters.

use crate::lane::ScopeBegin;
use crate::summary::ScopeStats;
use crate::tracker::Tracker;
use allocator_api2::alloc::{Allocator, Global};
use core::fmt;
use core::marker::PhantomData;

/// A region of code: from [`Tracker::scope`] to the drop.
///
/// What is allocated while the tracker is off is not counted, and neither is its free.
///
/// # Example
/// ```
/// use terrace_track::{TrackMode, Tracker};
///
/// let tracker = Tracker::new("pool", &["device 0"]);
/// tracker.set_mode(TrackMode::Counters);
/// let step = tracker.scope();
/// let stamp = tracker.allocated(0x4000, 256, 0);
/// tracker.freed(stamp, 0x4000, 256);
/// let did = step.end();
/// assert_eq!((did.allocations, did.frees, did.peak_bytes), (1, 1, 256));
/// println!("{did}");
/// ```
#[must_use = "the scope ends when it is dropped"]
pub struct Scope<'a, A: Allocator + Clone = Global> {
    tracker: &'a Tracker<A>,
    number: u32,
    begin: ScopeBegin,
    /// Belongs to the thread that opened it.
    _thread: PhantomData<*const ()>,
}

impl<A: Allocator + Clone> Tracker<A> {
    /// Begins to count what the calling thread allocates and frees.
    #[cfg(feature = "std")]
    pub fn scope(&self) -> Scope<'_, A> {
        self.scope_on(crate::thread::number())
    }

    /// Begins to count what the thread of this number allocates and frees.
    pub fn scope_on(&self, number: u32) -> Scope<'_, A> {
        Scope { tracker: self, number, begin: self.lane(number).begin(), _thread: PhantomData }
    }
}

impl<A: Allocator + Clone> Scope<'_, A> {
    /// What the thread did so far.
    pub fn stats(&self) -> ScopeStats {
        let (counts, peak_bytes) = self.tracker.lane(self.number).since(&self.begin);
        let [allocations, frees, bytes, freed_bytes] = counts;
        ScopeStats { allocations, frees, bytes, freed_bytes, peak_bytes }
    }

    /// Ends the scope; returns what the thread did.
    pub fn end(self) -> ScopeStats {
        self.stats()
    }
}

impl<A: Allocator + Clone> Drop for Scope<'_, A> {
    fn drop(&mut self) {
        self.tracker.lane(self.number).end(&self.begin);
    }
}

impl<A: Allocator + Clone> fmt::Debug for Scope<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
