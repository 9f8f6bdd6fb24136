//! The command: what is measured, in what order. Asks from below: every other module.

use super::fill::{InPlace, Mix, Overhead, Share};
use super::options::Options;
use super::results::{Cost, Filled, Grown, Results, Sample};
use super::run::{Memory, Ran, Run};
use super::subjects::Name;
use super::works::Work;
use super::{count, plot, size, table};
use crate::harness::{progress, report};
use crate::results::{Given, Header};
use clap::ValueEnum;
use std::io::Write;
use std::path::{Path, PathBuf};
use terrace_models::rounds::Rounds;

/// Sizes whose overhead is measured.
pub const SIZES: [u32; 4] = [16, 24, 64, 100];

/// Runs what was asked. `executable`: this program, which runs itself under valgrind to be counted.
/// Returns the path of the JSON file, where one was written.
///
/// # Errors
/// A sentence.
pub fn run(options: &Options, executable: &Path, out: &mut dyn Write) -> Result<Option<PathBuf>, String> {
    let said = |error| format!("standard output: {error}");
    if !options.count.is_empty() {
        return writeln!(out, "{}", count::counted_part(options)?).map(|()| None).map_err(said);
    }
    if options.size {
        return writeln!(out, "{}", table::texts(&size::measure(&mut |_| ())?)).map(|()| None).map_err(said);
    }
    let results = collect(options, executable);
    report(&results, &results.header, &options.out(), plot::draw, Some(table::print), out)
}

/// Measures everything.
fn collect(options: &Options, executable: &Path) -> Results {
    let (names, works) = (options.subjects(), Work::value_variants());
    let timed = works.len() * (options.rounds() + 1) * names.len();
    let counted = if options.list.no_instructions { 0 } else { works.len() * names.len() };
    let fills = (Mix::value_variants().len() + SIZES.len() + 1) * names.len();
    let mut step = progress(timed + counted + fills + size::CRATES.len());
    let given = |name: &Name| Given { subject: name.title().into(), what: name.given().into() };
    let mut results = Results {
        header: Header::now(options.command(), names.iter().map(given).collect()),
        samples: Vec::new(),
        instructions: Vec::new(),
        instructions_skipped: options.list.no_instructions.then(|| "--no-instructions".to_owned()),
        filled: Vec::new(),
        costs: Vec::new(),
        grown: Vec::new(),
        texts: Vec::new(),
        texts_skipped: options.no_size.then(|| "--no-size".to_owned()),
    };
    works.iter().for_each(|&work| times(options, work, &mut results, &mut step));
    fill(options, &mut results, &mut step);
    instructions(options, executable, &mut results, &mut step);
    if !options.no_size {
        match size::measure(&mut step) {
            Ok(texts) => results.texts = texts,
            Err(reason) => results.texts_skipped = Some(reason),
        }
    }
    results
}

/// Rounds of one list: each heap runs it once, then the next round begins. The first round warms up and is not
/// kept. One that cannot have so much memory is out.
fn times(options: &Options, work: Work, results: &mut Results, step: &mut dyn FnMut(&str)) {
    let list = work.list(options.list.seed, options.ops());
    let mut memory = Memory::new(list.memory);
    let rounds = Rounds { warm_up: 1, ..Rounds::new(options.rounds()) };
    let (samples, _) = rounds.run(&mut options.subjects(), |name, round| {
        step(&format!("{}: {}", work.title(), name.title()));
        let Ran { ops, refused, ns } = name.with(Run { list: &list, memory: &mut memory }).ok_or(())?;
        Ok::<_, ()>(Sample { subject: name.title().into(), work, round, ops, refused, ns })
    });
    results.samples.extend(samples);
}

fn fill(options: &Options, results: &mut Results, step: &mut dyn FnMut(&str)) {
    let most = Mix::value_variants().iter().map(|mix| mix.memory()).max().unwrap_or(0);
    let mut memory = Memory::new(most);
    let (memory, seed) = (&mut memory, options.list.seed);
    for name in options.subjects() {
        let subject = || name.title().to_owned();
        for &mix in Mix::value_variants() {
            step(&format!("filling, {}: {}", mix.title(), name.title()));
            let share = name.with(Share { mix, refusals: options.refusals(), seed, memory });
            results.filled.extend(share.map(|share| Filled { subject: subject(), mix, share }));
        }
        for size in SIZES {
            step(&format!("overhead, {size}: {}", name.title()));
            let overhead = name.with(Overhead { size, memory });
            results.costs.extend(overhead.map(|overhead| Cost { subject: subject(), size, overhead }));
        }
        step(&format!("growth: {}", name.title()));
        let in_place = name.with(InPlace { rounds: if options.common.quick { 5 } else { 50 }, seed, memory });
        results.grown.extend(in_place.map(|in_place| Grown { subject: subject(), in_place }));
    }
}

fn instructions(options: &Options, executable: &Path, results: &mut Results, step: &mut dyn FnMut(&str)) {
    for &work in Work::value_variants() {
        for name in options.subjects() {
            if results.instructions_skipped.is_some() {
                return;
            }
            step(&format!("instructions, {}: {}", work.title(), name.title()));
            match count::count(executable, name, work, options) {
                Ok(counted) => results.instructions.extend(counted),
                Err(reason) => results.instructions_skipped = Some(reason),
            }
        }
    }
}
