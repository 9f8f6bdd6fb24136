//! Programs under libraries, in turn.
//!
//! Promises upward: in each round every program runs under every library, one after the other, beginning with another one
//! each time; output is compared with that under glibc; a run that fails is kept with its reason, and that program is not
//! run under that library again. One run of each program before all, unmeasured, brings its files into memory.
//! Asks from below: nothing else on the machine.

use super::launch::{Job, Usage, digest};
use super::libraries::Library;
use super::options::Options;
use super::programs::{Kind, PROGRAMS, Program};
use super::redis;
use super::stage::Stage;
use crate::results::Given;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Time after which a program is killed: a hundred times what most take.
const LIMIT: Duration = Duration::from_secs(100);

/// One run of a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The program's name.
    pub program: String,
    /// Whether people have it.
    pub real: bool,
    /// The library's name.
    pub library: String,
    /// Round, from 0.
    pub round: usize,
    /// What it used; nothing when it failed.
    pub usage: Option<Usage>,
    /// Why it failed: what it said, or that its output differs.
    pub failed: Option<String>,
}

/// Programs that were measured, and those that are missing.
#[derive(Debug, Default)]
pub struct Measured {
    /// Every run.
    pub samples: Vec<Sample>,
    /// Programs that are missing, with the reason.
    pub missing: Vec<Given>,
}

/// A program that is there.
struct Ready {
    program: Program,
    job: Job,
    /// Its output under glibc.
    expected: u64,
}

/// Programs that were asked for.
pub fn chosen(options: &Options) -> Vec<Program> {
    let named = |program: &Program| options.only.is_empty() || options.only.iter().any(|name| name == program.name);
    PROGRAMS.into_iter().filter(named).collect()
}

/// Measures all. `step` is told what comes next.
pub fn measure(options: &Options, libraries: &[Library], stage: &Stage, step: &mut dyn FnMut(&str)) -> Measured {
    let mut measured = Measured::default();
    let mut ready = Vec::new();
    for program in chosen(options) {
        step(program.name);
        match prepare(program, stage, options.quick) {
            Ok(one) => ready.push(one),
            Err(reason) => measured.missing.push(Given { subject: program.name.into(), what: reason }),
        }
    }
    for round in 0..options.rounds() {
        for one in &ready {
            for i in 0..libraries.len() {
                let library = &libraries[(i + round) % libraries.len()];
                step(&format!("{} under {}", one.program.name, library.name));
                measured.samples.extend(sample(one, library, stage, round, &measured.samples));
            }
        }
    }
    measured
}

/// Runs it once.
fn prepare(program: Program, stage: &Stage, quick: bool) -> Result<Ready, String> {
    if program.name == "git" {
        stage.repository()?;
    }
    let job = Job {
        launcher: stage.shapes.clone(),
        executable: program.executable(stage)?,
        words: program.words(stage, quick),
        input: program.input(stage),
        variables: program.variables(),
        preload: None,
        folder: stage.path().into(),
        limit: LIMIT,
    };
    run(&program, &job, stage)?;
    let expected = digest(&stage.file("output"))?;
    Ok(Ready { program, job, expected })
}

fn run(program: &Program, job: &Job, stage: &Stage) -> Result<Usage, String> {
    if program.kind == Kind::Redis { redis::run(job.clone(), stage) } else { job.run() }
}

/// One run, unless it failed before.
fn sample(one: &Ready, library: &Library, stage: &Stage, round: usize, before: &[Sample]) -> Option<Sample> {
    let name = one.program.name;
    let same = |sample: &&Sample| sample.program == name && sample.library == library.name;
    if before.iter().filter(same).any(|sample| sample.failed.is_some()) {
        return None;
    }
    let job = Job { preload: library.path.clone(), ..one.job.clone() };
    let used = run(&one.program, &job, stage).and_then(|usage| {
        let found = digest(&stage.file("output"))?;
        if found == one.expected { Ok(usage) } else { Err("another output than under glibc".into()) }
    });
    let (program, library) = (name.to_owned(), library.name.clone());
    let (usage, failed) = used.map_or_else(|reason| (None, Some(reason)), |usage| (Some(usage), None));
    Some(Sample { program, real: one.program.is_real(), library, round, usage, failed })
}
