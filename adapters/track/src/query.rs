//! What a tracker tells: live blocks, old ones, counters by tag.
//!
//! Promises upward: no call waits for the owner of a block, and a forked child gets empty lists.
//! Asks from below: the tracker's tables, each part of which is read at one moment.

use crate::list::{LiveList, TrackedBlock};
use crate::records::TrackRecord;
use crate::summary::{TagStats, TagTable};
use crate::tag::Tag;
use crate::tracker::Tracker;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use allocator_api2::alloc::Allocator;
use core::cmp::Reverse;
use core::sync::atomic::Ordering;
use core::time::Duration;

impl<A: Allocator + Clone> Tracker<A> {
    /// All recorded blocks that are live, oldest first. O(n log n).
    pub fn live(&self) -> LiveList {
        self.find_older_than(Duration::ZERO)
    }

    /// The recorded blocks that were allocated at least so long ago, oldest first.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use terrace_track::{TrackMode, Tracker};
    ///
    /// let tracker = Tracker::new("pool", &["device 0"]);
    /// tracker.set_mode(TrackMode::Records);
    /// let stamp = tracker.allocated(0x4000, 256, 0);
    /// assert!(tracker.find_older_than(Duration::from_secs(60)).is_empty());
    /// println!("{}", tracker.live());
    /// tracker.freed(stamp, 0x4000, 256);
    /// assert!(tracker.live().is_empty());
    /// ```
    pub fn find_older_than(&self, age: Duration) -> LiveList {
        let mut list = LiveList {
            name: self.name.clone(),
            blocks: Vec::new(),
            resolution: self.time.resolution(),
            unrecorded: self.unrecorded.load(Ordering::Relaxed),
        };
        if !self.is_own() {
            return list;
        }
        let now = self.time.now().as_nanos() as u64;
        let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let records = self.records.collect(|record| now.saturating_sub(record.born) >= age);
        // Blocks share few call stacks and tags.
        let mut stacks = BTreeMap::new();
        #[cfg(feature = "std")]
        let mut files = None;
        list.blocks.extend(records.iter().map(|record| {
            #[cfg(feature = "std")]
            let stack = stacks.entry(record.site).or_insert_with(|| {
                let files = files.get_or_insert_with(crate::loaded::loaded_files);
                self.sites.stack(record.site).into_iter().map(|at| crate::loaded::frame_of(files, at)).collect()
            });
            #[cfg(not(feature = "std"))]
            let stack = stacks.entry(record.site).or_insert_with(|| {
                let frame = |offset| crate::StackFrame { build_id: None, file: None, offset };
                self.sites.stack(record.site).into_iter().map(frame).collect()
            });
            let stack: &Vec<_> = stack;
            self.block(record, now, stack.clone())
        }));
        list.sort_by_age();
        list
    }

    /// The age of the oldest recorded block of each tag that has one, by the tag's name. O(records + tags).
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use terrace_track::{TrackMode, Tracker, tag};
    ///
    /// let tracker = Tracker::with_clock("pool", &["device 0"], Box::new(|| Duration::from_secs(60)));
    /// tracker.set_mode(TrackMode::Records);
    /// let _tag = tag("weights");
    /// let stamp = tracker.allocated(0x4000, 256, 0);
    /// assert_eq!(tracker.oldest_by_tag().get("weights"), Some(&Duration::ZERO));
    /// tracker.freed(stamp, 0x4000, 256);
    /// assert!(tracker.oldest_by_tag().is_empty());
    /// ```
    pub fn oldest_by_tag(&self) -> BTreeMap<&'static str, Duration> {
        // Memory is asked for before the locks are taken: the allocator may be one that this tracker watches.
        let mut births = alloc::vec![u64::MAX; self.used_tags()];
        if self.is_own() {
            self.records.visit(|record| {
                if let Some(born) = births.get_mut(record.tag.index()) {
                    *born = record.born.min(*born);
                }
            });
        }
        let now = self.time.now().as_nanos() as u64;
        let found = births.into_iter().enumerate().filter(|(_, born)| *born != u64::MAX);
        found.map(|(at, born)| (Tag::at(at).name(), Duration::from_nanos(now.saturating_sub(born)))).collect()
    }

    fn block(&self, record: &TrackRecord, now: u64, stack: Vec<crate::StackFrame>) -> TrackedBlock {
        let recorded = || self.places.get(usize::from(record.place)).cloned().unwrap_or_default();
        let location = self.locate.as_ref().and_then(|locate| locate(record.key)).unwrap_or_else(recorded);
        let age = Duration::from_nanos(now.saturating_sub(record.born));
        let (id, key, bytes) = (record.id, record.key, record.bytes);
        TrackedBlock { id, key, bytes, age, tag: String::from(record.tag.name()), location, stack }
    }

    /// Counters of all tags, those with the most live bytes first.
    ///
    /// # Example
    /// ```
    /// use terrace_track::{TrackMode, Tracker, tag};
    ///
    /// let tracker = Tracker::new("pool", &["device 0"]);
    /// tracker.set_mode(TrackMode::Counters);
    /// let _tag = tag("activations");
    /// let stamp = tracker.allocated(0x4000, 256, 0);
    /// tracker.freed(stamp, 0x4000, 256);
    /// let counted = tracker.by_tag();
    /// assert_eq!(counted.get("activations").map(|stats| (stats.frees, stats.live_bytes)), Some((1, 0)));
    /// println!("{counted}");
    /// ```
    pub fn by_tag(&self) -> TagTable {
        let stats = |index: usize| {
            let (counts, peak) = self.sums(Some(index));
            (counts[0] > 0).then(|| TagStats::new(Tag::at(index).name(), counts, peak))
        };
        let mut tags: Vec<TagStats> = (0..self.used_tags()).filter_map(stats).collect();
        tags.sort_by(|a, b| (Reverse(a.live_bytes), &a.tag).cmp(&(Reverse(b.live_bytes), &b.tag)));
        TagTable { name: self.name.clone(), tags, total: self.total() }
    }

    /// Counters of all tags together.
    pub fn total(&self) -> TagStats {
        let (counts, peak) = self.sums(None);
        TagStats::new("", counts, peak)
    }

    /// Number of live blocks that have a record.
    pub fn recorded(&self) -> usize {
        if self.is_own() { self.records.len() } else { 0 }
    }
}
