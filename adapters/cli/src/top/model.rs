//! What is shown: the rows of the last frame, what changed since the one before, and the bytes in use over time.
//!
//! Promises upward: rates are of one row between its last two writes that were seen; a row that is new has none. Nothing here panics, whatever the figures.
//! Asks from below: frames.

use super::columns::Column;
use crate::output::escape;
use std::collections::VecDeque;
use terrace_live::{Figure, LiveFrame, LiveRow, RowKind};

/// The most points of the curve: no terminal is wider.
const POINTS: usize = 512;

/// A row as it is shown.
#[derive(Clone, Debug)]
pub struct TopRow {
    /// The row.
    pub row: LiveRow,
    /// Its name, without control characters.
    pub name: String,
    /// Allocations a second since the frame before.
    pub allocations: Option<f64>,
    /// Growth of the bytes in use, in bytes a second, since the frame before.
    pub growth: Option<f64>,
}

impl TopRow {
    /// A figure of the row.
    pub fn get(&self, figure: Figure) -> Option<u64> {
        self.row.figures.get(figure)
    }

    /// Share of requests that were hits.
    pub fn hit_rate(&self) -> Option<f64> {
        let (hits, misses) = (self.get(Figure::Hits)? as f64, self.get(Figure::Misses)? as f64);
        (hits + misses > 0.0).then(|| hits / (hits + misses))
    }

    /// Share of the free memory that the largest request which fits cannot have.
    pub fn fragmentation(&self) -> Option<f64> {
        let free = self.get(Figure::Reserved)?.checked_sub(self.get(Figure::InUse)?).filter(|&free| free > 0)?;
        Some(1.0 - (self.get(Figure::LargestFree)? as f64 / free as f64).min(1.0))
    }
}

/// Sums over the rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TopTotals {
    /// Bytes in use.
    pub in_use: u64,
    /// Bytes reserved.
    pub reserved: u64,
    /// The greatest limit: control groups' limits are of all programs in them.
    pub limit: Option<u64>,
    /// The highest pressure.
    pub pressure: u64,
}

/// What is shown.
#[derive(Debug)]
pub struct TopModel {
    /// The last frame.
    pub frame: Option<LiveFrame>,
    /// When the first frame was read, in milliseconds.
    first: u64,
    rows: Vec<TopRow>,
    /// Bytes in use at each frame, the last one last.
    pub curve: VecDeque<u64>,
    /// What the rows are sorted by.
    pub sort: Column,
    /// Whether the order is reversed.
    pub reverse: bool,
    /// Whether frames are ignored.
    pub paused: bool,
}

impl TopModel {
    /// Nothing yet; the largest rows will come first.
    pub fn new() -> Self {
        let (frame, rows, curve) = (None, Vec::new(), VecDeque::new());
        Self { frame, first: 0, rows, curve, sort: Column::InUse, reverse: false, paused: false }
    }

    /// Takes a frame, unless paused.
    pub fn take(&mut self, frame: LiveFrame) {
        if self.paused {
            return;
        }
        if self.frame.is_none() {
            self.first = frame.read;
        }
        let old = |row: &LiveRow| {
            let key = |row: &LiveRow| (row.kind, row.owner, row.name().to_string());
            self.rows.iter().find(|old| key(&old.row) == key(row))
        };
        self.rows = frame.rows.iter().map(|row| shown(row, old(row))).collect();
        if self.curve.len() == POINTS {
            self.curve.pop_front();
        }
        self.frame = Some(frame);
        self.curve.push_back(self.totals().in_use);
    }

    /// The rows in order, those of processes that ended last.
    pub fn rows(&self) -> Vec<&TopRow> {
        let mut rows: Vec<_> = self.rows.iter().collect();
        rows.sort_by(|a, b| self.sort.compare(a, b));
        if self.reverse {
            rows.reverse();
        }
        rows.sort_by_key(|row| row.row.ended);
        rows
    }

    /// Milliseconds from the first frame to the last.
    pub fn elapsed(&self) -> u64 {
        self.frame.as_ref().map_or(0, |frame| frame.read.saturating_sub(self.first))
    }

    /// Sums over programs; where no row is a program's, over all but tags.
    ///
    /// The bytes of tags are in other rows.
    pub fn totals(&self) -> TopTotals {
        let programs = self.rows.iter().any(|row| row.row.kind == RowKind::Program);
        let counts = |row: &&TopRow| {
            !row.row.ended && if programs { row.row.kind == RowKind::Program } else { row.row.kind != RowKind::Tag }
        };
        let add = |totals: TopTotals, row: &TopRow| TopTotals {
            in_use: totals.in_use.saturating_add(row.get(Figure::InUse).unwrap_or(0)),
            reserved: totals.reserved.saturating_add(row.get(Figure::Reserved).unwrap_or(0)),
            limit: totals.limit.max(row.get(Figure::Limit)),
            pressure: totals.pressure.max(row.get(Figure::Pressure).unwrap_or(0)),
        };
        self.rows.iter().filter(counts).fold(TopTotals::default(), add)
    }
}

/// A row beside the same row of the frame before.
fn shown(row: &LiveRow, before: Option<&TopRow>) -> TopRow {
    if let Some(old) = before.filter(|old| old.row.written == row.written) {
        // Not written again since: the rates are those of the last write.
        return TopRow { row: *row, ..old.clone() };
    }
    let rate = |figure| {
        let old = before?.row;
        let seconds = row.written.checked_sub(old.written).filter(|&time| time > 0)? as f64 / 1000.0;
        Some((row.figures.get(figure)? as f64 - old.figures.get(figure)? as f64) / seconds)
    };
    let name = escape(row.name());
    TopRow { row: *row, name, allocations: rate(Figure::Allocations), growth: rate(Figure::InUse) }
}
