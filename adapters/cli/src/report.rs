//! Table and JSON of `terrace replay`.
//!
//! Promises upward: with `--json -` standard output has only JSON.
//! Asks from below: rows.

use crate::args::ReplayArgs;
use crate::failure::Failure;
use crate::output::{format_bytes, format_thousands, json, print, write_file};
use crate::results::TraceResult;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::path::PathBuf;

/// Writes the results: as JSON where requested, and as a table unless JSON goes to standard output.
pub fn write(args: &ReplayArgs, replayed: &[TraceResult]) -> Result<(), Failure> {
    let rows: Vec<_> = replayed.iter().flat_map(|trace| &trace.rows).collect();
    write_rows(args, || table(args, replayed), &rows)
}

/// Writes rows as JSON where requested, and a text of them unless JSON goes to standard output.
pub fn write_rows(args: &ReplayArgs, text: impl FnOnce() -> String, rows: &impl Serialize) -> Result<(), Failure> {
    if args.json_only() {
        return print(&json(rows)?);
    }
    // Write the file even if printing the text failed: the text may fail on a closed pipe, the file on a full disk.
    let printed = print(&text());
    if let Some(path) = &args.json {
        write_file(path, json(rows)?).map_err(|error| Failure::output(path, error))?;
    }
    printed
}

/// Prints the paths of the pictures.
pub fn paths(args: &ReplayArgs, pictures: &[PathBuf]) -> Result<(), Failure> {
    if args.json_only() {
        return Ok(());
    }
    print(&pictures.iter().map(|path| format!("{}\n", path.display())).collect::<String>())
}

/// One table: the rows of a trace, or of all with the traces' names.
fn table(args: &ReplayArgs, replayed: &[TraceResult]) -> String {
    let mut table = Table::new();
    let source = args.source.name();
    let (head, of_trace): (_, &[&str]) = match replayed {
        [one] => {
            let (events, peak) = (format_thousands(one.events), format_bytes(one.peak_live));
            (format!("{}: {events} events, peak live {peak}, source {source}", one.trace), &[])
        }
        many => (format!("{} traces, source {source}", many.len()), &["trace", "events", "peak\nlive"]),
    };
    let columns = [
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
    ];
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header(of_trace.iter().chain(&columns));
    let several = replayed.len() > 1;
    for (trace, row) in replayed.iter().flat_map(|trace| trace.rows.iter().map(move |row| (trace, row))) {
        let allocations = row.hits + row.misses;
        let hits = if allocations == 0 { 0.0 } else { 100.0 * row.hits as f64 / allocations as f64 };
        let apart = if row.source == source { String::new() } else { format!(" ({})", row.source) };
        let of_trace = [trace.trace.clone(), format_thousands(trace.events), format_bytes(trace.peak_live)];
        let of_pool = [
            format!("{}{apart}", row.pool),
            format!("{:.3}", row.utilisation),
            format_bytes(row.peak_reserved_bytes),
            format_thousands(row.source_calls),
            format!("{hits:.2} %"),
            format_thousands(row.ns_p50),
            format_thousands(row.ns_p99),
            format_thousands(row.ns_max),
            format_thousands(row.failed),
            format!("{:.1} M", 1e3 / row.ns_mean.max(0.1)),
        ];
        table.add_row(of_trace.into_iter().skip(if several { 0 } else { 3 }).chain(of_pool));
    }
    for (at, column) in table.column_iter_mut().enumerate() {
        // Names stand to the left: of traces, of pools.
        if at != 0 && !(several && at == 3) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let failures = replayed.iter().flat_map(|trace| {
        let name = if several { format!("{}: ", trace.trace) } else { String::new() };
        trace.rows.iter().filter_map(move |row| Some(format!("{name}{}\n", row.failure.as_ref()?)))
    });
    let failures: String = failures.collect();
    format!("{head}\n{table}\n{failures}")
}
