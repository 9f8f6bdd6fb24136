//! The tracker: counts and records what its owner allocates and frees.
//!
//! Promises upward: any thread may free what any other allocated, and the mode may change at any time: what was counted
//! or recorded at its allocation is so at its free, and what was not is left alone.
//! Asks from below: the [`Stamp`] of each allocation back at its free; memory, which may be lacking.

use crate::counter::{Baseline, PeakGauge, Traffic};
use crate::growing::{GrowingTable, MOST};
use crate::lane::{Gauges, ThreadLane, difference, sum};
use crate::mode::{ModeSwitch, TrackMode};
use crate::origin::Origin;
use crate::records::{RecordTable, TrackRecord};
use crate::sites::{MAX_SITE_DEPTH, SiteTable};
use crate::tag::Tag;
use crate::time::TimeSource;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use allocator_api2::alloc::{Allocator, Global};
use core::fmt;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
#[cfg(feature = "std")]
use terrace_guard::Process;

/// Says where a block is now, by its key; `None` leaves the place that was recorded.
pub type Locator = Box<dyn Fn(u64) -> Option<String> + Send + Sync>;

/// What a tracker knows of an allocation: its owner keeps it with the block, and passes it to the free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp(u16);

// A stamp has twelve bits for a tag.
const _: () = assert!(MOST <= 1 << 12);

impl Stamp {
    /// The stamp of what was not tracked.
    pub const NONE: Self = Self(0);

    /// The block was tracked. The highest bit, which a comparison finds in one instruction.
    const TRACKED: u16 = 1 << 15;

    /// The block has a record, not only counters.
    const RECORDED: u16 = 1 << 14;

    fn new(tag: Tag, recorded: bool) -> Self {
        Self(Self::TRACKED | tag.number() << 2 | if recorded { Self::RECORDED } else { 0 })
    }

    /// The stamp as a number, for owners that keep it in a part of another word.
    ///
    /// The two lowest bits are zero; the highest is set unless the stamp is [`NONE`](Self::NONE), which is zero.
    #[inline(always)]
    pub fn to_bits(self) -> u16 {
        self.0
    }

    /// The stamp of a number that [`to_bits`](Self::to_bits) returned.
    #[inline(always)]
    pub fn from_bits(bits: u16) -> Self {
        Self(bits)
    }

    /// Whether the block was not tracked when it was allocated.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    fn tag(self) -> Tag {
        Tag::at(usize::from((self.0 & (Self::RECORDED - 1)) >> 2))
    }
}

/// Counts and records what its owner allocates and frees. Off until [`Tracker::set_mode`].
pub struct Tracker<A: Allocator + Clone = Global> {
    switch: ModeSwitch,
    pub(crate) name: String,
    pub(crate) places: Vec<String>,
    pub(crate) locate: Option<Locator>,
    pub(crate) time: TimeSource,
    pub(crate) gauges: Gauges<A>,
    /// Counters of callers without a thread number, which write them by atomic operations.
    shared: ThreadLane<A>,
    /// What was counted before the last restart: of all tags, and by the tag's index.
    base: Baseline,
    bases: GrowingTable<Baseline, A>,
    /// Counters by thread number less one; only that thread writes them.
    lanes: GrowingTable<ThreadLane<A>, A>,
    pub(crate) records: RecordTable<A>,
    pub(crate) sites: SiteTable<A>,
    /// Most return addresses that are kept of a call stack.
    depth: AtomicUsize,
    /// Number of allocations that there was no memory to record.
    pub(crate) unrecorded: AtomicU64,
    /// A child of this process leaves the tracker alone: threads that only the parent has may hold its locks.
    #[cfg(feature = "std")]
    process: Process,
    #[cfg(feature = "std")]
    pub(crate) sink: crate::sink::SinkSlot,
    #[cfg(feature = "std")]
    pub(crate) leaks: std::sync::Mutex<Option<crate::list::LeakReport>>,
}

