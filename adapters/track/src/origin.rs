//! For what, and from where, memory is asked for.
//!
//! Promises upward: eight bytes, which the caller passes on until the memory is found.
//! Asks from below: tags; numbers of call stacks.

use crate::tag::Tag;

/// For what, and from where, a caller asks for memory.
///
/// Taken where the caller asks, used where the memory is found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    pub(crate) tag: Tag,
    /// Number of the call stack; zero for none.
    pub(crate) site: u32,
}

impl Origin {
    /// An origin with a tag, and without a call stack.
    pub fn of(tag: Tag) -> Self {
        Self { tag, site: 0 }
    }

    /// For what memory is asked.
    pub fn tag(self) -> Tag {
        self.tag
    }

    /// Number of the call stack among those of the tracker; zero for none.
    pub fn site(self) -> u32 {
        self.site
    }
}
