//! Tags and call sites, which events name by a number: their id.
//!
//! Promises upward: ids count up from 1 in the order of first use; 0 is the empty text. Memory stays below
//! [`TEXTS_MAX`].
//! Asks from below: nothing.

use super::error::Problem;
use std::collections::HashMap;
use std::sync::Arc;
use terrace_core::event::TEXT_MAX;

/// Largest memory that texts may take: 64 MiB, with `OVERHEAD` bytes counted for each text.
///
/// Some 840,000 tags of 16 bytes fit.
pub const TEXTS_MAX: usize = 64 << 20;
/// Bytes that a text takes beside its characters: a map entry (24), a list entry (16), counts and slack.
const OVERHEAD: usize = 64;

/// A table of texts by id.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    ids: HashMap<Arc<str>, u32>,
    /// `texts[i]` has id `i + 1`.
    texts: Vec<Arc<str>>,
    bytes: usize,
}

impl Texts {
    /// The id of a text, which is added if it is new; 0 for the empty text. O(length).
    ///
    /// # Errors
    /// [`Problem::LongLine`] above [`TEXT_MAX`] bytes, [`Problem::TooManyTexts`] above [`TEXTS_MAX`] in all.
    pub fn intern(&mut self, text: &str) -> Result<u32, Problem> {
        if text.is_empty() {
            return Ok(0);
        }
        match self.ids.get(text) {
            Some(&id) => Ok(id),
            None => self.add(text),
        }
    }

    /// Appends a text with the next id, even if the text is known already (a recording may define it twice).
    pub(super) fn add(&mut self, text: &str) -> Result<u32, Problem> {
        if text.len() > TEXT_MAX {
            return Err(Problem::LongLine);
        }
        self.bytes += text.len() + OVERHEAD;
        if self.bytes > TEXTS_MAX {
            return Err(Problem::TooManyTexts);
        }
        let text: Arc<str> = text.into();
        self.texts.push(text.clone());
        // At most TEXTS_MAX / OVERHEAD = 2^20 texts fit, far below 2^32.
        let id = self.texts.len() as u32;
        self.ids.insert(text, id);
        Ok(id)
    }

    /// The text of an id; empty for 0, `None` for an unknown id.
    pub fn get(&self, id: u32) -> Option<&str> {
        match id {
            0 => Some(""),
            id => self.texts.get(id as usize - 1).map(|text| &**text),
        }
    }

    /// Number of texts, which is also the largest id.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether the table has no texts.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }
}
