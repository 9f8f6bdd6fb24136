//! Live blocks in groups: the same tag, place and call stack.
//!
//! Promises upward: every block of the list is in one group; a table that stays short, however many blocks are live.
//! Asks from below: the list.

use crate::list::{LiveList, StackFrame, printable, width};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::time::Duration;

/// Most groups that are printed; the rest is one line.
const PRINTED: usize = 20;

/// Live blocks with one tag, location and call stack; where no call stack is known, also of one size.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LiveGroup {
    /// Number of blocks.
    pub blocks: u64,
    /// Sum of their sizes in bytes.
    pub bytes: u64,
    /// Age of the oldest.
    pub oldest: Duration,
    /// Name of their tag; empty for none.
    pub tag: String,
    /// Where they are.
    pub location: String,
    /// The calls that led to each, innermost first; may be empty.
    pub stack: Vec<StackFrame>,
}

/// The groups of a list, those with the most bytes first.
///
/// Prints as a table of the first 20 groups, and a line for the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LiveGroups {
    /// Name of the tracker.
    pub name: String,
    /// The groups.
    pub groups: Vec<LiveGroup>,
    /// Number of allocations that could not be recorded for lack of memory, since the tracker was made.
    pub unrecorded: u64,
}

impl LiveList {
    /// The blocks in groups of one tag, location and call stack, the largest first. O(n log n).
    ///
    /// # Example
    /// ```
    /// use terrace_track::{TrackMode, Tracker};
    ///
    /// let tracker = Tracker::new("pool", &["device 0"]);
    /// tracker.set_mode(TrackMode::Records);
    /// let stamps = [1, 2, 3].map(|key| tracker.allocated(key << 12, 256, 0));
    /// let groups = tracker.live().groups();
    /// assert_eq!((groups.groups.len(), groups.groups[0].blocks, groups.groups[0].bytes), (1, 3, 768));
    /// println!("{groups}");
    /// # (1..).zip(stamps).for_each(|(key, stamp)| tracker.freed(stamp, key << 12, 256));
    /// ```
    pub fn groups(&self) -> LiveGroups {
        let mut groups = BTreeMap::new();
        for block in &self.blocks {
            let stack: Vec<_> = block.stack.iter().map(|frame| (&frame.file, frame.offset)).collect();
            let size = if stack.is_empty() { block.bytes } else { 0 };
            let group = groups.entry((&block.tag, &block.location, stack, size)).or_insert_with(|| LiveGroup {
                blocks: 0,
                bytes: 0,
                oldest: Duration::ZERO,
                tag: block.tag.clone(),
                location: block.location.clone(),
                stack: block.stack.clone(),
            });
            group.blocks += 1;
            group.bytes = group.bytes.saturating_add(block.bytes);
            group.oldest = group.oldest.max(block.age);
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|group| (Reverse(group.bytes), Reverse(group.blocks)));
        LiveGroups { name: self.name.clone(), groups, unrecorded: self.unrecorded }
    }
}

/// Blocks and bytes of groups.
fn sum(groups: &[LiveGroup]) -> (u64, u64) {
    groups.iter().fold((0, 0), |(blocks, bytes), group| (blocks + group.blocks, group.bytes.saturating_add(bytes)))
}

impl fmt::Display for LiveGroups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (blocks, bytes) = sum(&self.groups);
        let noun = if blocks == 1 { "block" } else { "blocks" };
        write!(f, "{}: {blocks} live {noun}, {bytes} bytes", printable(&self.name, 0))?;
        if self.unrecorded > 0 {
            write!(f, "; no memory to record {} more", self.unrecorded)?;
        }
        writeln!(f)?;
        let (shown, rest) = self.groups.split_at(self.groups.len().min(PRINTED));
        if shown.is_empty() {
            return Ok(());
        }
        let tags = width("tag", shown.iter().map(|group| &*group.tag));
        let places = width("location", shown.iter().map(|group| &*group.location));
        writeln!(f, "{:>15} {:>12} {:>12}  {:tags$}  {:places$}", "bytes", "blocks", "oldest", "tag", "location")?;
        for group in shown {
            let (tag, place) = (printable(&group.tag, tags), printable(&group.location, places));
            let (bytes, blocks, oldest) = (group.bytes, group.blocks, group.oldest.as_secs_f64());
            writeln!(f, "{bytes:>15} {blocks:>12} {oldest:>11.3}s  {tag}  {place}")?;
            group.stack.iter().try_for_each(|frame| writeln!(f, "{:>15} {frame}", "at"))?;
        }
        if !rest.is_empty() {
            let (blocks, bytes) = sum(rest);
            writeln!(f, "{bytes:>15} {blocks:>12}  in {} more groups", rest.len())?;
        }
        Ok(())
    }
}
