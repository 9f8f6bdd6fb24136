//! The loom stories: `core/tests/loom_*.rs`, built together, each run as it is and once more for each of its seeded bugs.
//!
//! Promises upward: each story's tests by name; `loom::FILE::seeded::BUG` holds when some story of FILE ran, and failed with
//! BUG turned on.
//! Asks from below: the marker lines (see `seeds`), and `cfg(loom)` in the core's `sync`.

use super::lanes::side_by_side;
use super::suites;
use crate::command::{Finished, cargo, execute, root};
use crate::libtest::{self, Suites};
use crate::options::Options;
use crate::report::Report;
use crate::seeds;
use std::process::Command;

/// Programs at a time: most of a story's time is one test of it.
const LANES: usize = 2;

/// The step: every file whose name begins with `loom_`.
pub fn run(_options: &Options, report: &mut Report) {
    let stories = stories();
    if stories.is_empty() {
        report.fail("loom::stories", "there is no file core/tests/loom_*.rs");
        return;
    }
    let mut build = command(&stories);
    build.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let build = execute("loom-build", &mut build);
    if !build.success {
        report.fail("loom::build", &build.output);
        return;
    }
    let names = suites::suites(&build.output);
    let finished = side_by_side(LANES, jobs(&stories), |job| {
        let mut command = command(std::slice::from_ref(&job.story));
        match &job.bug {
            None => command.args(["--", "--show-output"]),
            Some(bug) => command.env(seeds::VARIABLE, bug),
        };
        let finished = execute(&job.name().replace("::", "-"), &mut command);
        (job, finished)
    });
    for (job, finished) in finished {
        match job.bug {
            None => suites::record(report, &job.name(), &finished, &libtest::parse(&finished.output, &names)),
            Some(_) => report.verdict(&job.name(), found(&finished)),
        }
    }
}

/// A story as it is, or with a bug.
struct Job {
    story: String,
    bug: Option<String>,
}

impl Job {
    fn name(&self) -> String {
        seeds::full_name(&format!("loom::{}", self.story), self.bug.as_deref())
    }
}

/// Each story, and once more for each bug that its file names.
fn jobs(stories: &[String]) -> Vec<Job> {
    let of = |story: &String| {
        let text = std::fs::read_to_string(root().join(format!("core/tests/{story}.rs"))).unwrap_or_default();
        let job = |bug| Job { story: story.clone(), bug };
        seeds::variants(seeds::parse(&text).environment).map(job).collect::<Vec<_>>()
    };
    stories.iter().flat_map(of).collect()
}

/// File names of the stories, without `.rs`.
fn stories() -> Vec<String> {
    let entries = std::fs::read_dir(root().join("core/tests")).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rs")?.to_string()));
    let mut names: Vec<String> = names.filter(|name| name.starts_with("loom_")).collect();
    names.sort();
    names
}

/// Release code without what costs time to link. Assertions stay on.
const PROFILE: [(&str, &str); 4] = [
    ("CARGO_PROFILE_RELEASE_LTO", "off"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "false"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"),
    ("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true"),
];

/// `cargo test` of these stories.
fn command(stories: &[String]) -> Command {
    let mut command = cargo(["test", "--release", "--target-dir", "target/loom", "--package", "terrace-core"]);
    command.args(stories.iter().flat_map(|story| ["--test", story])).env("RUSTFLAGS", "--cfg loom").envs(PROFILE);
    command
}

/// Whether the stories ran, and failed.
fn found(finished: &Finished) -> Result<(), String> {
    let ran = libtest::parse(&finished.output, &Suites::new()).len();
    if finished.success {
        Err("every story passed with the bug in: the bug was not found".into())
    } else if ran == 0 {
        Err(format!("no story ran with the bug in:\n{}", finished.output))
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(success: bool, output: &str) -> Finished {
        Finished { success, output: output.into() }
    }

    #[test]
    fn only_a_failing_story_finds_a_bug() {
        assert!(
            found(&finished(false, "running 1 test\ntest a ... FAILED\ntest result: FAILED. 0 passed; 1 failed\n"))
                .is_ok()
        );
        assert!(found(&finished(false, "error[E0308]: mismatched types\n")).is_err());
        assert!(found(&finished(true, "running 1 test\ntest a ... ok\n")).is_err());
        // A panic within a panic ends the process before any result.
        assert!(found(&finished(false, "running 1 test\nprocess abort signal\n")).is_ok());
    }
}
