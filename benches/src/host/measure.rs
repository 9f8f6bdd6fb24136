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
use terrace_models::rounds::Rounds;

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

impl Sample {
    /// Of a run that may have failed.
    pub fn of(
        program: &str,
        real: bool,
        library: &Library,
        round: usize,
        used: Result<Usage, String>,
    ) -> Result<Self, Box<Self>> {
        let (program, library) = (program.to_owned(), library.name.clone());
        match used {
            Ok(usage) => Ok(Self { program, real, library, round, usage: Some(usage), failed: None }),
            Err(reason) => Err(Box::new(Self { program, real, library, round, usage: None, failed: Some(reason) })),
        }
    }
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

/// Every run, those that failed last, and programs that are missing. `step` is told what comes next.
pub fn measure(
    options: &Options,
    libraries: &[Library],
    stage: &Stage,
    step: &mut dyn FnMut(&str),
) -> (Vec<Sample>, Vec<Given>) {
    let (mut ready, mut missing) = (Vec::new(), Vec::new());
    for program in chosen(options) {
        step(program.name);
        match prepare(program, stage, options.common.quick) {
            Ok(one) => ready.push(one),
            Err(reason) => missing.push(Given { subject: program.name.into(), what: reason }),
        }
    }
    let mut pairs: Vec<_> = ready.iter().flat_map(|one| libraries.iter().map(move |library| (one, library))).collect();
    let rounds = Rounds { group: libraries.len(), ..Rounds::new(options.rounds()) };
    let (mut samples, failed) = rounds.run(&mut pairs, |(one, library), round| {
        step(&format!("{} under {}", one.program.name, library.name));
        sample(one, library, stage, round)
    });
    samples.extend(failed.into_iter().map(|failed| *failed));
    (samples, missing)
}

/// Runs it once.
fn prepare(program: Program, stage: &Stage, quick: bool) -> Result<Ready, String> {
    if program.name == "git" {
        stage.repository()?;
    }
    let job = Job {
        words: program.words(stage, quick),
        input: program.input(stage),
        variables: program.variables(),
        limit: LIMIT,
        ..stage.job(&program.executable(stage)?, &[])
    };
    run(&program, &job, stage)?;
    let expected = digest(&stage.file("output"))?;
    Ok(Ready { program, job, expected })
}

fn run(program: &Program, job: &Job, stage: &Stage) -> Result<Usage, String> {
    if program.kind == Kind::Redis { redis::run(job.clone(), stage) } else { job.run() }
}

/// One run; the error is one that failed.
fn sample(one: &Ready, library: &Library, stage: &Stage, round: usize) -> Result<Sample, Box<Sample>> {
    let job = Job { preload: library.path.clone(), ..one.job.clone() };
    let used = run(&one.program, &job, stage).and_then(|usage| {
        let found = digest(&stage.file("output"))?;
        if found == one.expected { Ok(usage) } else { Err("another output than under glibc".into()) }
    });
    Sample::of(one.program.name, one.program.is_real(), library, round, used)
}
