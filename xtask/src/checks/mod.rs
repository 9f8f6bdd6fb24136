//! What the compiler cannot see. Each check is a test: `check::NAME`.
//!
//! Promises upward: a failed check lists every place that breaks it, as `FILE:LINE: why`.
//! Asks from below: `docs/rules.toml`, the project's files, and for `check::features` the results of this run.

mod arrows;
mod builds;
mod crates;
pub mod executed;
pub mod features;
mod licences;
pub mod mutants;
mod names;
mod paths;
mod root;
mod text;

use crate::options::Options;
use crate::report::Report;
use crate::rules::{self, Rules};
use crate::sources::{self, Source};

type Check = fn(&Rules, &[Source]) -> Result<(), String>;

/// The checks that need nothing but files.
const CHECKS: [(&str, Check); 12] = [
    ("check::arrows", arrows::check),
    ("check::crates", crates::check),
    ("check::root", root::check),
    ("check::builds", builds::check),
    ("check::unsafe_files", text::unsafe_files),
    ("check::unsafe_executed", executed::check),
    ("check::words", text::words),
    ("check::names", names::types),
    ("check::comments", names::comments),
    ("check::file_length", text::file_length),
    ("check::licences", licences::check),
    ("check::mutants", mutants::check),
];

/// Runs all, the features last.
pub fn run(options: &Options, report: &mut Report) {
    let files = sources::all();
    match rules::load() {
        Ok(rules) => CHECKS.iter().for_each(|(name, check)| report.verdict(name, check(&rules, &files))),
        Err(why) => report.fail("check::rules", &why),
    }
    features::run(options, report);
}

/// `Ok` without findings; all of them otherwise.
pub fn verdict(findings: Vec<String>) -> Result<(), String> {
    if findings.is_empty() { Ok(()) } else { Err(findings.join("\n")) }
}