impl<A: Allocator + Clone> Tracker<A> {
    pub(crate) fn with_time(name: &str, places: &[&str], time: TimeSource, memory: A) -> Self {
        Self {
            switch: ModeSwitch::default(),
            name: name.into(),
            places: places.iter().map(|place| String::from(*place)).collect(),
            locate: None,
            time,
            shared: ThreadLane::default(),
            base: Baseline::default(),
            bases: GrowingTable::default(),
            lanes: GrowingTable::default(),
            records: RecordTable::new(&memory),
            sites: SiteTable::new(&memory),
            gauges: Gauges { total: PeakGauge::default(), tags: GrowingTable::default(), memory },
            depth: AtomicUsize::new(16),
            unrecorded: AtomicU64::new(0),
            #[cfg(feature = "std")]
            process: Process::current(),
            #[cfg(feature = "std")]
            sink: crate::sink::SinkSlot::default(),
            #[cfg(feature = "std")]
            leaks: std::sync::Mutex::default(),
        }
    }

    /// Makes a tracker with a clock and with memory for its counters and records.
    ///
    /// `places` are the names of the locations that [`allocate_on`](Self::allocate_on) counts by.
    pub fn new_in(name: &str, places: &[&str], clock: crate::UserClock, memory: A) -> Self {
        Self::with_time(name, places, TimeSource::User(clock), memory)
    }

    /// Asks `locate` where blocks are when a list is made. No lock of the tracker is held then.
    pub fn locate_by(mut self, locate: impl Fn(u64) -> Option<String> + Send + Sync + 'static) -> Self {
        self.locate = Some(Box::new(locate));
        self
    }

    /// Changes how much is recorded, from the next allocation on.
    ///
    /// Blocks that were tracked so far stay so until they are freed, in any mode; others are never tracked.
    pub fn set_mode(&self, mode: TrackMode) {
        self.switch.set(mode);
    }

    /// How much is recorded.
    #[inline]
    pub fn mode(&self) -> TrackMode {
        self.switch.get()
    }

    /// Sets how many return addresses of a call stack are kept: 1 to 32; 16 unless set.
    pub fn set_site_depth(&self, frames: usize) {
        self.depth.store(frames.clamp(1, MAX_SITE_DEPTH), Ordering::Relaxed);
    }

    pub(crate) fn site_depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    /// The tracker's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the calling process is the one that made the tracker.
    #[inline]
    pub fn is_own(&self) -> bool {
        #[cfg(feature = "std")]
        return self.process.is_current();
        #[cfg(not(feature = "std"))]
        true
    }

    /// The counters of a thread alone; `None` for callers without a number.
    pub(crate) fn own_lane(&self, thread: u32) -> Option<&ThreadLane<A>> {
        self.lanes.get_or_make((thread as usize).wrapping_sub(1), &self.gauges.memory)
    }

    /// The counters of a thread, or those of callers without a number.
    pub(crate) fn lane(&self, thread: u32) -> &ThreadLane<A> {
        self.own_lane(thread).unwrap_or(&self.shared)
    }

    /// The counters of a thread and a tag, where both are made and cost the least to find.
    #[inline(always)]
    fn made(&self, thread: u32, tag: Tag) -> Option<(&ThreadLane<A>, &Traffic)> {
        let lane = self.lanes.get_first((thread as usize).wrapping_sub(1))?;
        Some((lane, lane.made(tag)?))
    }

    /// An origin with a tag and a call stack: return addresses, innermost first.
    ///
    /// As many are kept as [`set_site_depth`](Self::set_site_depth) says.
    pub fn origin_of(&self, tag: Tag, stack: &[u64]) -> Origin {
        let kept = &stack[..stack.len().min(self.site_depth())];
        Origin { tag, site: if self.is_own() { self.sites.number_of(kept) } else { 0 } }
    }

