//! What is printed.
//!
//! Promises upward: every number with its unit and spread; what was cut off stands where its number would be, with the
//! reason below. Asks from below: [`Results`].

use crate::cache_hit::Hit;
use crate::instructions::net;
use crate::numbers::{Spread, spread};
use crate::results::{Header, Results};
use crate::subjects::Name;
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};

/// Load up to which a machine is quiet: half a program on average.
const QUIET: f64 = 0.5;

/// Everything, as text.
pub fn print(results: &Results) -> String {
    let mut text = where_and_when(&results.header);
    text += "Nanoseconds a pair (one free, one allocation) by live blocks: median (least to greatest).\n\n";
    text += &format!("{}\n\n", by_live(results, time));
    text += "Each round's time over that of terrace good fit in the same round: median (least to greatest).\n\n";
    text += &format!("{}\n\n", by_live(results, ratio));
    for cut in &results.cuts {
        text += &format!("{} at {} live: {}\n", cut.subject, cut.live, cut.reason);
    }
    text += &format!("\n{}\n\n{}\n\n{}\n\n", instructions(results), hits(&results.hits), metadata(results));
    text + &given(&results.header)
}

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
pub(crate) fn table(head: Vec<String>, rows: Vec<Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN).set_header(head).add_rows(rows);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn by_live(results: &Results, cell: fn(&Results, &str, u32) -> String) -> Table {
    let lives = results.lives();
    let head = std::iter::once("live blocks".into()).chain(lives.iter().map(|&live| grouped(live.into()))).collect();
    let row = |subject: &str| {
        let cells = lives.iter().map(|&live| cell(results, subject, live));
        std::iter::once(subject.to_owned()).chain(cells).collect()
    };
    table(head, results.header.subjects().map(row).collect())
}

fn time(results: &Results, subject: &str, live: u32) -> String {
    spread(&results.times(subject, live)).map_or("cut off".into(), |all| spread_text(&all, significant))
}

fn ratio(results: &Results, subject: &str, live: u32) -> String {
    let ratio = results.ratio(subject, Name::Good.title(), live);
    ratio.map_or("-".into(), |all| spread_text(&all, |value| format!("{value:.2}")))
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

fn instructions(results: &Results) -> String {
    if let Some(reason) = &results.instructions_skipped {
        return format!("Instructions were not counted: {reason}");
    }
    let head = ["instructions a pair", "live blocks", "net", "with the harness"].map(String::from).to_vec();
    let (mut rows, mut flat) = (Vec::new(), String::new());
    for name in [Name::Good, Name::Offset] {
        let (counts, flatness) = net(results, name);
        let gross = results.instructions.iter().filter(|counted| counted.subject == name.title());
        rows.extend(counts.iter().zip(gross).map(|(&(live, net), gross)| {
            let gross = gross.per_pair();
            vec![name.title().into(), grouped(live.into()), format!("{net:.1}"), format!("{gross:.1}")]
        }));
        if let Some(flatness) = flatness {
            flat += &format!("\n{}: (most - least) / least = {:.1} %", name.title(), flatness * 100.0);
        }
    }
    format!(
        "Instructions a pair, counted by callgrind; net is without the harness's own loop.\n\n{}\n{flat}",
        table(head, rows)
    )
}

fn hits(hits: &[Hit]) -> String {
    let mut cases: Vec<(&str, u32)> = hits.iter().map(|hit| (hit.subject.as_str(), hit.sizes)).collect();
    cases.sort_unstable();
    cases.dedup();
    let row = |(subject, sizes): (&str, u32)| {
        let these = hits.iter().filter(|hit| hit.subject == subject && hit.sizes == sizes);
        let times: Vec<f64> = these.map(|hit| hit.ns as f64 / hit.pairs.max(1) as f64).collect();
        let text = spread(&times).map_or("-".into(), |all| spread_text(&all, significant));
        vec![subject.into(), sizes.to_string(), text]
    };
    let head = ["hit", "sizes in turn", "ns a pair"].map(String::from).to_vec();
    let rows = cases.into_iter().map(row).collect();
    format!("Cache hits: nanoseconds a pair (one allocation, one free), every one a hit.\n\n{}", table(head, rows))
}

fn metadata(results: &Results) -> String {
    let head = ["records", "granule", "blocks", "mean bytes", "bytes of records", "share of the pool"];
    let row = |share: &crate::metadata::Share| {
        vec![
            share.subject.clone(),
            share.granule.to_string(),
            grouped(share.blocks),
            format!("{:.0}", share.mean),
            grouped(share.metadata),
            format!("{:.2} %", share.share * 100.0),
        ]
    };
    let rows = results.metadata.iter().map(row).collect();
    let head = head.map(String::from).to_vec();
    format!(
        "Records of a pool of 100 MB, full of blocks of 64 to 8128 bytes, after two turnovers.\n\n{}",
        table(head, rows)
    )
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
