//! Many programs, each on a fresh subject; the first failure, shortened.
//!
//! Promises upward: programs depend on the seed alone; a panic of the subject is a failure like any other.
//! Asks from below: a way to generate a program and a way to run one.

use crate::Random;
use crate::failure::{Broken, Failure};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `programs` programs.
pub(crate) fn drive<S: Clone + Debug>(
    programs: u64,
    seed: u64,
    generate: impl Fn(&mut Random) -> Vec<S>,
    mut run: impl FnMut(&[S]) -> Result<(), Stopped>,
) -> Result<(), Failure> {
    for seed in seed..seed + programs {
        let mut steps = generate(&mut Random::new(seed));
        if let Err(stopped) = run_caught(&mut run, &steps) {
            steps.truncate(stopped.after);
            let broken = match stopped.panicked {
                true => stopped.broken,
                false => shorten(&mut steps, stopped.broken, &mut run),
            };
            return Err(Failure { broken, seed, steps: steps.iter().map(|step| format!("{step:?}")).collect() });
        }
    }
    Ok(())
}

/// A run that broke a rule.
pub(crate) struct Stopped {
    pub broken: Broken,
    /// Steps begun.
    pub after: usize,
    /// The subject panicked: each further try would print its message again.
    pub panicked: bool,
}

impl Stopped {
    pub(crate) fn at(after: usize) -> impl Fn(Broken) -> Self {
        move |broken| Self { broken, after, panicked: false }
    }
}

/// A run whose panic is a broken rule. What the subject leaves behind is never looked at again.
fn run_caught<S>(run: &mut impl FnMut(&[S]) -> Result<(), Stopped>, steps: &[S]) -> Result<(), Stopped> {
    let result = catch_unwind(AssertUnwindSafe(|| run(steps)));
    result.unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_string()));
        let broken = Broken { rule: "no call panics", seen: text.unwrap_or_else(|| "a panic".into()) };
        Err(Stopped { broken, after: steps.len(), panicked: true })
    })
}

/// Leaves out every step that is not needed to break some rule, from the back. At most one run a step.
fn shorten<S: Clone>(
    steps: &mut Vec<S>,
    mut broken: Broken,
    run: &mut impl FnMut(&[S]) -> Result<(), Stopped>,
) -> Broken {
    for at in (0..steps.len()).rev() {
        if at >= steps.len() {
            continue;
        }
        let mut fewer = steps.clone();
        fewer.remove(at);
        if let Err(stopped) = run_caught(run, &fewer) {
            if stopped.panicked {
                return broken;
            }
            fewer.truncate(stopped.after);
            (*steps, broken) = (fewer, stopped.broken);
        }
    }
    broken
}
