//! Table, JSON and file of `terrace bench gpu`.
//!
//! Promises upward: with `--json` standard output has only JSON; a file is complete or absent.
//! Asks from below: measurements.

use super::args::GpuArgs;
use super::measure::{BenchReport, ScenarioRow};
use super::transfers::{CopyRates, ROUNDS};
use crate::failure::Failure;
use crate::output::{format_bytes, format_thousands, json, print, write_file};
use comfy_table::{CellAlignment, Table, TableComponent, presets};
use std::fmt::Write;
use std::path::Path;
use terrace::recording::Partial;

/// Creates the folder if it is missing, and checks that a file can be written to it.
pub fn probe(folder: &Path) -> Result<(), Failure> {
    let probed = std::fs::create_dir_all(folder).and_then(|()| Partial::probe(&folder.join("probe.json")));
    probed.map_err(|error| Failure::output(folder, error))
}

/// Prints the report, and writes it to a file if requested.
pub fn write(args: &GpuArgs, report: &BenchReport) -> Result<(), Failure> {
    let json = json(report)?;
    let printed = if args.json { print(&json) } else { print(&table(report)) };
    if let Some(folder) = &args.out {
        let name = format!("{}-{}.json", report.device.replace(':', ""), report.unix_seconds);
        let path = folder.join(name);
        write_file(&path, &json).map_err(|error| Failure::output(&path, error))?;
        if !args.json {
            print(&format!("{}\n", path.display()))?;
        }
    }
    printed
}

fn table(report: &BenchReport) -> String {
    let mut text = String::new();
    let BenchReport { device, name, driver, total_bytes, free_bytes, hit_ns, hit_ns_p50, .. } = report;
    if let Some(why) = &report.chosen_because {
        // `why` says at its end what to install.
        let _ = writeln!(text, "on the host's memory, since there is no CUDA device: {why}\n");
    }
    let (total, free) = (format_bytes(*total_bytes), format_bytes(*free_bytes));
    let _ = writeln!(text, "{device}: {name}, driver {driver}, {total} in all, {free} free");
    let _ = writeln!(
        text,
        "allocate + drop on a hit of the stream's cache: {hit_ns:.1} ns (half of the batches: {hit_ns_p50:.1})"
    );
    for copies in &report.copies {
        let (middle, ratio) = (ROUNDS / 2, copies.ratio());
        let CopyRates { name, bytes: size, bare, engine } = copies;
        let size = format_bytes(*size as u64);
        let _ = writeln!(
            text,
            "{size} {name}: {:.2} GB/s by the engine, {:.2} by one copy of the driver's: {ratio:.2}",
            engine[middle], bare[middle]
        );
    }
    for access in &report.access {
        let _ = writeln!(text, "{}: {:.1} ns (half of the batches: {:.1})", access.call, access.ns, access.ns_p50);
    }
    for steps in &report.warm_up {
        let [first, second, third] =
            std::array::from_fn(|at| format!("{:.2} ms, {} calls", steps.ms[at], steps.calls[at]));
        let how = if steps.warm { format!("after a warm-up of {:.2} ms", steps.warm_up_ms) } else { "cold".into() };
        let _ = writeln!(text, "steps of train_resnet50, {how}: {first}; {second}; {third}");
    }
    let mut table = Table::new();
    table.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_header([
        "scenario",
        "subject",
        "ns per\noperation",
        "calls",
        "handles",
        "peak\nreserved",
        "utilisation",
        "failed",
    ]);
    // Draw no lines between rows.
    for part in [
        TableComponent::HorizontalLines,
        TableComponent::MiddleIntersections,
        TableComponent::LeftBorderIntersections,
        TableComponent::RightBorderIntersections,
    ] {
        table.remove_style(part);
    }
    for row in &report.rows {
        table.add_row(cells(row));
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let _ = writeln!(text, "{table}");
    text
}

/// The cells of a row.
fn cells(row: &ScenarioRow) -> [String; 8] {
    let scaled = if row.divided_by == 1 { String::new() } else { format!(" (sizes / {})", row.divided_by) };
    [
        format!("{}{scaled}", row.scenario),
        row.subject.to_owned(),
        row.ns_per_operation.map_or("-".into(), |ns| format!("{ns:.0}")),
        format_thousands(row.calls),
        format_thousands(row.handles),
        format_bytes(row.peak_reserved_bytes),
        format!("{:.3}", row.utilisation),
        format_thousands(row.failed),
    ]
}
