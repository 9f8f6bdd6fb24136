//! The command: measures, keeps, prints.
//!
//! Promises upward: a progress bar on standard error while it runs; tables on the given output; two files, whose paths
//! are printed. Exit code 0, 1 when something failed.
//! Asks from below: every other module.

use crate::options::Options;
use crate::results::{FORMAT, Given, Header, Results, beside, keep};
use crate::subjects::Name;
use crate::{cache_hit, instructions, measure, metadata, plot, table};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A benchmark, as [`run`]: its options, its executable, and where it prints to; the path of the JSON file, or a sentence.
pub type Benchmark<O> = fn(&O, &Path, &mut dyn Write) -> Result<Option<PathBuf>, String>;

/// A benchmark's `main`: its options are the words that the user typed.
pub fn main<O: Parser>(run: Benchmark<O>) -> ExitCode {
    let options = O::parse();
    let done = std::env::current_exe()
        .map_err(|error| format!("this program's own path: {error}"))
        .and_then(|executable| run(&options, &executable, &mut std::io::stdout().lock()));
    match done {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

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

/// A bar on standard error; nothing where that is no terminal.
pub(crate) fn bar(steps: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} %  {elapsed} of about {duration}  {wide_msg}");
    ProgressBar::new(steps).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
