//! What is printed.
//!
//! Promises upward: every number with its unit and spread; what was cut off stands where its number would be, with the
//! reason below. Asks from below: [`Results`].

use super::cache_hit::Hit;
use super::instructions::net;
use super::results::Results;
use super::subjects::Name;
use crate::table::{cross, given, grouped, significant, spread_text, table, where_and_when};
use comfy_table::Table;
use terrace_models::rounds::spread;

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

fn by_live(results: &Results, cell: fn(&Results, &str, u32) -> String) -> Table {
    let title = |live: u32| grouped(live.into());
    cross("live blocks", results.header.subjects(), &results.lives(), title, |subject, live| {
        cell(results, subject, live)
    })
}

fn time(results: &Results, subject: &str, live: u32) -> String {
    spread(&results.times(subject, live)).map_or("cut off".into(), |all| spread_text(&all, significant))
}

fn ratio(results: &Results, subject: &str, live: u32) -> String {
    let ratio = results.ratio(subject, Name::Good.title(), live);
    ratio.map_or("-".into(), |all| spread_text(&all, |value| format!("{value:.2}")))
}

fn instructions(results: &Results) -> String {
    if let Some(reason) = &results.instructions_skipped {
        return format!("Instructions were not counted: {reason}");
    }
    let head = ["instructions a pair", "live blocks", "net", "with the harness"];
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
    let table = table(["hit", "sizes in turn", "ns a pair"], cases.into_iter().map(row).collect());
    format!("Cache hits: nanoseconds a pair (one allocation, one free), every one a hit.\n\n{table}")
}

fn metadata(results: &Results) -> String {
    let head = ["records", "granule", "blocks", "mean bytes", "bytes of records", "share of the pool"];
    let row = |share: &super::metadata::Share| {
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
    format!(
        "Records of a pool of 100 MB, full of blocks of 64 to 8128 bytes, after two turnovers.\n\n{}",
        table(head, rows)
    )
}
