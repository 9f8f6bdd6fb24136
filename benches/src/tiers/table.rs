//! What is printed.
//!
//! Promises upward: medians with least and greatest; what was not measured stands below, with the reason.
//! Asks from below: [`Results`].

use super::results::{Line, Resident, Results, Timed};
use crate::table::{given, grouped, significant, spread_text, table, where_and_when};
use terrace_models::rounds::spread;
use terrace_raw::Moved;

const GIB: f64 = (1 << 30) as f64;
const MIB: f64 = (1 << 20) as f64;

const HEAD: [&str; 9] =
    ["what", "ours", "s", "GiB/s", "raw GiB/s", "over raw", "CPU s/GiB (raw)", "p50 / p99 ms", "raw p50 / p99 ms"];

const RESIDENT: [&str; 6] =
    ["memory of a process", "peak MiB", "before MiB", "program's own MiB", "given MiB", "taken over given"];

const TIMED: [&str; 4] = ["many small buffers", "number", "s", "CPU s"];

/// Everything, as text.
pub fn print(results: &Results) -> String {
    let mut text = where_and_when(&results.header);
    text += "Median (least to greatest) of the rounds. Over raw: the raw loop's time over ours in the same round, above 1 ours is \
             faster; raw loops do the same with the same blocks on the same engine, look at the same bytes, and end puts with \
             fdatasync. Latency: of one call. A pass: of one lease, and over the best that is possible.\n\n";
    let ours = results.lines().into_iter().filter(|line| !line.who.starts_with("raw "));
    text += &shown(table(HEAD, ours.map(|line| row(results, line)).collect()));
    text += &shown(table(RESIDENT, residents(&results.resident)));
    text += &shown(table(TIMED, many(&results.timed)));
    for skipped in &results.skipped {
        text += &format!("SKIP {}: {}\n", skipped.what, skipped.reason);
    }
    text + &given(&results.header)
}

/// A table, if it has any rows.
fn shown(table: comfy_table::Table) -> String {
    if table.is_empty() { String::new() } else { format!("{table}\n\n") }
}

/// Samples in groups of one name, in the order in which they came first.
fn grouped_by<S>(samples: &[S], name: impl Fn(&S) -> &str) -> Vec<Vec<&S>> {
    let mut groups: Vec<Vec<&S>> = Vec::new();
    for sample in samples {
        match groups.iter_mut().find(|group| name(group[0]) == name(sample)) {
            Some(group) => group.push(sample),
            None => groups.push(vec![sample]),
        }
    }
    groups
}

fn residents(all: &[Resident]) -> Vec<Vec<String>> {
    let row = |group: Vec<&Resident>| {
        let all = |figure: fn(&Resident) -> f64| spread_of(&group.iter().map(|one| figure(one)).collect::<Vec<_>>());
        let mib = |bytes: u64| significant(bytes as f64 / MIB);
        vec![
            group[0].what.clone(),
            all(|one| one.peak as f64 / MIB),
            mib(group[0].before),
            mib(group[0].in_flight),
            mib(group[0].memory),
            all(Resident::over_memory),
        ]
    };
    grouped_by(all, |one| one.what.as_str()).into_iter().map(row).collect()
}

fn many(all: &[Timed]) -> Vec<Vec<String>> {
    let row = |group: Vec<&Timed>| {
        let all = |figure: fn(&Timed) -> u64| {
            spread_of(&group.iter().map(|one| figure(one) as f64 / 1e9).collect::<Vec<_>>())
        };
        let number = grouped(group[0].count as u64);
        vec![group[0].what.clone(), number, all(|one| one.cost.wall_ns), all(|one| one.cost.cpu_ns)]
    };
    grouped_by(all, |one| one.what.as_str()).into_iter().map(row).collect()
}

fn row(results: &Results, line: Line<'_>) -> Vec<String> {
    let base = results.base(line);
    let of_raw = |figure: fn(&Moved) -> f64| {
        base.and_then(|base| spread(&results.each(base, figure))).map_or("-".into(), |all| significant(all.median))
    };
    let all = |figure: fn(&Moved) -> f64| spread_of(&results.each(line, figure));
    vec![
        line.what.into(),
        line.who.into(),
        median(results, line, seconds),
        all(rate),
        of_raw(rate),
        results.ratio(line).map_or("-".into(), |all| spread_text(&all, |value| format!("{value:.2}"))),
        format!("{} ({})", median(results, line, processor), of_raw(processor)),
        format!("{} / {}", median(results, line, p50), median(results, line, p99)),
        // A raw request of a pass is a chunk, no lease.
        if results.has_floor(line) { "-".into() } else { format!("{} / {}", of_raw(p50), of_raw(p99)) },
    ]
}

fn spread_of(figures: &[f64]) -> String {
    spread(figures).map_or("-".into(), |all| spread_text(&all, significant))
}

fn median(results: &Results, line: Line<'_>, figure: fn(&Moved) -> f64) -> String {
    spread(&results.each(line, figure)).map_or("-".into(), |all| significant(all.median))
}

fn seconds(moved: &Moved) -> f64 {
    moved.cost.wall_ns as f64 / 1e9
}

fn rate(moved: &Moved) -> f64 {
    moved.bytes as f64 / GIB / (moved.cost.wall_ns as f64 / 1e9)
}

fn processor(moved: &Moved) -> f64 {
    moved.cost.cpu_ns as f64 / 1e9 / (moved.bytes as f64 / GIB)
}

fn p50(moved: &Moved) -> f64 {
    moved.p50_ns as f64 / 1e6
}

fn p99(moved: &Moved) -> f64 {
    moved.p99_ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiers::results::tests::results;

    #[test]
    fn every_figure_is_shown_and_what_was_skipped() {
        let text = print(&results());
        // A GiB in two and in four seconds beside one in one, half a second of processor time for each second.
        // The manager took 96 MiB of 64, beside four before it and four of the program's own.
        let parts = [
            "1.50 (1.50 to 1.50)",
            "3.00 (3.00 to 3.00)",
            "0.38 (0.25 to 0.50)",
            "0.50 (0.50 to 0.50)",
            "1.50 (0.50)",
            "1.00 / 2.00",
            "SKIP foyer: it was",
        ];
        for part in parts {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
