//! The table and the JSON.
//!
//! Promises upward: the keys of [`Row`] are stable; with `--json -` nothing but JSON is on standard output.
//! Asks from below: rows.

use crate::args::{ReplayArgs, SourceKind};
use crate::failure::Failure;
use crate::replay::Replayed;
use comfy_table::{CellAlignment, Table, presets};
use hdrhistogram::Histogram;
use quanta::Clock;
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use terrace::Stats;
use terrace::recording::Partial;

/// One pool on one trace. The names are the JSON keys.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the trace.
    pub trace: String,
    /// Name of the pool.
    pub pool: &'static str,
    /// `growing` or `segments`.
    pub source: &'static str,
    /// Events replayed, after `--min-size`.
    pub events: u64,
    /// Highest sum of requested bytes of live blocks.
    pub peak_live_bytes: u64,
    /// Highest sum of bytes taken from the source.
    pub peak_reserved_bytes: u64,
    /// `peak_live_bytes / peak_reserved_bytes`, 0 when nothing was reserved.
    pub utilisation: f64,
    /// Calls to the source up to the last event of the trace.
    pub source_calls: u64,
    /// Handles the source made for them.
    pub handles: u64,
    /// Allocations served without the source.
    pub hits: u64,
    /// Allocations that asked the source.
    pub misses: u64,
    /// Allocations and reallocations that failed.
    pub failed: u64,
    /// Mean nanoseconds of an event.
    pub ns_mean: f64,
    /// Half of the events took at most this.
    pub ns_p50: u64,
    /// 99 of 100.
    pub ns_p99: u64,
    /// 999 of 1000.
    pub ns_p999: u64,
    /// The longest.
    pub ns_max: u64,
    /// Bytes still reserved after everything was freed and trimmed.
    pub reserved_after_trim: u64,
}

/// Times of events in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    mean: f64,
    p50: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

impl Times {
    /// From ticks of `clock`.
    pub fn new(ticks: &Histogram<u64>, longest: u64, clock: &Clock) -> Self {
        let at = |quantile| clock.delta_as_nanos(0, ticks.value_at_quantile(quantile).min(longest));
        // Nanoseconds of 2^32 ticks (about a second), so that the ratio has nine digits.
        let per_tick = clock.delta_as_nanos(0, 1 << 32) as f64 / (1u64 << 32) as f64;
        let mean = (ticks.mean() * per_tick * 10.0).round() / 10.0;
        Self { mean, p50: at(0.5), p99: at(0.99), p999: at(0.999), max: clock.delta_as_nanos(0, longest) }
    }
}

impl Row {
    /// Puts a row together; `stats` as of the last event.
    #[expect(clippy::too_many_arguments, reason = "each is a column")]
    pub fn new(
        trace: &str,
        pool: &'static str,
        source: SourceKind,
        events: u64,
        (peak_live, failed): (u64, u64),
        stats: &Stats,
        reserved_after_trim: u64,
        times: &Times,
    ) -> Self {
        let reserved = stats.peak_reserved;
        Self {
            trace: trace.into(),
            pool,
            source: source.name(),
            events,
            peak_live_bytes: peak_live,
            peak_reserved_bytes: reserved,
            utilisation: if reserved == 0 { 0.0 } else { peak_live as f64 / reserved as f64 },
            source_calls: stats.source_calls,
            handles: stats.handles,
            hits: stats.hits,
            misses: stats.misses,
            failed,
            ns_mean: times.mean,
            ns_p50: times.p50,
            ns_p99: times.p99,
            ns_p999: times.p999,
            ns_max: times.max,
            reserved_after_trim,
        }
    }
}

/// Writes what was asked for: JSON, and the table unless JSON has standard output to itself.
pub fn write(args: &ReplayArgs, replayed: &[Replayed]) -> Result<(), Failure> {
    if args.json_only() {
        return print(&json(replayed)?);
    }
    let tables: Vec<String> = replayed.iter().map(|trace| table(args, trace)).collect();
    // Neither keeps the other from being written: a full disk not the table, a reader that went away not the file.
    let printed = print(&tables.join("\n"));
    if let Some(path) = &args.json {
        file(path, &json(replayed)?).map_err(|error| Failure::output(path, error))?;
    }
    printed
}

fn json(replayed: &[Replayed]) -> Result<String, Failure> {
    let rows: Vec<&Row> = replayed.iter().flat_map(|trace| &trace.rows).collect();
    let text = serde_json::to_string_pretty(&rows).map_err(|error| Failure::output(Path::new("JSON"), error))?;
    Ok(text + "\n")
}

/// Prints where the pictures are, last of all.
pub fn paths(args: &ReplayArgs, pictures: &[PathBuf]) -> Result<(), Failure> {
    if args.json_only() {
        return Ok(());
    }
    print(&pictures.iter().map(|path| format!("{}\n", path.display())).collect::<String>())
}

/// Writes a file that is whole or absent.
pub fn file(path: &Path, text: &str) -> io::Result<()> {
    let (partial, mut file) = Partial::create(path)?;
    file.write_all(text.as_bytes())?;
    partial.keep()
}

/// Writes to standard output, whole.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::standard_output)
}

fn table(args: &ReplayArgs, replayed: &Replayed) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header([
        "pool",
        "utilisation",
        "peak\nreserved",
        "source\ncalls",
        "hits",
        "ns p50",
        "ns p99",
        "ns max",
        "failed",
        "replayed\nevents/s",
    ]);
    for row in &replayed.rows {
        let asked = row.hits + row.misses;
        let hits = if asked == 0 { 0.0 } else { 100.0 * row.hits as f64 / asked as f64 };
        table.add_row([
            row.pool.to_owned(),
            format!("{:.3}", row.utilisation),
            bytes(row.peak_reserved_bytes),
            thousands(row.source_calls),
            format!("{hits:.2} %"),
            thousands(row.ns_p50),
            thousands(row.ns_p99),
            thousands(row.ns_max),
            thousands(row.failed),
            format!("{:.1} M", 1e3 / row.ns_mean.max(0.1)),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let failures: String = replayed.failures.iter().map(|line| format!("{line}\n")).collect();
    format!(
        "{}: {} events, peak live {}, source {}\n{table}\n{failures}",
        replayed.trace,
        thousands(replayed.events),
        bytes(replayed.peak_live),
        args.source.name()
    )
}

/// A size with three digits or more and its unit.
pub fn bytes(bytes: u64) -> String {
    let (unit, name) = unit(bytes);
    if unit == 1 { format!("{bytes} B") } else { format!("{:.2} {name}", bytes as f64 / unit as f64) }
}

/// The largest unit not above `bytes`.
pub fn unit(bytes: u64) -> (u64, &'static str) {
    let units = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    units.into_iter().find(|(unit, _)| bytes >= *unit).unwrap_or((1, "B"))
}

/// A number with commas between thousands.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
