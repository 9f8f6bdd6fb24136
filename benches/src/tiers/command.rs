//! The command: what is measured, in what order. Asks from below: every other module.

use super::home::Place;
use super::layers::Pass;
use super::options::{Options, Part};
use super::pieces::SIZES;
use super::results::{Results, Sample, Skipped};
use super::who::Who;
use super::{large, layers, pieces, table};
use crate::harness::{progress, report};
use crate::results::{Given, Header};
use std::io::Write;
use std::path::{Path, PathBuf};
use terrace_models::rounds::Rounds;
use terrace_raw::{Error, PAGE};

/// Runs what was asked. Returns the path of the JSON file.
///
/// # Errors
/// A sentence.
pub fn run(options: &Options, _: &Path, out: &mut dyn Write) -> Result<Option<PathBuf>, String> {
    let results = collect(options)?;
    report(&results, &results.header, &options.out(), |_, _| Ok(false), Some(table::print), out)
}

/// A run under way.
struct Run<'a> {
    options: &'a Options,
    place: Place,
    results: Results,
    step: &'a mut dyn FnMut(&str),
}

/// Measures everything.
fn collect(options: &Options) -> Result<Results, String> {
    let folder = options.directory();
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
    // Before anything is written: the machine should be quiet.
    let mut header = Header::now(options.command(), Vec::new());
    std::fs::create_dir_all(&folder).map_err(|error| failed(&error))?;
    let place = Place { folder: folder.clone(), quick: options.common.quick };
    header.given = given(&place).map_err(|error| failed(&error))?;
    let parts = options.parts();
    let mut step = progress(parts.iter().map(|part| turns(*part)).sum::<usize>() * options.rounds());
    let results = Results { header, samples: Vec::new(), skipped: Vec::new() };
    let mut run = Run { options, place, results, step: &mut step };
    parts.into_iter().for_each(|part| run.part(part));
    Ok(run.results)
}

/// What each was given, in words.
fn given(place: &Place) -> Result<Vec<Given>, Error> {
    let raw = place.turn()?.raw(PAGE, 1)?.access();
    let (memory, total) = (place.memory() >> 20, place.total() >> 20);
    let manager = format!("{memory} MiB of memory ({} MiB in passes), {total} MiB of blocks", total / 4);
    let given = |subject: &str, what| Given { subject: subject.into(), what };
    Ok(vec![given("manager", manager), given("raw loops", format!("{total} MiB in one file, {raw}"))])
}

/// Turns of a round.
fn turns(part: Part) -> usize {
    match part {
        Part::Pieces => SIZES.len() * Who::PIECES.len(),
        Part::Large => Who::LARGE.len(),
        Part::Layers => Pass::ALL.len(),
    }
}

impl Run<'_> {
    fn part(&mut self, part: Part) {
        let place = self.place.clone();
        match part {
            Part::Pieces => {
                for size in SIZES {
                    let turn = |who: Who, round| pieces::turn(&place, size, who, round);
                    self.rounds(size.title, &mut Who::PIECES.clone(), Who::title, turn);
                }
            }
            Part::Large => {
                let turn = |who: Who, round| large::turn(&place, who, round);
                self.rounds("large", &mut Who::LARGE.clone(), Who::title, turn);
            }
            Part::Layers => {
                let turn = |pass: Pass, round| layers::turn(&place, pass, round);
                self.rounds("pass", &mut Pass::ALL.clone(), |pass| pass.title().into(), turn);
            }
        }
    }

    /// Rounds in which contestants take turns; one that fails takes no further part.
    fn rounds<C: Copy>(
        &mut self,
        what: &str,
        contestants: &mut [C],
        title: impl Fn(C) -> String,
        turn: impl Fn(C, usize) -> Result<Vec<Sample>, Error>,
    ) {
        let step = &mut self.step;
        let (samples, skipped) = Rounds::new(self.options.rounds()).run(contestants, |&mut contestant, round| {
            let what = format!("{what}, {}", title(contestant));
            step(&what);
            turn(contestant, round).map_err(|error| Skipped { what, reason: error.to_string() })
        });
        self.results.samples.extend(samples.into_iter().flatten());
        self.results.skipped.extend(skipped);
    }
}
