//! The command: measures, keeps, prints.
//!
//! Promises upward: a progress bar on standard error while it runs; tables on the given output; two files, whose paths
//! are printed. Exit code 0, 1 when something failed.
//! Asks from below: every other module.

use super::options::Options;
use super::results::{FORMAT, Results};
use super::subjects::Name;
use super::{cache_hit, instructions, measure, metadata, plot, table};
use crate::harness::bar;
use crate::results::{Given, Header, beside, keep};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Runs what was asked. `executable`: this program, which runs itself under valgrind to be counted.
/// Returns the path of the JSON file (none when it only ran to be counted).
///
/// # Errors
/// A sentence.
pub fn run(options: &Options, executable: &Path, out: &mut dyn Write) -> Result<Option<PathBuf>, String> {
    if !options.count.is_empty() {
        return instructions::counted_part(options).map(|()| None);
    }
    let results = collect(options, executable)?;
    let folder = options.out();
    let failed = |error| format!("{}: {error}", folder.display());
    let stem = keep(&results, &results.header, &folder).map_err(failed)?;
    let (json, svg) = (beside(&stem, "json"), beside(&stem, "svg"));
    plot::draw(&results, &svg).map_err(|error| format!("{}: {error}", svg.display()))?;
    writeln!(out, "{}\nraw data: {}\npicture:  {}", table::print(&results), json.display(), svg.display())
        .map_err(|error| format!("standard output: {error}"))?;
    Ok(Some(json))
}

/// Measures everything.
fn collect(options: &Options, executable: &Path) -> Result<Results, String> {
    let given = |name: &Name| Given { subject: name.title().into(), what: name.given().into() };
    let header = Header::now(FORMAT, options.command(), options.subjects().iter().map(given).collect());
    let plan = if options.no_instructions { Vec::new() } else { instructions::plan(options) };
    let bar = bar(measure::steps(options) + cache_hit::steps(options) + plan.len() as u64 + 1);
    let mut step = |what: &str, steps: u64| {
        bar.set_message(what.to_owned());
        bar.inc(steps);
    };
    let measured = measure::measure(options, &mut step);
    let hits = cache_hit::measure(options, &mut step)?;
    step("records", 1);
    let metadata = metadata::measure(options)?;
    let mut counted = Vec::new();
    let mut skipped = options.no_instructions.then(|| "--no-instructions".to_owned());
    for (name, live) in plan {
        step(&format!("{live} live: instructions, {}", name.title()), 1);
        match instructions::count(executable, name, live, options) {
            Ok(count) => counted.push(count),
            Err(reason) => {
                skipped = Some(reason);
                break;
            }
        }
    }
    bar.finish_and_clear();
    Ok(Results {
        header,
        samples: measured.samples,
        cuts: measured.cuts,
        instructions: counted,
        instructions_skipped: skipped,
        hits,
        metadata,
    })
}
