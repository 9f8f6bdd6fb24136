//! The counters of one thread, for an owner that counts without tags and without records.
//!
//! Promises upward: counting takes no lock but when a table grows.
//! Asks from below: the thread's lane.

use crate::lane::{Gauges, ThreadLane};
use crate::tag::Tag;
use crate::tracker::Tracker;
use allocator_api2::alloc::{Allocator, Global};
use core::fmt;

/// A thread's counters, found once for some calls; see [`Tracker::counters_of`].
#[derive(Clone, Copy)]
pub struct ThreadCounters<'a, A: Allocator + Clone = Global> {
    lane: &'a ThreadLane<A>,
    /// Whether no other thread counts there.
    own: bool,
    gauges: &'a Gauges<A>,
}

impl<A: Allocator + Clone> Tracker<A> {
    /// The counters of the calling thread, whose number this is, as for [`allocate_on`](Self::allocate_on).
    ///
    /// Neither the mode nor the process is looked at.
    #[inline]
    pub fn counters_of(&self, thread: u32) -> ThreadCounters<'_, A> {
        let (lane, own) = self.lane(thread);
        ThreadCounters { lane, own, gauges: self.gauges() }
    }
}

impl<A: Allocator + Clone> ThreadCounters<'_, A> {
    /// Counts an allocation under no tag.
    #[inline]
    pub fn allocated(&self, bytes: u64) {
        self.lane.allocated(Tag::NONE, bytes, self.own, self.gauges);
    }

    /// Counts a free under no tag.
    #[inline]
    pub fn freed(&self, bytes: u64) {
        self.lane.freed(Tag::NONE, bytes, self.own, self.gauges);
    }
}

impl<A: Allocator + Clone> fmt::Debug for ThreadCounters<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadCounters").finish_non_exhaustive()
    }
}
