//! What is printed.
//!
//! Promises upward: medians with least and greatest; what was not measured stands below, with the reason.
//! Asks from below: [`Results`].

use super::results::{Line, Results};
use crate::table::{given, significant, spread_text, table, where_and_when};
use terrace_models::rounds::spread;
use terrace_raw::Moved;

const GIB: f64 = (1 << 30) as f64;

const HEAD: [&str; 8] =
    ["what", "ours", "GiB/s", "raw GiB/s", "over raw", "CPU s/GiB (raw)", "p50 / p99 ms", "raw p50 / p99 ms"];

/// Everything, as text.
pub fn print(results: &Results) -> String {
    let mut text = where_and_when(&results.header);
    text += "Median (least to greatest) of the rounds. Over raw: the raw loop's time over ours in the same round, above 1 ours is \
             faster; raw loops do the same with the same blocks on the same engine, look at the same bytes, and end puts with \
             fdatasync. Latency: of one call. A pass: of one lease, and over the best that is possible.\n\n";
    let ours = results.lines().into_iter().filter(|line| !line.who.starts_with("raw "));
    text += &format!("{}\n\n", table(HEAD, ours.map(|line| row(results, line)).collect()));
    for skipped in &results.skipped {
        text += &format!("SKIP {}: {}\n", skipped.what, skipped.reason);
    }
    text + &given(&results.header)
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
        all(rate),
        of_raw(rate),
        results.ratio(line).map_or("-".into(), |all| spread_text(&all, |value| format!("{value:.2}"))),
        format!("{} ({})", median(results, line, processor), of_raw(processor)),
        format!("{} / {}", median(results, line, p50), median(results, line, p99)),
        format!("{} / {}", of_raw(p50), of_raw(p99)),
    ]
}

fn spread_of(figures: &[f64]) -> String {
    spread(figures).map_or("-".into(), |all| spread_text(&all, significant))
}

fn median(results: &Results, line: Line<'_>, figure: fn(&Moved) -> f64) -> String {
    spread(&results.each(line, figure)).map_or("-".into(), |all| significant(all.median))
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
        let parts = ["0.38 (0.25 to 0.50)", "0.50 (0.50 to 0.50)", "1.50 (0.50)", "1.00 / 2.00", "SKIP foyer: it was"];
        for part in parts {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
