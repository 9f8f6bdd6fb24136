//! Calls of owners that have threads: the tracker finds out the thread, its tag and its call stack.
//!
//! Promises upward: while the tracker is off, an allocation costs a load and a branch.
//! Asks from below: [`thread`](crate::thread).

use crate::frames;
use crate::mode::{TrackMode, any};
use crate::origin::Origin;
use crate::sites::MAX_SITE_DEPTH;
use crate::tag::Tag;
use crate::thread;
use crate::time::TimeSource;
use crate::tracker::{Stamp, Tracker};
use allocator_api2::alloc::{Allocator, Global};

impl Tracker {
    /// Makes a tracker that is off.
    ///
    /// `places` are the names of the locations that [`allocated`](Self::allocated) counts by.
    pub fn new(name: &str, places: &[&str]) -> Self {
        Self::with_time(name, places, TimeSource::Coarse, Global)
    }

    /// As [`new`](Self::new), with a clock.
    pub fn with_clock(name: &str, places: &[&str], clock: crate::UserClock) -> Self {
        Self::with_time(name, places, TimeSource::User(clock), Global)
    }
}

impl<A: Allocator + Clone> Tracker<A> {
    /// Whether anything is recorded. One load while all trackers of the process are off.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        any() && self.mode() != TrackMode::Off
    }

    /// Counts an allocation of the calling thread, and records it if the mode says so.
    ///
    /// Returns what its free needs.
    /// `key` is the block's address, or any number that no other live block of this tracker has; `place` is an index of
    /// the places.
    #[inline(always)]
    pub fn allocated(&self, key: u64, bytes: u64, place: u8) -> Stamp {
        if !any() {
            return Stamp::NONE;
        }
        let mode = self.mode();
        self.allocate_in(mode, thread::number(), self.origin_in(mode), key, bytes, place)
    }

    /// As [`allocated`](Self::allocated), for a caller that asked earlier, maybe on another thread.
    ///
    /// The calling thread's counters and scopes have it.
    #[inline]
    pub fn allocated_from(&self, origin: Origin, key: u64, bytes: u64, place: u8) -> Stamp {
        self.allocate_on(thread::number(), origin, key, bytes, place)
    }

    /// Counts a free, on any thread, and removes the block's record.
    ///
    /// The caller must call it before other code can get the memory. Nothing happens for [`Stamp::NONE`].
    #[inline]
    pub fn freed(&self, stamp: Stamp, key: u64, bytes: u64) {
        if !stamp.is_none() {
            self.free_on(thread::number(), stamp, key, bytes);
        }
    }

    /// The calling thread's tag, and its call stack if the mode asks for call sites.
    #[inline(always)]
    pub fn origin(&self) -> Origin {
        self.origin_in(self.mode())
    }

    #[inline(always)]
    fn origin_in(&self, mode: TrackMode) -> Origin {
        let tag = thread::current_tag();
        if mode == TrackMode::Sites { self.origin_here(tag) } else { Origin::of(tag) }
    }

    /// The caller's call stack. Never inlined, so that its first frame is the caller.
    #[inline(never)]
    fn origin_here(&self, tag: Tag) -> Origin {
        let mut found = AlignedStack([0; MAX_SITE_DEPTH]);
        let (stack, depth) = (thread::stack_bounds(), self.site_depth());
        let count = frames::walk_frames(stack, &mut found.0[..depth]);
        self.origin_of(tag, &found.0[..count])
    }
}

/// Room for a call stack. A function with a local that is aligned beyond the stack has a frame pointer on x86-64 however
/// it is compiled: so the caller is found even where no other function has one.
#[repr(align(64))]
struct AlignedStack([u64; MAX_SITE_DEPTH]);
