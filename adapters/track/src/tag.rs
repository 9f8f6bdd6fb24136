//! Tags: names for what memory is used for, one set for the whole process.
//!
//! Promises upward: a name has one tag as long as the process lives; a tag costs two bytes in a record.
//! Asks from below: memory for the names, which is never given back; there are few of them.

use crate::growing::MOST;
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use spin::mutex::SpinMutex;

/// Most bytes of a tag's name; the rest of a longer name is cut off.
pub const MAX_TAG_BYTES: usize = 128;

/// A name for what memory is used for.
///
/// # Example
/// ```
/// use terrace_track::Tag;
/// assert_eq!(Tag::new("kv-cache"), Tag::new("kv-cache"));
/// assert_eq!(Tag::new("kv-cache").name(), "kv-cache");
/// assert_eq!(Tag::NONE.name(), "");
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(u16);

/// The names of all tags.
struct TagNames {
    /// Each at the index of its tag less one.
    names: Vec<&'static str>,
    tags: BTreeMap<&'static str, Tag>,
}

static NAMES: SpinMutex<TagNames> = SpinMutex::new(TagNames { names: Vec::new(), tags: BTreeMap::new() });

impl Tag {
    /// No tag; its name is empty.
    pub const NONE: Self = Self(0);

    /// The tag of all names beyond the first 4094.
    pub const OTHER: Self = Self(MOST as u16 - 1);

    /// The tag of a name. Names the tag if it is new; O(log n) in the number of tags.
    ///
    /// An empty name is [`Tag::NONE`]. Of a name longer than [`MAX_TAG_BYTES`] the beginning counts.
    pub fn new(name: &str) -> Self {
        let name = &name[..name.floor_char_boundary(MAX_TAG_BYTES)];
        if name.is_empty() {
            return Self::NONE;
        }
        {
            let all = NAMES.lock();
            let is_full = all.names.len() + 1 >= usize::from(Self::OTHER.0);
            if let Some(tag) = all.tags.get(name).copied().or(is_full.then_some(Self::OTHER)) {
                return tag;
            }
        }
        let kept = Box::leak(name.to_owned().into_boxed_str());
        let mut all = NAMES.lock();
        // Another thread may have named it in the meantime; then `kept` stays unused.
        if let Some(tag) = all.tags.get(name) {
            return *tag;
        }
        let number = all.names.len() as u16 + 1;
        if number >= Self::OTHER.0 {
            return Self::OTHER;
        }
        all.names.push(kept);
        all.tags.insert(kept, Self(number));
        Self(number)
    }

    /// The tag's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::NONE => "",
            Self::OTHER => "(other tags)",
            Self(number) => NAMES.lock().names.get(usize::from(number) - 1).copied().unwrap_or(""),
        }
    }

    /// The tag's index in tables of a tracker.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// The tag at an index of a tracker's tables.
    pub(crate) fn at(index: usize) -> Self {
        Self(index as u16)
    }

    /// The tag as a number.
    pub(crate) fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tag({:?})", self.name())
    }
}
