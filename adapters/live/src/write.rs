//! The writer of one row.
//!
//! Promises upward: a reader never takes a row that is half old and half new; a write is some thirty stores, without a lock or a call
//! of the system.
//! Asks from below: the words of [`layout`](crate::layout). One thread of the owner writes a row at a time.
//!
//! Each row has an owner and a sequence of its own, so that processes which inherited one page (a program and the programs it
//! starts) write side by side. A row whose owner ended keeps its last figures until another process needs the row.

use crate::layout::{CounterPage, ENDED, FIGURES, Figures, KIND, NAME, NAME_BYTES, NUMBERS, OWNER, RowKind};
use crate::layout::{SEQUENCE, WRITTEN, Words};
use crate::sequence;
use core::sync::atomic::{Ordering::AcqRel, Ordering::Relaxed, Ordering::Release};

/// What a row says.
#[derive(Clone, Copy, Debug)]
pub struct RowValues<'a> {
    /// What the row speaks of.
    pub kind: RowKind,
    /// Its name, of which the first 48 bytes are kept; UTF-8 where a person is to read it.
    pub name: &'a [u8],
    /// Time of the write: milliseconds of the system's monotonic clock.
    pub written: u64,
    /// Whether the owner ends, and this is its last word.
    pub ended: bool,
    /// The figures.
    pub figures: Figures,
}

/// The right to write one row.
#[derive(Clone, Copy, Debug)]
pub struct RowWriter<'a> {
    words: &'a Words,
    index: usize,
}

impl<'a> CounterPage<'a> {
    /// Takes a row for process `owner`: a free one, else one whose owner ended.
    ///
    /// `None`: every row has a living owner. O(rows).
    pub fn claim(&self, owner: u32) -> Option<RowWriter<'a>> {
        let claimed =
            |from: u64, words: &Words| words[OWNER].compare_exchange(from, u64::from(owner), AcqRel, Relaxed).is_ok();
        let free = self.rows().position(|words| claimed(0, words));
        let index = free.or_else(|| {
            self.rows().position(|words| {
                let before = words[OWNER].load(Relaxed);
                words[KIND].load(Relaxed) & ENDED != 0 && claimed(before, words)
            })
        })?;
        self.writer(index)
    }

    /// Takes the row that process `owner` has, or else claims one.
    ///
    /// A process that executes another program keeps its number, and says nothing more in its row.
    pub fn claim_only(&self, owner: u32) -> Option<RowWriter<'a>> {
        let own = self.rows().position(|words| words[OWNER].load(Relaxed) == u64::from(owner));
        own.and_then(|index| self.writer(index)).or_else(|| self.claim(owner))
    }

    /// The writer of a row, for the caller that claimed it; `None` beyond the last row.
    pub fn writer(&self, index: usize) -> Option<RowWriter<'a>> {
        Some(RowWriter { words: self.row(index)?, index })
    }
}

impl RowWriter<'_> {
    /// The row's number in its page.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The process that owns the row.
    pub fn owner(&self) -> u32 {
        self.words[OWNER].load(Relaxed) as u32
    }

    /// Writes the row.
    pub fn write(&self, values: &RowValues<'_>) {
        let mut name = [0; NAME_BYTES];
        let kept = values.name.len().min(NAME_BYTES);
        for (to, from) in name.iter_mut().zip(values.name.iter().take(kept)) {
            *to = *from;
        }
        self.change(|words| {
            words[KIND].store(values.kind as u64 | if values.ended { ENDED } else { 0 }, Relaxed);
            words[WRITTEN].store(values.written, Relaxed);
            let (pieces, _) = name.as_chunks::<8>();
            for (word, piece) in words.iter().skip(NAME).zip(pieces) {
                word.store(u64::from_le_bytes(*piece), Relaxed);
            }
            for (word, figure) in words.iter().skip(NUMBERS).take(FIGURES).zip(values.figures.0) {
                word.store(figure, Relaxed);
            }
        });
    }

    /// Gives the row up: readers do not see it any more, and another owner may claim it.
    pub fn release(self) {
        self.change(|words| words[KIND].store(0, Relaxed));
        self.words[OWNER].store(0, Release);
    }

    /// Changes the row while its sequence is odd.
    fn change(&self, change: impl FnOnce(&Words)) {
        sequence::write(&self.words[SEQUENCE], || change(self.words));
    }
}
