//! Lists of live blocks, as people and programs read them.
//!
//! Promises upward: plain values that own all they name; a table that fits a terminal.
//! Asks from below: nothing.

use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::time::Duration;

/// One live block.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct TrackedBlock {
    /// Unique among all blocks that the tracker ever recorded.
    pub id: u64,
    /// Address of the block, or the number by which its owner knows it.
    pub key: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Time since it was allocated.
    pub age: Duration,
    /// Name of the tag that its thread had; empty for none.
    pub tag: String,
    /// Where its bytes are now, such as `device 0`.
    pub location: String,
    /// The calls that led to the allocation, innermost first; empty unless call sites were recorded.
    pub stack: Vec<StackFrame>,
}

/// One call: an address that means the same in every run of the same build.
///
/// Without access to the process: `addr2line -e FILE OFFSET`, or `llvm-symbolizer --build-id BUILD_ID OFFSET`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct StackFrame {
    /// Hexadecimal digits of the build id of the program or library; `None` if it has none.
    pub build_id: Option<String>,
    /// Path of the program or library, as the system loaded it; `None` if it is not loaded any more.
    pub file: Option<String>,
    /// Address of the call in the file's own address space; in memory, where the file is not known.
    pub offset: u64,
}

impl fmt::Display for StackFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.build_id {
            Some(id) => write!(f, "{id}+{:#x}", self.offset)?,
            None => write!(f, "{:#x}", self.offset)?,
        }
        match &self.file {
            Some(file) => write!(f, " ({file})"),
            None => Ok(()),
        }
    }
}

/// Live blocks at one moment, oldest first unless sorted otherwise.
///
/// Prints as a table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LiveList {
    /// Name of the tracker.
    pub name: String,
    /// The blocks.
    pub blocks: Vec<TrackedBlock>,
    /// The step by which ages grow; zero where that is not known.
    pub resolution: Duration,
    /// Number of allocations that could not be recorded for lack of memory, since the tracker was made.
    pub unrecorded: u64,
}

impl LiveList {
    /// Sum of the blocks' sizes in bytes.
    pub fn bytes(&self) -> u64 {
        self.blocks.iter().fold(0, |sum, block| sum.saturating_add(block.bytes))
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Sorts the oldest first.
    pub fn sort_by_age(&mut self) {
        self.blocks.sort_by_key(|block| (Reverse(block.age), block.id));
    }

    /// Sorts the largest first.
    pub fn sort_by_bytes(&mut self) {
        self.blocks.sort_by_key(|block| (Reverse(block.bytes), Reverse(block.age), block.id));
    }

    /// Sorts by tag; the oldest of each tag first.
    pub fn sort_by_tag(&mut self) {
        self.blocks.sort_by(|a, b| (&a.tag, Reverse(a.age), a.id).cmp(&(&b.tag, Reverse(b.age), b.id)));
    }

    /// Sorts by location; the oldest of each location first.
    pub fn sort_by_location(&mut self) {
        self.blocks.sort_by(|a, b| (&a.location, Reverse(a.age), a.id).cmp(&(&b.location, Reverse(b.age), b.id)));
    }
}

/// Called with what is still live at the end: on any thread, and maybe after `main` has returned.
#[cfg(feature = "std")]
pub type LeakReport = alloc::boxed::Box<dyn FnOnce(&LiveList) + Send>;

/// Text without control characters, as wide as asked at least.
struct Printable<'a>(&'a str, usize);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text: String = self.0.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        write!(f, "{text:width$}", width = self.1)
    }
}

/// A name in a table: control characters, which could move a terminal's cursor, are replaced.
pub(crate) fn printable(text: &str, width: usize) -> impl fmt::Display + '_ {
    Printable(text, width)
}

/// The width of a column of names.
pub(crate) fn width<'a>(title: &str, names: impl Iterator<Item = &'a str>) -> usize {
    names.map(|name| name.chars().count()).fold(title.len(), usize::max)
}

impl fmt::Display for LiveList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, bytes) = (self.blocks.len(), self.bytes());
        let blocks = if count == 1 { "block" } else { "blocks" };
        write!(f, "{}: {count} live {blocks}, {bytes} bytes", printable(&self.name, 0))?;
        if !self.resolution.is_zero() {
            write!(f, "; ages in steps of {:?}", self.resolution)?;
        }
        if self.unrecorded > 0 {
            write!(f, "; no memory to record {} more", self.unrecorded)?;
        }
        writeln!(f)?;
        if self.blocks.is_empty() {
            return Ok(());
        }
        let tags = width("tag", self.blocks.iter().map(|block| &*block.tag));
        let places = width("location", self.blocks.iter().map(|block| &*block.location));
        writeln!(f, "{:>12} {:>15}  {:tags$}  {:places$}  {:>18}  id", "age", "bytes", "tag", "location", "address")?;
        for block in &self.blocks {
            let (tag, place) = (printable(&block.tag, tags), printable(&block.location, places));
            let age = block.age.as_secs_f64();
            writeln!(f, "{age:>11.3}s {:>15}  {tag}  {place}  {:>#18x}  {}", block.bytes, block.key, block.id)?;
            block.stack.iter().try_for_each(|frame| writeln!(f, "{:>12} {frame}", "at"))?;
        }
        Ok(())
    }
}
