//! The file tier's flushes and checks: each removed by a seeded bug that some test must find.
//!
//! Promises upward: `file::seeded::BUG` holds when a test fails, or does not end, with BUG in; `file::seeded::none` when all
//! pass without one. A table says by which test each was found. `TERRACE_BUGS=log_sync,superblock_turns` runs these only.
//! Asks from below: the marks in `adapters/file/src` (see `marks`).

use super::suites;
use crate::command::{Finished, execute, root};
use crate::libtest::{self, Suites};
use crate::marks;
use crate::options::{Options, chosen};
use crate::report::{Outcome, Report};
use crate::sources;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The package whose sources have the marks.
const FOLDER: &str = "adapters/file";

/// Where they are found, beside the unit tests: real files, damage made by hand, everything that may go wrong by chance.
const TESTS: [&str; 3] = ["all", "directory", "store_simulation"];

/// Modules of the programs `all` that test no file.
const OTHERS: [&str; 3] = ["arena::", "contract::", "models::"];

/// Seconds after which a run counts as one without an end: without a bug it takes ten.
const LIMIT: u32 = 120;

/// Runs of the simulation: rare bugs need more than a usual run.
const SIMULATED: &str = "4000";

/// The step.
pub fn run(_options: &Options, report: &mut Report) {
    let (script, marks) = match marks::plant(FOLDER, &sources::all()) {
        Ok(planted) => planted,
        Err(why) => return report.fail("file::seeded::marks", &why),
    };
    let mut build = Command::new("cargo");
    let build = tests(&mut build, &script, None, &["--no-run", "--message-format=json-render-diagnostics"]);
    let build = execute("seeded-build", build);
    if !build.success {
        return report.fail("file::seeded::build", &build.output);
    }
    let names = suites::suites(&build.output);
    let without = execute("seeded-none", &mut command(&script, None));
    if !without.success {
        return report.fail("file::seeded::none", &without.output);
    }
    report.pass("file::seeded::none");
    let wanted = chosen("TERRACE_BUGS");
    let mut table = Vec::new();
    for bug in marks.bugs.iter().filter(|bug| wanted(bug)) {
        let start = Instant::now();
        let by = found(&execute(&format!("seeded-{bug}"), &mut command(&script, Some(bug))), &names);
        report.verdict(&format!("file::seeded::{bug}"), by.clone().map(drop));
        table.push((bug, start.elapsed(), by));
    }
    for (bug, took, by) in table {
        println!("{}", row(bug, took, &by.unwrap_or_else(|_| "NOT FOUND".into())));
    }
    marks.spared.iter().for_each(|(name, why)| println!("{name:<28} not shown: {why}"));
}

/// A line of the table.
fn row(bug: &str, took: Duration, by: &str) -> String {
    format!("{bug:<28} {:>6.1} s  {by}", took.as_secs_f64())
}

/// Every test, with a bug or none; the first suite that fails is the last.
fn command(script: &Path, bug: Option<&str>) -> Command {
    let mut command = Command::new("timeout");
    tests(command.args([&LIMIT.to_string(), "cargo"]), script, bug, &[]);
    command
}

/// Arguments of cargo, `more` among them: every test of the file tier and of the store on a simulated disk.
fn tests<'a>(command: &'a mut Command, script: &Path, bug: Option<&str>, more: &[&str]) -> &'a mut Command {
    command.args(["test", "--target-dir", "target/seeded", "--lib"]);
    TESTS.iter().for_each(|test| _ = command.args(["--test", test]));
    command.args(["--package", "terrace-file", "--package", "terrace-tests"]).args(more).arg("--");
    OTHERS.iter().for_each(|module| _ = command.args(["--skip", module]));
    command.current_dir(root()).env("CARGO_TERM_COLOR", "never").env_remove("RUSTUP_TOOLCHAIN");
    command.env("RUSTC_WORKSPACE_WRAPPER", script).env("TERRACE_SEEDS", SIMULATED);
    command.env(crate::seeds::VARIABLE, bug.unwrap_or_default())
}

/// By which tests a bug was found.
fn found(finished: &Finished, names: &Suites) -> Result<String, String> {
    let tests = libtest::parse(&finished.output, names);
    let failed: Vec<&str> =
        tests.iter().filter(|test| test.outcome == Outcome::Failed).map(|test| test.name.as_str()).collect();
    match failed[..] {
        _ if finished.success => Err("every test passed with the bug in: it was not found".into()),
        _ if tests.is_empty() => Err(format!("no test ran with the bug in:\n{}", finished.output)),
        [] => Ok("a run without an end".into()),
        [one] => Ok(one.into()),
        [first, ..] => Ok(format!("{first} and {} more", failed.len() - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_failing_test_finds_a_bug() {
        let found = |success, output: &str| found(&Finished { success, output: output.into() }, &Suites::new());
        let failed = "running 1 test\ntest a ... FAILED\ntest result: FAILED. 0 passed; 1 failed\n";
        assert_eq!(found(false, failed), Ok("unknown::a".into()));
        assert!(found(true, "running 1 test\ntest a ... ok\n").is_err());
        assert!(found(false, "error[E0308]: mismatched types\n").is_err());
    }
}
