//! The command: what is measured, in what order. Asks from below: every other module.

use super::behaviour::{Behaviour, Probe};
use super::libraries::{self, Library};
use super::options::{Options, Part};
use super::results::Results;
use super::stage::Stage;
use super::{counts, measure, plot, table};
use crate::harness::{progress, report};
use crate::results::Header;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Timings of a Rust program in each round: they are short.
const TIMINGS: usize = 3;

/// Runs what was asked. Returns the path of the JSON file.
///
/// # Errors
/// A sentence.
pub fn run(options: &Options, _: &Path, out: &mut dyn Write) -> Result<Option<PathBuf>, String> {
    let results = collect(options)?;
    let print = (!options.json).then_some(table::print as fn(&Results) -> String);
    report(&results, &results.header, &options.out(), plot::draw, print, out)
}

/// Measures everything.
fn collect(options: &Options) -> Result<Results, String> {
    let mut step = progress(steps(options));
    // Before anything is built: the machine should be quiet.
    let mut header = Header::now(options.command(), Vec::new());
    let stage = Stage::new(&mut step)?;
    let (libraries, missing) = libraries::all(options, &stage.shapes, &mut step);
    header.given = libraries.iter().map(Library::given).collect();
    let mut results = Results::new(header, missing);
    if options.measures(Part::Programs) {
        let (samples, missing) = measure::measure(options, &libraries, &stage, &mut step);
        results.samples = samples;
        results.missing.extend(missing);
    }
    if options.measures(Part::Interface) {
        let (counted, missing) = counts::interface(&libraries, &stage, &mut step);
        results.interface = counted;
        results.missing.extend(missing);
    }
    if options.measures(Part::Rust) {
        rust(options, &stage, &mut results, &mut step);
    }
    behave(options, &libraries, &stage, &mut results.behaviour, &mut step);
    Ok(results)
}

/// Rust programs, each with an allocator linked in.
fn rust(options: &Options, stage: &Stage, results: &mut Results, step: &mut dyn FnMut(&str)) {
    let (mut faces, missing) = counts::faces(options, step);
    results.missing.extend(missing);
    let (counted, missing) = counts::rust(&faces, stage, step);
    results.rust = counted;
    results.missing.extend(missing);
    let (times, missing) = counts::times(&mut faces, TIMINGS * options.rounds(), stage, step);
    results.times = times;
    results.missing.extend(missing);
}

fn behave(options: &Options, libraries: &[Library], stage: &Stage, found: &mut Behaviour, step: &mut dyn FnMut(&str)) {
    let probe = Probe { options, libraries, stage };
    if options.measures(Part::Small) {
        probe.small(found, step);
    }
    if options.measures(Part::Threads) {
        probe.starts(found, step);
    }
    if options.measures(Part::Resident) {
        probe.freed(found, step);
    }
    if options.measures(Part::Fork) {
        probe.forked(found, step);
    }
}

/// Steps that are expected.
fn steps(options: &Options) -> usize {
    let libraries = 1 + options.library.len() + libraries::names().filter(|name| options.wants(name)).count();
    let programs = if options.measures(Part::Programs) { measure::chosen(options).len() } else { 0 };
    let rounds = options.rounds();
    let faces = counts::FACES.len();
    let parts = [
        (Part::Interface, libraries * counts::INTERFACE.len()),
        (Part::Rust, faces * (1 + counts::RUST.len() + TIMINGS * rounds)),
        (Part::Small, libraries * rounds),
        (Part::Threads, libraries * rounds),
        (Part::Resident, 4 * libraries),
        (Part::Fork, libraries),
    ];
    let others: usize = parts.iter().filter(|(part, _)| options.measures(*part)).map(|(_, steps)| steps).sum();
    2 + libraries + programs + programs * libraries * rounds + others
}
