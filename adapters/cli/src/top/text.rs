//! One frame as text and as JSON.

use super::columns::{Column, level_name};
use super::model::{TopModel, TopRow};
use crate::failure::Failure;
use crate::output::{format_bytes, json};
use serde::Serialize;
use terrace_live::Figure;

/// A frame. The field names are the JSON keys.
#[derive(Debug, Serialize)]
struct FrameReport {
    /// Version of this command.
    terrace: &'static str,
    elapsed_ms: u64,
    in_use_bytes: u64,
    reserved_bytes: u64,
    limit_bytes: Option<u64>,
    pressure: &'static str,
    rows: Vec<RowReport>,
    /// Rows that could not be read: their writer was killed inside a write, or is of a newer version.
    unreadable_rows: usize,
}

/// A row of a frame; `null` where its source does not know the figure.
#[derive(Debug, Serialize)]
struct RowReport {
    kind: &'static str,
    name: String,
    pid: u32,
    ended: bool,
    /// Time from the row's last write to the frame.
    age_ms: u64,
    in_use_bytes: Option<u64>,
    cached_bytes: Option<u64>,
    reserved_bytes: Option<u64>,
    peak_reserved_bytes: Option<u64>,
    dirty_bytes: Option<u64>,
    limit_bytes: Option<u64>,
    live_blocks: Option<u64>,
    allocations: Option<u64>,
    frees: Option<u64>,
    allocations_per_s: Option<f64>,
    growth_bytes_per_s: Option<f64>,
    hits: Option<u64>,
    misses: Option<u64>,
    hit_rate: Option<f64>,
    fragmentation: Option<f64>,
    largest_free_bytes: Option<u64>,
    pressure: Option<&'static str>,
    oldest_live_ms: Option<u64>,
    purged_bytes: Option<u64>,
    moved_bytes: Option<u64>,
}

/// The frame as JSON.
pub fn frame_json(model: &TopModel) -> Result<String, Failure> {
    let totals = model.totals();
    let read = model.frame.as_ref().map_or(0, |frame| frame.read);
    json(&FrameReport {
        terrace: env!("CARGO_PKG_VERSION"),
        elapsed_ms: model.elapsed(),
        in_use_bytes: totals.in_use,
        reserved_bytes: totals.reserved,
        limit_bytes: totals.limit,
        pressure: level_name(totals.pressure),
        rows: model.rows().into_iter().map(|row| report(row, read)).collect(),
        unreadable_rows: unreadable(model),
    })
}

fn report(row: &TopRow, read: u64) -> RowReport {
    RowReport {
        kind: row.row.kind.name(),
        name: row.name.clone(),
        pid: row.row.owner,
        ended: row.row.ended,
        age_ms: read.saturating_sub(row.row.written),
        in_use_bytes: row.get(Figure::InUse),
        cached_bytes: row.get(Figure::Cached),
        reserved_bytes: row.get(Figure::Reserved),
        peak_reserved_bytes: row.get(Figure::PeakReserved),
        dirty_bytes: row.get(Figure::Dirty),
        limit_bytes: row.get(Figure::Limit),
        live_blocks: row.get(Figure::LiveBlocks),
        allocations: row.get(Figure::Allocations),
        frees: row.get(Figure::Frees),
        allocations_per_s: row.allocations,
        growth_bytes_per_s: row.growth,
        hits: row.get(Figure::Hits),
        misses: row.get(Figure::Misses),
        hit_rate: row.hit_rate(),
        fragmentation: row.fragmentation(),
        largest_free_bytes: row.get(Figure::LargestFree),
        pressure: row.get(Figure::Pressure).map(level_name),
        oldest_live_ms: row.get(Figure::OldestLive),
        purged_bytes: row.get(Figure::Purged),
        moved_bytes: row.get(Figure::Moved),
    }
}

/// The frame as text: a line of sums, and a table of every column.
pub fn frame_text(model: &TopModel) -> String {
    let mut text = summary(model) + "\n";
    let cell = |column: Column, value: &str| {
        let width = column.width();
        if column.is_text() { format!("{value:width$}") } else { format!("{value:>width$}") }
    };
    let line = |value: &dyn Fn(Column) -> String| {
        let cells: Vec<String> = Column::ALL.iter().map(|column| cell(*column, &value(*column))).collect();
        cells.join(" ").trim_end().to_string() + "\n"
    };
    text += &line(&|column| column.title().into());
    for row in model.rows() {
        text += &line(&|column| column.value(row));
    }
    match unreadable(model) {
        0 => text,
        rows => format!("{text}{rows} rows could not be read: their writers were killed, or are of a newer version\n"),
    }
}

/// Bytes in use and reserved, the limit, and the pressure.
pub fn summary(model: &TopModel) -> String {
    let totals = model.totals();
    let limit = totals.limit.map_or("no limit".into(), |limit| format!("limit {}", format_bytes(limit)));
    format!(
        "{} in use, {} reserved, {limit}, pressure {}, {:.1} s",
        format_bytes(totals.in_use),
        format_bytes(totals.reserved),
        level_name(totals.pressure),
        model.elapsed() as f64 / 1000.0
    )
}

fn unreadable(model: &TopModel) -> usize {
    model.frame.as_ref().map_or(0, |frame| frame.torn + frame.unknown)
}
