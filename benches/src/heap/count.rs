//! Instructions an operation, counted by valgrind's callgrind.
//!
//! Promises upward: only the two calls are counted, each from the first instruction of a function around it that is
//! never inlined to its return; set-up, warm-up and the loop are not.
//! Asks from below: [`crate::callgrind`], and an executable that understands `--count`.

use super::options::Options;
use super::results::Counted;
use super::run::{Memory, Run};
use super::subjects::Name;
use super::works::Work;
use crate::callgrind;
use crate::options::key;
use clap::ValueEnum;
use std::path::Path;

/// The functions of [`super::run`] in which callgrind counts.
const SHIMS: [&str; 2] =
    ["--toggle-collect=*heap::run::counted_allocate*", "--toggle-collect=*heap::run::counted_free*"];

/// Counts a list with `executable`. `None`: the heap cannot have so much memory.
///
/// # Errors
/// What stood in the way, and what to install.
pub fn count(executable: &Path, name: Name, work: Work, options: &Options) -> Result<Option<Counted>, String> {
    let (seed, ops) = (options.list.seed.to_string(), options.ops().to_string());
    let words = ["--seed", &seed, "--ops", &ops, "--count", &key(&name), &key(&work)];
    let run = callgrind::run(executable, &SHIMS, &words)?;
    let ops: u64 = run.output.trim().parse().map_err(|_| format!("the counted run said: {}", run.output.trim()))?;
    let counted = Counted { subject: name.title().into(), work, ops, instructions: run.instructions };
    Ok((ops > 0).then_some(counted))
}

/// What `--count HEAP LIST` does: runs the list once. Returns the operations done, 0 when the heap cannot have so much
/// memory.
///
/// # Errors
/// Words that make no sense.
pub fn counted_part(options: &Options) -> Result<u64, String> {
    let [name, work] = &options.count[..] else { return Err("--count takes two values".into()) };
    let (name, work) = (Name::from_str(name, false)?, Work::from_str(work, false)?);
    let list = work.list(options.list.seed, options.ops());
    let mut memory = Memory::new(list.memory);
    let ran = name.with(Run { list: &list, memory: &mut memory });
    Ok(ran.map_or(0, |ran| ran.ops))
}
