//! Advice on recorded runs: found in the first half, judged on the second by the pool.

use super::*;
use crate::input::{self, TraceInput};
use std::path::PathBuf;

/// What the advice on a run saved.
struct Verdict {
    /// Shares saved of what the advice names: by its own numbers, and on the second half.
    promised: f64,
    kept: f64,
    /// The least and the most saved on the second half, of bytes and of calls.
    least: f64,
    most: f64,
}

/// Judges the advice on a run; `None` where there is none.
fn verdict(trace: &Trace, source: SourceKind) -> Result<Option<Verdict>, Failure> {
    let Some((candidate, advice)) = best(trace, source)? else { return Ok(None) };
    let second = Part::new(trace, trace.events.len() / 2, trace.events.len());
    let judged = |candidate: &Candidate| second.take(source, candidate).map(|taken| taken.expect("room"));
    let (before, after) = (judged(&usual())?, judged(&candidate)?);
    let (bytes, calls) = (share_saved(before.reserved, after.reserved), share_saved(before.calls, after.calls));
    Ok(Some(Verdict {
        promised: advice.promised,
        kept: if advice.measure == "reserved_bytes" { bytes } else { calls },
        least: bytes.min(calls),
        most: bytes.max(calls),
    }))
}

/// Bytes of a file above which its run is left out, except with `TERRACE_ALL`: the five of sixteen that take most of the time.
const LONG: u64 = 1_400_000;

/// Recorded runs; none, with a word, where they are not at hand.
fn recorded(test: &str) -> Vec<TraceInput> {
    let Some(folder) = std::env::var_os("TERRACE_TRACES").map(PathBuf::from) else {
        println!("SKIP {test}: set TERRACE_TRACES");
        return Vec::new();
    };
    let mut runs = input::find(&[folder], None).unwrap_or_else(|failure| panic!("{failure}"));
    if std::env::var_os("TERRACE_ALL").is_none() {
        runs.retain(|run| std::fs::metadata(&run.path).is_ok_and(|about| about.len() < LONG));
    }
    runs
}

/// Nothing worse, what was promised within 5 %, and over pages a third of the runs, 6 of 16, better by 5 %.
#[test]
fn advice_on_recorded_runs_holds_on_their_second_half() {
    let runs = recorded("advice_on_recorded_runs_holds_on_their_second_half");
    let (mut better, mut faults) = (0, Vec::new());
    println!(
        "| run | source | promised | kept | least of bytes and calls | most |\n| --- | --- | --- | --- | --- | --- |"
    );
    for run in &runs {
        let name = &run.name;
        let trace = Trace::read(run, 0).unwrap_or_else(|failure| panic!("{failure}"));
        for source in [SourceKind::Growing, SourceKind::Segments] {
            let verdict = verdict(&trace, source).unwrap_or_else(|failure| panic!("{failure}"));
            let Some(Verdict { promised, kept, least, most }) = verdict else { continue };
            println!("| {name} | {} | {promised:.3} | {kept:.3} | {least:.3} | {most:.3} |", source.name());
            if least < 0.0 || (promised - kept).abs() > 0.05 {
                faults.push(format!("{name} over {}: {least:.3} saved, {kept:.3} of {promised:.3}", source.name()));
            }
            better += usize::from(source == SourceKind::Growing && most >= 0.05);
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(better * 3 >= runs.len(), "{better} of {} runs are better by 5 %", runs.len());
}
