//! Undefined behaviour: the runs of `runs`, two at a time.
//!
//! Promises upward: `miri::NAME`, `asan::NAME`, `tsan::NAME` for each run; `miri::NAME::seeded::BUG` holds when Miri finds
//! BUG. With `--all` the long runs too; `TERRACE_RUNS=miri::heap-long,asan::file` runs these only.
//! Asks from below: a nightly toolchain with Miri and the sources of the standard library.

use super::lanes::side_by_side;
use super::runs::{self, Run, Tool};
use crate::command::{execute, root, works};
use crate::install;
use crate::options::Options;
use crate::report::Report;
use crate::seeds;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// What rustup calls them.
const COMPONENTS: [&str; 2] = ["miri", "rust-src"];

/// The step `miri`.
pub fn miri(options: &Options, report: &mut Report) {
    step(options, report, |tool| tool == Tool::Miri);
}

/// The step `sanitizers`.
pub fn sanitizers(options: &Options, report: &mut Report) {
    step(options, report, |tool| tool != Tool::Miri);
}

fn step(options: &Options, report: &mut Report, of: fn(Tool) -> bool) {
    let runs: Vec<&Run> = runs::wanted().filter(|run| of(run.tool) && (options.all || !run.long)).collect();
    if let Err(missing) = tools(options) {
        return runs.iter().for_each(|run| report.skip(&run.full_name(), &missing));
    }
    // Interpreting uses one core each.
    let jobs: Vec<Job> = runs.into_iter().flat_map(jobs).collect();
    for (name, verdict) in side_by_side(2, jobs, Job::timed) {
        report.verdict(&name, verdict);
    }
}

/// A run as it is, or with a bug.
struct Job {
    name: String,
    run: &'static Run,
    bug: Option<String>,
}

/// A run, and once more for each bug that its file names.
fn jobs(run: &'static Run) -> Vec<Job> {
    let text = run.seeds.map(|file| std::fs::read_to_string(root().join(file)).unwrap_or_default());
    let bugs = text.map(|text| seeds::parse(&text).compiled).unwrap_or_default();
    let job = |bug: Option<String>| Job { name: seeds::full_name(&run.full_name(), bug.as_deref()), run, bug };
    seeds::variants(bugs).map(job).collect()
}

impl Job {
    /// Its name and verdict; says how long it took.
    fn timed(self) -> (String, Result<(), String>) {
        let start = Instant::now();
        let verdict = self.verdict();
        println!("{:<40} {:>6.1} s", self.name, start.elapsed().as_secs_f64());
        (self.name, verdict)
    }

    fn verdict(&self) -> Result<(), String> {
        let mut command = self.run.command();
        match &self.bug {
            None => runs::judge(&execute(&self.name, &mut command)),
            Some(bug) => {
                // Miri has no wrapper for the workspace alone: what it builds with a bug lies beside what it builds without.
                command.env("RUSTFLAGS", format!("--cfg {}", seeds::cfg(bug)));
                runs::found(&execute(&self.name, &mut command))
            }
        }
    }
}

/// Makes sure that the toolchain and its components are there.
fn tools(options: &Options) -> Result<(), String> {
    install::nightly(options)?;
    let words = ["component", "add", "--toolchain", "nightly", COMPONENTS[0], COMPONENTS[1]];
    if !there() && options.install {
        execute("miri-add", Command::new("rustup").args(words));
    }
    if there() { Ok(()) } else { Err(format!("rustup {}", words.join(" "))) }
}

fn there() -> bool {
    let sysroot = crate::command::output_of("rustc", &["+nightly", "--print", "sysroot"]).unwrap_or_default();
    let sources = PathBuf::from(sysroot.trim()).join("lib/rustlib/src/rust/library/std");
    sources.is_dir() && works("cargo", &["+nightly", "miri", "--version"])
}
