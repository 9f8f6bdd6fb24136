//! Searches for the longest calls of the heaps on an emulated board: `thumb_worst MINUTES RECORD EMULATOR WORDS..`.
//!
//! Starts from the programs in `tests/data/heap_worst.txt` and in RECORD, and goes round by round, each with another seed,
//! from the best of all rounds before. At the end the best of each heap and kind are written to RECORD, shortened.
//! `cargo xtask firmware --search MINUTES` builds the board's program and calls this with the words for it.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};
use terrace_tests::steps::{Emulated, Found, Kind, Program, search_within};

/// The heaps, and bytes of the largest memory that a search gives them: what 16 bits for a granule reach, and twice that
/// for wider records, so that a memory filled with the smallest blocks takes well below a second.
const HEAPS: [(&str, u32); 6] = [
    ("fast", 1 << 19),
    ("bounded", 1 << 19),
    ("small", 1 << 19),
    ("fast-wide", 1 << 20),
    ("bounded-packed", 1 << 20),
    ("rlsf", 1 << 20),
];
/// Programs of a round, for each heap.
const BUDGET: usize = 4000;
/// What earlier searches on x86-64 found.
const KNOWN: &str = include_str!("../data/heap_worst.txt");
/// Stands in front of what is recorded.
const HEADER: &str = "\
# Programs that make some heap's last call long on Thumb (Cortex-M4), one per line; see `terrace_tests::steps`. Found by
# `cargo xtask firmware --search MINUTES`, which starts from these lines and writes them anew. A line is tried with every
# heap, whichever it was found for.
";

/// The worst of each kind.
type Best = [Option<Found>; Kind::ALL.len()];

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [minutes, record, emulator @ ..] = &words[..] else {
        return Err("thumb_worst MINUTES RECORD EMULATOR WORDS..".into());
    };
    let limit = Duration::from_secs_f64(minutes.parse::<f64>()?.clamp(0.0, 1e6) * 60.0);
    let record = Path::new(record);
    let mut known = programs(KNOWN)?;
    known.extend(programs(&std::fs::read_to_string(record).unwrap_or_default())?);
    let best = rounds(limit, known, &mut Emulated::start(emulator)?)?;
    for ((heap, _), best) in HEAPS.iter().zip(&best) {
        for (kind, found) in Kind::ALL.iter().zip(best) {
            found.iter().for_each(|Found { count, program }| println!("{heap} {kind:?} {count} by {program}"));
        }
    }
    let mut lines: Vec<String> = best.iter().flatten().flatten().map(|found| found.program.to_string()).collect();
    lines.sort();
    lines.dedup();
    std::fs::write(record, format!("{HEADER}{}\n", lines.join("\n")))?;
    println!("{}: {} programs", record.display(), lines.len());
    Ok(())
}

fn programs(text: &str) -> Result<Vec<Program>, String> {
    text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::parse).collect()
}

/// Searches until the time is over; at least one round, which ends in any case.
fn rounds(limit: Duration, mut known: Vec<Program>, board: &mut Emulated) -> Result<Vec<Best>, String> {
    let (start, mut tried) = (Instant::now(), 0_u64);
    let mut best = vec![Best::default(); HEAPS.len()];
    for seed in 1.. {
        for ((heap, largest), best) in HEAPS.iter().zip(&mut best) {
            let found = search_within(*largest, seed, BUDGET, &known, &mut |program| {
                tried += 1;
                board.count(heap, program)
            });
            let found = found.map_err(|error| format!("{heap}: {error}"))?;
            best.iter_mut().zip(found).for_each(|(best, found)| keep(best, found));
        }
        let summary: Vec<String> = HEAPS.iter().zip(&best).map(|((heap, _), best)| summary(heap, best)).collect();
        println!("{:>5} s  {tried:>8} programs  {}", start.elapsed().as_secs(), summary.join("  "));
        if start.elapsed() >= limit {
            break;
        }
        known = best.iter().flatten().flatten().map(|found| found.program.clone()).collect();
    }
    Ok(best)
}

/// Keeps the longer one; of equals the shorter program.
fn keep(best: &mut Option<Found>, found: Option<Found>) {
    let rank = |found: &Found| (found.count, usize::MAX - found.program.calls.len());
    if let Some(found) = found
        && best.as_ref().is_none_or(|best| rank(&found) > rank(best))
    {
        *best = Some(found);
    }
}

/// `fast 190/181/120/150/127`: the kinds in order.
fn summary(heap: &str, best: &Best) -> String {
    let counts = best.iter().map(|found| found.as_ref().map_or("-".into(), |found| found.count.to_string()));
    format!("{heap} {}", counts.collect::<Vec<_>>().join("/"))
}
