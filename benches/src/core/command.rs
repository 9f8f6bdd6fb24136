//! The command: what is measured, in what order. Asks from below: every other module.

use super::options::Options;
use super::results::Results;
use super::subjects::Name;
use super::{cache_hit, instructions, measure, metadata, plot, table};
use crate::harness::{progress, report};
use crate::results::{Given, Header};
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
    report(&results, &results.header, &options.out(), plot::draw, Some(table::print), out)
}

/// Measures everything.
fn collect(options: &Options, executable: &Path) -> Result<Results, String> {
    let given = |name: &Name| Given { subject: name.title().into(), what: name.given().into() };
    let header = Header::now(options.command(), options.subjects().iter().map(given).collect());
    let plan = if options.list.no_instructions { Vec::new() } else { instructions::plan(options) };
    let steps = measure::steps(options) + cache_hit::steps(options) + plan.len() + 1;
    let mut step = progress(steps);
    let (samples, cuts) = measure::measure(options, &mut step);
    let hits = cache_hit::measure(options, &mut step)?;
    step("records");
    let metadata = metadata::measure(options)?;
    let mut counted = Vec::new();
    let mut skipped = options.list.no_instructions.then(|| "--no-instructions".to_owned());
    for (name, live) in plan {
        step(&format!("{live} live: instructions, {}", name.title()));
        match instructions::count(executable, name, live, options) {
            Ok(count) => counted.push(count),
            Err(reason) => {
                skipped = Some(reason);
                break;
            }
        }
    }
    Ok(Results { header, samples, cuts, instructions: counted, instructions_skipped: skipped, hits, metadata })
}