    /// Counts an allocation, and records it if the mode says so.
    ///
    /// Returns what its free needs.
    /// `thread` is a small number, from 1 on, that no other thread uses at the same time, or 0 for none. `key` is the
    /// block's address, or any number that no other live block of this tracker has. `place` is an index of the places.
    #[inline]
    pub fn allocate_on(&self, thread: u32, origin: Origin, key: u64, bytes: u64, place: u8) -> Stamp {
        self.allocate_in(self.mode(), thread, origin, key, bytes, place)
    }

    /// As [`allocate_on`](Self::allocate_on), in a mode.
    ///
    /// The usual call ends here or in a tail call, so that it saves no registers.
    #[inline]
    pub(crate) fn allocate_in(
        &self,
        mode: TrackMode,
        thread: u32,
        origin: Origin,
        key: u64,
        bytes: u64,
        place: u8,
    ) -> Stamp {
        if mode == TrackMode::Counters
            && self.is_own()
            && let Some((lane, traffic)) = self.made(thread, origin.tag)
        {
            let is_due = lane.allocated_under(traffic, bytes, true);
            return if is_due { self.tell(lane, origin.tag) } else { Stamp::new(origin.tag, false) };
        }
        self.allocate_any(mode, thread, origin, key, bytes, place)
    }

    /// As [`allocate_in`](Self::allocate_in), in any case.
    #[inline(never)]
    fn allocate_any(&self, mode: TrackMode, thread: u32, origin: Origin, key: u64, bytes: u64, place: u8) -> Stamp {
        if mode == TrackMode::Off || !self.is_own() {
            return Stamp::NONE;
        }
        self.count_new(thread, origin.tag, bytes);
        if mode == TrackMode::Counters {
            return Stamp::new(origin.tag, false);
        }
        let born = self.time.now().as_nanos() as u64;
        let record = TrackRecord { key, id: 0, bytes, born, site: origin.site, tag: origin.tag, place };
        let kept = self.records.insert(record);
        match kept {
            // Its free was not told: an owner without stamps may free while it is looked away from.
            Ok(Some(older)) => self.count_old(thread, older.tag, older.bytes),
            Ok(None) => {}
            Err(()) => _ = self.unrecorded.fetch_add(1, Ordering::Relaxed),
        }
        Stamp::new(origin.tag, kept.is_ok())
    }

    /// Tells the gauges of a lane; returns the stamp of a block without a record.
    #[cold]
    fn tell(&self, lane: &ThreadLane<A>, tag: Tag) -> Stamp {
        lane.tell(tag, &self.gauges);
        Stamp::new(tag, false)
    }

    /// Counts a free, and removes the block's record.
    ///
    /// The caller must call it before other code can get the memory. Nothing happens for [`Stamp::NONE`].
    #[inline]
    pub fn free_on(&self, thread: u32, stamp: Stamp, key: u64, bytes: u64) {
        if stamp.is_none() || !self.is_own() {
            return;
        }
        if stamp.0 & Stamp::RECORDED == 0
            && let Some((lane, traffic)) = self.made(thread, stamp.tag())
        {
            if lane.freed_under(traffic, bytes, true) {
                lane.tell(stamp.tag(), &self.gauges);
            }
            return;
        }
        self.free_any(thread, stamp, key, bytes);
    }

    /// As [`free_on`](Self::free_on), of any block that was tracked.
    #[inline(never)]
    fn free_any(&self, thread: u32, stamp: Stamp, key: u64, bytes: u64) {
        self.count_old(thread, stamp.tag(), bytes);
        if stamp.0 & Stamp::RECORDED != 0 {
            self.records.remove(key);
        }
    }

    /// Counts an allocation; makes the thread's counters.
    pub(crate) fn count_new(&self, thread: u32, tag: Tag, bytes: u64) {
        match self.own_lane(thread) {
            Some(lane) => lane.allocated(tag, bytes, true, &self.gauges),
            None => self.shared.allocated(tag, bytes, false, &self.gauges),
        }
    }

