//! Table and JSON of `terrace replay`.
//!
//! Promises upward: with `--json -` standard output has only JSON.
//! Asks from below: rows.

use crate::args::ReplayArgs;
use crate::failure::Failure;
use crate::output::{format_bytes, format_thousands, json, print, write_file};
use crate::results::TraceResult;
use comfy_table::{CellAlignment, Table, presets};
use std::path::PathBuf;

/// Writes the results: as JSON where requested, and as a table unless JSON goes to standard output.
pub fn write(args: &ReplayArgs, replayed: &[TraceResult]) -> Result<(), Failure> {
    if args.json_only() {
        return print(&rows_json(replayed)?);
    }
    let tables: Vec<String> = replayed.iter().map(|trace| table(args, trace)).collect();
    // Write the file even if printing the table failed: the table may fail on a closed pipe, the file on a full disk.
    let printed = print(&tables.join("\n"));
    if let Some(path) = &args.json {
        write_file(path, &rows_json(replayed)?).map_err(|error| Failure::output(path, error))?;
    }
    printed
}

fn rows_json(replayed: &[TraceResult]) -> Result<String, Failure> {
    json(&replayed.iter().flat_map(|trace| &trace.rows).collect::<Vec<_>>())
}

/// Prints the paths of the pictures.
pub fn paths(args: &ReplayArgs, pictures: &[PathBuf]) -> Result<(), Failure> {
    if args.json_only() {
        return Ok(());
    }
    print(&pictures.iter().map(|path| format!("{}\n", path.display())).collect::<String>())
}

fn table(args: &ReplayArgs, replayed: &TraceResult) -> String {
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
        let allocations = row.hits + row.misses;
        let hits = if allocations == 0 { 0.0 } else { 100.0 * row.hits as f64 / allocations as f64 };
        let apart = if row.source == args.source.name() { String::new() } else { format!(" ({})", row.source) };
        table.add_row([
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
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let failures: String = replayed.failures.iter().map(|line| format!("{line}\n")).collect();
    format!(
        "{}: {} events, peak live {}, source {}\n{table}\n{failures}",
        replayed.trace,
        format_thousands(replayed.events),
        format_bytes(replayed.peak_live),
        args.source.name()
    )
}
