//! The reader of a page: what a hostile or dying writer leaves there is an error or a missing row, never a panic.
//!
//! Promises upward: each row of a frame was whole at one moment; at most [`TRIES`] attempts a row.
//! Asks from below: the words of [`layout`](crate::layout).

use crate::layout::{CounterPage, ENDED, FIGURES, Figures, KIND, NAME, NAME_BYTES, NUMBERS, OWNER, RowKind};
use crate::layout::{SEQUENCE, WRITTEN, Words};
use crate::sequence;
use core::sync::atomic::Ordering::Relaxed;

/// Attempts at a row that its owner keeps changing.
///
/// A write takes some 20 ns, so that a living owner is in the way of one or two.
pub const TRIES: usize = 64;

/// One row, as it was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveRow {
    /// What the row speaks of.
    pub kind: RowKind,
    /// The process that wrote the row.
    pub owner: u32,
    /// Whether that process said that it ended.
    pub ended: bool,
    /// Time of the last write: milliseconds of the system's monotonic clock.
    pub written: u64,
    /// The figures.
    pub figures: Figures,
    name: [u8; NAME_BYTES],
}

impl LiveRow {
    /// The name, up to the first byte that is no UTF-8, or 0; control characters may be in it.
    pub fn name(&self) -> &str {
        let end = self.name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        let bytes = self.name.get(..end).unwrap_or_default();
        match core::str::from_utf8(bytes) {
            Ok(name) => name,
            Err(error) => {
                bytes.get(..error.valid_up_to()).and_then(|bytes| core::str::from_utf8(bytes).ok()).unwrap_or_default()
            }
        }
    }
}

/// What reading a row gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowRead {
    /// The row has no owner, or none that wrote yet.
    Empty,
    /// The row changed during every attempt, or its owner was killed inside a write.
    Torn,
    /// The row's kind is none of this version.
    Unknown,
    /// The row.
    Row(LiveRow),
}

impl CounterPage<'_> {
    /// Reads one row; rows beyond the last are empty.
    pub fn read(&self, index: usize) -> RowRead {
        let Some(words) = self.row(index) else { return RowRead::Empty };
        sequence::read(&words[SEQUENCE], TRIES, || copy(words)).unwrap_or(RowRead::Torn)
    }
}

/// Copies a row, which may change meanwhile.
fn copy(words: &Words) -> RowRead {
    let kind = words[KIND].load(Relaxed);
    if kind == 0 {
        return RowRead::Empty;
    }
    let known = RowKind::ALL.into_iter().find(|known| *known as u64 == kind & !ENDED);
    let Some(known) = known else { return RowRead::Unknown };
    let mut name = [0; NAME_BYTES];
    let (pieces, _) = name.as_chunks_mut::<8>();
    for (piece, word) in pieces.iter_mut().zip(words.iter().skip(NAME)) {
        *piece = word.load(Relaxed).to_le_bytes();
    }
    let mut figures = [0; FIGURES];
    for (figure, word) in figures.iter_mut().zip(words.iter().skip(NUMBERS)) {
        *figure = word.load(Relaxed);
    }
    RowRead::Row(LiveRow {
        kind: known,
        owner: words[OWNER].load(Relaxed) as u32,
        ended: kind & ENDED != 0,
        written: words[WRITTEN].load(Relaxed),
        figures: Figures(figures),
        name,
    })
}