    /// Counts a free; makes the thread's counters.
    pub(crate) fn count_old(&self, thread: u32, tag: Tag, bytes: u64) {
        match self.own_lane(thread) {
            Some(lane) => lane.freed(tag, bytes, true, &self.gauges),
            None => self.shared.freed(tag, bytes, false, &self.gauges),
        }
    }

    /// Counts a free by its key alone, for owners that keep no stamps; false if the key has no record.
    ///
    /// Finds what was allocated while records were kept, and leaves all else alone.
    pub fn free_key_on(&self, thread: u32, key: u64) -> bool {
        let record = if self.is_own() { self.records.remove(key) } else { None };
        if let Some(TrackRecord { tag, bytes, .. }) = record {
            self.count_old(thread, tag, bytes);
        }
        record.is_some()
    }

    /// Removes all records, and counts their blocks as freed.
    ///
    /// For owners that keep no stamps and switch off: frees that they do not tell of any more would leave records of
    /// blocks that are gone. A later [`free_key_on`](Self::free_key_on) of such a block finds nothing.
    ///
    /// # Example
    /// ```
    /// use terrace_track::{Origin, TrackMode, Tracker};
    /// let tracker = Tracker::new("heap", &["heap"]);
    /// tracker.set_mode(TrackMode::Records);
    /// let _ = tracker.allocate_on(1, Origin::default(), 0x1000, 64, 0);
    /// tracker.set_mode(TrackMode::Off);
    /// tracker.forget();
    /// assert!(tracker.live().is_empty() && !tracker.free_key_on(1, 0x1000));
    /// assert_eq!(tracker.total().live_bytes, 0);
    /// ```
    pub fn forget(&self) {
        if self.is_own() {
            self.records.drain(|record| self.shared.freed(record.tag, record.bytes, false, &self.gauges));
        }
    }

    /// Drops all records, and counts from zero: peaks are those from here on.
    ///
    /// For an owner that keeps no stamps, and did not tell of all frees so far. What threads count at the same moment may be
    /// counted before or after.
    pub fn restart(&self) {
        self.forget();
        // The gauge of no tag is made here at the latest: a thread that counts need not make it.
        for index in 0..self.used_tags().max(1) {
            if let Some(base) = self.bases.get_or_make(index, &self.gauges.memory) {
                base.take(self.counted(Some(index)));
            }
            if let Some(gauge) = self.gauges.tags.get_or_make(index, &self.gauges.memory) {
                gauge.restart();
            }
        }
        self.base.take(self.counted(None));
        self.gauges.total.restart();
    }

    /// The sums over all threads of what was ever counted: of a tag, or of all.
    fn counted(&self, tag: Option<usize>) -> [u64; 4] {
        self.lanes.iter().chain([&self.shared]).map(|lane| lane.read(tag)).fold([0; 4], sum)
    }

    /// The sums over all threads of a tag's counters, or of all tags', and the peak of live bytes.
    pub(crate) fn sums(&self, tag: Option<usize>) -> ([u64; 4], u64) {
        let base = tag.map_or(Some(&self.base), |tag| self.bases.get(tag));
        let counts = base.map_or([0; 4], Baseline::read);
        let counts = difference(self.counted(tag), counts);
        let gauge = tag.map_or(Some(&self.gauges.total), |tag| self.gauges.tags.get(tag));
        (counts, gauge.map_or(0, PeakGauge::peak))
    }

    /// One more than the highest index of a tag that was used.
    pub(crate) fn used_tags(&self) -> usize {
        self.lanes.iter().chain([&self.shared]).map(ThreadLane::used_tags).max().unwrap_or(0)
    }
}

impl<A: Allocator + Clone> fmt::Debug for Tracker<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracker").field("name", &self.name).field("mode", &self.mode()).finish_non_exhaustive()
    }
}
