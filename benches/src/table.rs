//! What every report has.
//!
//! Promises upward: three digits or more; a busy machine is told. Asks from below: [`Header`].

use crate::results::Header;
use comfy_table::{CellAlignment, Row, Table, presets::ASCII_MARKDOWN};
use terrace_models::rounds::Spread;

/// Load up to which a machine is quiet: half a program on average.
const QUIET: f64 = 0.5;

/// The head of every report.
pub(crate) fn where_and_when(header: &Header) -> String {
    let mut text = format!("{}, {} cores, {}\n\n", header.machine.cpu, header.machine.cores, header.date);
    if let Some(load) = header.load.filter(|&load| load > QUIET) {
        text += &format!("The machine was busy before this run (load {load:.2}): do not keep these times.\n\n");
    }
    text
}

/// The end of every report.
pub(crate) fn given(header: &Header) -> String {
    let mut text = String::from("What each was given:\n");
    header.given.iter().for_each(|given| text += &format!("  {}: {}\n", given.subject, given.what));
    text
}

/// Numbers to the right.
pub(crate) fn table(head: impl Into<Row>, rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header(head).add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// A row for each of some names, a column for each of some others.
pub(crate) fn cross<'a, C: Copy>(
    corner: &str,
    rows: impl Iterator<Item = &'a str>,
    columns: &[C],
    title: impl Fn(C) -> String,
    cell: impl Fn(&str, C) -> String,
) -> Table {
    let head: Vec<String> =
        std::iter::once(corner.to_owned()).chain(columns.iter().map(|&column| title(column))).collect();
    let row =
        |name: &str| std::iter::once(name.to_owned()).chain(columns.iter().map(|&column| cell(name, column))).collect();
    table(head, rows.map(row).collect())
}

pub(crate) fn spread_text(all: &Spread, number: impl Fn(f64) -> String) -> String {
    format!("{} ({} to {})", number(all.median), number(all.min), number(all.max))
}

/// Three digits or all before the point.
pub(crate) fn significant(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => grouped(value.round() as u64),
    }
}

/// Thousands with commas.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_more() {
        assert_eq!([1.234, 12.34, 123.4, 12_345.6].map(significant), ["1.23", "12.3", "123", "12,346"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
