//! The command: what is measured, in what order. Asks from below: every other module.

use super::home::Place;
use super::layers::Pass;
use super::many::Named;
use super::options::{Options, Part};
use super::pieces::SIZES;
use super::resident::Case;
use super::results::{Results, Skipped};
use super::who::Who;
use super::{large, layers, many, peer, pieces, resident, table};
use crate::harness::{progress, report};
use crate::results::{Given, Header};
use clap::ValueEnum;
use std::io::Write;
use std::path::{Path, PathBuf};
use terrace_models::rounds::Rounds;
use terrace_raw::{Blocks, Error, PAGE};

/// Runs what was asked. `executable`: this program, which runs itself to measure its memory. Returns the path of the JSON file
/// (none when it only ran to be measured).
///
/// # Errors
/// A sentence.
pub fn run(options: &Options, executable: &Path, out: &mut dyn Write) -> Result<Option<PathBuf>, String> {
    if let Some(case) = options.resident {
        let place = Place { folder: options.directory(), quick: options.common.quick, raw_spread: options.raw_spread };
        let line = resident::measured_part(&place, case).map_err(|error| error.to_string())?;
        return writeln!(out, "{line}").map(|()| None).map_err(|error| format!("standard output: {error}"));
    }
    let results = collect(options, executable)?;
    report(&results, &results.header, &options.out(), |_, _| Ok(false), Some(table::print), out)
}

/// A run under way.
struct Run<'a> {
    options: &'a Options,
    executable: &'a Path,
    place: Place,
    results: Results,
    step: &'a mut dyn FnMut(&str),
}

/// Measures everything.
fn collect(options: &Options, executable: &Path) -> Result<Results, String> {
    let folder = options.directory();
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
    // Before anything is written: the machine should be quiet.
    let mut header = Header::now(options.command(), Vec::new());
    std::fs::create_dir_all(&folder).map_err(|error| failed(&error))?;
    let place = Place { folder: folder.clone(), quick: options.common.quick, raw_spread: options.raw_spread };
    header.given = given(&place).map_err(|error| failed(&error))?;
    let parts = options.parts();
    let mut step = progress(parts.iter().map(|part| turns(*part)).sum::<usize>() * options.rounds());
    let (resident, timed) = (Vec::new(), Vec::new());
    let results = Results { header, samples: Vec::new(), resident, timed, skipped: Vec::new() };
    let mut run = Run { options, executable, place, results, step: &mut step };
    parts.into_iter().for_each(|part| run.part(part));
    Ok(run.results)
}

/// What each was given, in words.
fn given(place: &Place) -> Result<Vec<Given>, Error> {
    let raw = place.turn()?.raw(&Blocks::new(PAGE, 0), 1)?.access();
    let (memory, total) = (place.memory() >> 20, place.total() >> 20);
    let manager = format!("{memory} MiB of memory ({} MiB in passes), {total} MiB of blocks", total / 4);
    let given = |subject: &str, what| Given { subject: subject.into(), what };
    let foyer = format!("{memory} MiB of memory, memory for twice the writes in flight, written when inserted");
    let requests = if place.raw_spread { "the manager's memory" } else { "that of requests in flight" };
    let raw = format!("{total} MiB in one file, {raw}; pieces: {requests} in turn");
    Ok(vec![given("manager", manager), given("raw loops", raw), given("foyer", foyer)])
}

/// Turns of a round.
fn turns(part: Part) -> usize {
    match part {
        Part::Pieces => SIZES.len() * Who::PIECES.len(),
        Part::Large => Who::LARGE.len(),
        Part::Layers => Pass::ALL.len(),
        Part::Resident => Case::value_variants().len(),
        Part::Tiny | Part::Reopen => 1,
    }
}

impl Run<'_> {
    fn part(&mut self, part: Part) {
        let (place, executable) = (self.place.clone(), self.executable);
        match part {
            Part::Pieces => self.pieces(&place),
            Part::Large => {
                let samples =
                    self.rounds("large", &Who::LARGE, Who::title, |who, round| large::turn(&place, who, round));
                self.results.samples.extend(samples.into_iter().flatten());
            }
            Part::Layers => {
                let turn = |pass: Pass, round| layers::turn(&place, pass, round);
                let samples = self.rounds("pass", &Pass::ALL, |pass| pass.title().into(), turn);
                self.results.samples.extend(samples.into_iter().flatten());
            }
            Part::Resident => {
                let turn = |case: Case, round| resident::turn(&place, executable, case, round);
                let cases = self.rounds("memory", Case::value_variants(), Case::title, turn);
                self.results.resident.extend(cases);
            }
            Part::Tiny => {
                let turn = |(), round| many::tiny_turn(&place, round);
                let timed = self.rounds("100 B", &[()], |()| "manager".into(), turn);
                self.results.timed.extend(timed.into_iter().flatten());
            }
            Part::Reopen => self.reopen(&place),
        }
    }

    fn pieces(&mut self, place: &Place) {
        let all = Who::PIECES.into_iter().filter(|who| !(self.options.no_foyer && who.is_peer()));
        let contestants: Vec<Who> = all.collect();
        if !self.options.no_foyer {
            (self.step)("building foyer");
        }
        let foyer = if self.options.no_foyer { Err("--no-foyer".into()) } else { peer::build() };
        for size in SIZES {
            let turn = |who: Who, round| pieces::turn(place, size, who, &foyer, round);
            for (samples, resident) in self.rounds(size.title, &contestants, Who::title, turn) {
                self.results.samples.extend(samples);
                self.results.resident.extend(resident);
            }
        }
    }

    fn reopen(&mut self, place: &Place) {
        (self.step)("making named buffers");
        let (named, made) = match Named::new(place) {
            Ok(made) => made,
            Err(error) => {
                let (what, reason) = ("named buffers".into(), error.to_string());
                return self.results.skipped.push(Skipped { what, reason });
            }
        };
        self.results.timed.push(made);
        let timed = self.rounds("named buffers", &[()], |()| "build()".into(), |(), round| named.reopen(round));
        self.results.timed.extend(timed);
    }

    /// Rounds in which contestants take turns; one that fails takes no further part.
    fn rounds<C: Copy, T>(
        &mut self,
        what: &str,
        contestants: &[C],
        title: impl Fn(C) -> String,
        turn: impl Fn(C, usize) -> Result<T, Error>,
    ) -> Vec<T> {
        let (step, rounds) = (&mut self.step, Rounds::new(self.options.rounds()));
        let (results, skipped) = rounds.run(&mut contestants.to_vec(), |&mut contestant, round| {
            let what = format!("{what}, {}", title(contestant));
            step(&what);
            turn(contestant, round).map_err(|error| Skipped { what, reason: error.to_string() })
        });
        self.results.skipped.extend(skipped);
        results
    }
}
