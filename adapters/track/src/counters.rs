//! Counting without tags and without records, for an owner that keeps no stamps.
//!
//! Promises upward: a call costs a look at one table and some plain loads and stores; it takes no lock.
//! Asks from below: the thread's lane.

use crate::lane::ThreadLane;
use crate::tag::Tag;
use crate::tracker::Tracker;
use allocator_api2::alloc::Allocator;

impl<A: Allocator + Clone> Tracker<A> {
    /// The counters of the thread of a number; `None` for number 0, and where there is no memory for them.
    ///
    /// They live as long as the tracker, and pass to the thread that takes the number over.
    ///
    /// # Example
    /// ```
    /// use terrace_track::{TrackMode, Tracker};
    /// let tracker = Tracker::new("heap", &["heap"]);
    /// let lane = tracker.lane_of(1).expect("memory");
    /// tracker.count_allocation(lane, 64);
    /// tracker.count_free(lane, 64);
    /// assert_eq!((tracker.total().allocations, tracker.total().live_bytes), (1, 0));
    /// ```
    pub fn lane_of(&self, thread: u32) -> Option<&ThreadLane<A>> {
        let lane = self.own_lane(thread)?;
        lane.make(Tag::NONE, &self.gauges)?;
        Some(lane)
    }

    /// Counts an allocation of the thread whose counters these are, under no tag.
    ///
    /// Neither the mode nor the process is looked at. Only that thread may call it with these counters.
    #[inline]
    pub fn count_allocation(&self, lane: &ThreadLane<A>, bytes: u64) {
        if let Some(traffic) = lane.made(Tag::NONE)
            && lane.allocated_under(traffic, bytes, true)
        {
            lane.tell(Tag::NONE, &self.gauges);
        }
    }

    /// Counts a free under no tag, as [`count_allocation`](Self::count_allocation) does.
    #[inline]
    pub fn count_free(&self, lane: &ThreadLane<A>, bytes: u64) {
        if let Some(traffic) = lane.made(Tag::NONE)
            && lane.freed_under(traffic, bytes, true)
        {
            lane.tell(Tag::NONE, &self.gauges);
        }
    }

    /// Counts an allocation under no tag, of a caller with a number or without.
    pub fn count_allocation_on(&self, thread: u32, bytes: u64) {
        self.count_new(thread, Tag::NONE, bytes);
    }

    /// Counts a free under no tag, of a caller with a number or without.
    pub fn count_free_on(&self, thread: u32, bytes: u64) {
        self.count_old(thread, Tag::NONE, bytes);
    }
}
